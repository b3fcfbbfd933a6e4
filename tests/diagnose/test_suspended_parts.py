"""Work that is suspended in part, and who suspends it."""

from __future__ import annotations

from typing import Any

from tests.diagnose.objects import ask, node, pod, thing

from windlass.model.unstructured import Unstructured

OLD = "2026-03-01T10:00:00Z"
CONFIG = {"config.yaml": "kind: Configuration\nmanageJobsWithoutQueueName: true\n"}


def part(kind: str, name: str, version: str, **more: Any) -> Unstructured:
    made = thing(kind, name, more.pop("spec", {}), version, **more)
    made["metadata"]["creationTimestamp"] = OLD
    return made


def ray_job(suspended: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> list[Unstructured]:
    """A RayJob whose cluster runs, and whose submitting Job may be suspended."""
    ready = {"containerStatuses": [{"name": "main", "ready": True, "state": {"running": {"startedAt": OLD}}}]}
    return [
        node("g1", 4),
        part("RayJob", "r", "ray.io/v1", spec={"suspend": False, **spec}),
        part("RayCluster", "r-c", "ray.io/v1", owner=("RayJob", "r")),
        pod("r-c-head", 1, on="g1", owner=("RayCluster", "r-c"), status=ready),
        part("Job", "r", "batch/v1", spec={"suspend": suspended}, owner=("RayJob", "r"), labels=labels or {}),
    ]


def manager() -> Unstructured:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": CONFIG,
    }


def test_a_part_that_nobody_resumes_is_named_though_all_pods_are_well() -> None:
    found = ask("rayjob/r", *ray_job())
    assert found.code == "JOB_SUSPENDED"
    assert "Job team/r, which RayJob team/r has made, stays suspended" in found.headline


def test_the_configuration_that_suspends_it_is_named() -> None:
    found = ask("rayjob/r", *ray_job(), manager())
    assert "Kueue suspends such jobs (manageJobsWithoutQueueName in ConfigMap kueue-system/kueue-manager-config)" in (
        found.headline
    )
    assert found.changed_by == "a cluster administrator"


def test_a_part_that_runs_is_well() -> None:
    assert ask("rayjob/r", *ray_job(suspended=False), manager()).code == "NONE"


def test_parts_that_start_one_after_the_other_may_wait() -> None:
    assert ask("rayjob/r", *ray_job(startupPolicy={"startupPolicyOrder": "InOrder"})).code == "NONE"


def alone(labels: dict[str, str]) -> list[Unstructured]:
    return [node("g1", 4), part("Job", "j", "batch/v1", spec={"suspend": True}, labels=labels)]


def test_a_job_in_no_queue_is_not_to_be_resumed_where_kueue_suspends_it_again() -> None:
    found = ask("job/j", *alone({}), manager())
    assert "it names no queue, and Kueue suspends such jobs" in found.headline
    assert not found.patches


def test_elsewhere_it_is_to_be_resumed() -> None:
    assert "is in no queue" in ask("job/j", *alone({})).headline


def test_a_paused_deployment_makes_no_pods() -> None:
    containers = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    spec = {"replicas": 2, "paused": True, "template": {"spec": containers}}
    found = ask("deploy/d", node("g1", 4), part("Deployment", "d", "apps/v1", spec=spec))
    assert found.code == "JOB_SUSPENDED"
    assert "kubectl rollout resume" in found.headline


def test_what_wants_no_pods_has_none() -> None:
    containers = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    spec = {"replicas": 0, "template": {"spec": containers}}
    found = ask("deploy/d", node("g1", 4), part("Deployment", "d", "apps/v1", spec=spec))
    assert (found.code, found.confidence) == ("NONE", "high")


def cron_job(**more: Any) -> list[Unstructured]:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    return [node("g1", 4), part("CronJob", "nightly", "batch/v1", spec={"jobTemplate": template, **more})]


def test_a_cron_job_between_two_runs_is_well() -> None:
    assert ask("cronjob/nightly", *cron_job(schedule="0 2 * * *")).code == "NONE"


def test_a_suspended_cron_job_is_named() -> None:
    assert ask("cronjob/nightly", *cron_job(schedule="0 2 * * *", suspend=True)).code == "JOB_SUSPENDED"
