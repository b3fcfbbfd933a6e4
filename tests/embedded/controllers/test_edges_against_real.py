"""Failures, on the embedded cluster and on a real one: limits per index, budgets, refused pods."""

from __future__ import annotations

from typing import Any

from tests.embedded.controllers.stories import (
    APPS,
    BATCH,
    LABELS,
    POLICY,
    counts,
    events,
    plain,
    pods,
    same,
    set_phase,
    space,
    told,
    wait,
)
from tests.embedded.in_process_cluster import template
from tests.embedded.server.harness import Client

from windlass.model.unstructured import Unstructured


def indexed(completions: int, **spec: Any) -> Unstructured:
    return {
        "completions": completions,
        "parallelism": completions,
        "completionMode": "Indexed",
        "template": template(LABELS, "Never"),
        **spec,
    }


def job_of(client: Client, spec: Unstructured) -> str:
    """Made, with all of its pods there; its path."""
    path = f"{BATCH}{space()}/jobs"
    client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
    wait(lambda: len(pods(client)) == spec["parallelism"])
    return f"{path}/story"


def ended(client: Client, path: str, condition: str) -> tuple[Unstructured, Any]:
    wait(lambda: any(item[0] == condition for item in told(client.get(path).ok())))
    found = client.get(path).ok()
    return counts(found), told(found)


def test_indices_that_fail_on_their_own(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = job_of(client, indexed(3, backoffLimitPerIndex=0))
        marks = [pod["metadata"]["annotations"] for pod in pods(client)]
        for pod, phase in zip(pods(client), ("Succeeded", "Failed", "Succeeded"), strict=True):
            set_phase(client, pod, phase, int(phase == "Failed"))
        return marks, ended(client, path, "Failed")

    same(both, story)


def test_too_many_failed_indices(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = job_of(client, indexed(3, backoffLimitPerIndex=0, maxFailedIndexes=0))
        set_phase(client, pods(client)[2], "Failed", 1)
        return ended(client, path, "Failed")

    same(both, story)


def test_a_rule_that_fails_an_index(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}
        policy = {"podFailurePolicy": {"rules": [rule]}}
        path = job_of(client, indexed(2, backoffLimitPerIndex=5, **policy))
        first, second = pods(client)
        set_phase(client, first, "Failed", 42)
        wait(lambda: client.get(path).ok()["status"].get("failedIndexes") == "0")
        set_phase(client, second, "Succeeded")
        return ended(client, path, "Failed")

    same(both, story)


def test_a_leader_s_success_is_enough(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = job_of(client, indexed(3, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
        set_phase(client, pods(client)[0], "Succeeded")
        return ended(client, path, "Complete"), events(client, "Job")

    same(both, story)


def test_so_many_of_some_indices_are_enough(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        rule = {"succeededIndexes": "0-2", "succeededCount": 2}
        path = job_of(client, indexed(4, successPolicy={"rules": [rule]}))
        for pod in (pods(client)[1], pods(client)[3], pods(client)[2]):
            set_phase(client, pod, "Succeeded")
        return ended(client, path, "Complete")

    same(both, story)


def test_a_daemonset_beside_a_taint(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        taint = {"key": "story", "value": "kept", "effect": "NoSchedule"}
        client.post("/api/v1/nodes", {"metadata": {"name": "open"}}).ok()
        client.post("/api/v1/nodes", {"metadata": {"name": "kept"}, "spec": {"taints": [taint]}}).ok()
        path = f"{APPS}{space()}/daemonsets"
        spec = {"selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 1)
        wait(lambda: client.get(f"{path}/story").ok()["status"].get("currentNumberScheduled") == 1)
        return counts(client.get(f"{path}/story").ok())

    same(both, story)


def budget(client: Client, **spec: Any) -> str:
    path = f"{POLICY}{space()}/poddisruptionbudgets"
    whole = {"selector": {"matchLabels": LABELS}, **spec}
    client.post(path, {"metadata": {"name": "story"}, "spec": whole}).ok()
    return f"{path}/story"


def test_a_budget_over_pods_that_nobody_manages(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        made = {"metadata": {"name": "story", "labels": LABELS}, "spec": template(LABELS)["spec"]}
        client.post(f"/api/v1{space()}/pods", made).ok()
        set_phase(client, pods(client)[0], "Running")
        path = budget(client, maxUnavailable=1)
        wait(lambda: client.get(path).ok().get("status", {}).get("currentHealthy") == 1)
        found = client.get(path).ok()
        return counts(found), told(found)

    same(both, story)


def test_a_budget_over_a_job_s_pods(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        job_of(client, {"parallelism": 2, "completions": 2, "template": template(LABELS, "Never")})
        for pod in pods(client):
            set_phase(client, pod, "Running")
        path = budget(client, maxUnavailable=1)
        wait(lambda: told(client.get(path).ok()))
        found = client.get(path).ok()
        return told(found), found["status"]["disruptionsAllowed"]

    same(both, story)


def test_pods_that_a_quota_refuses(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        quotas = f"/api/v1{space()}/resourcequotas"
        client.post(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}).ok()
        wait(lambda: client.get(f"{quotas}/none").ok().get("status", {}).get("used"))
        spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        path = f"{APPS}{space()}/deployments"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: any(condition[0] == "ReplicaFailure" for condition in told(client.get(f"{path}/story").ok())))
        sets = client.get(f"{APPS}{space()}/replicasets").ok()["items"]
        return told(client.get(f"{path}/story").ok()), [told(replica_set) for replica_set in sets]

    same(both, story)


def test_a_deployment_s_pod_that_falls_over(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        spec = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        path = f"{APPS}{space()}/deployments"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 1)
        set_phase(client, pods(client)[0], "Running")
        wait(lambda: ("Available", "True") in [condition[:2] for condition in told(client.get(f"{path}/story").ok())])
        wait(
            lambda: any(
                condition[2] == "NewReplicaSetAvailable" for condition in told(client.get(f"{path}/story").ok())
            )
        )
        set_phase(client, pods(client)[0], "Pending")
        wait(lambda: ("Available", "False") in [condition[:2] for condition in told(client.get(f"{path}/story").ok())])
        return [plain(str(condition)) for condition in told(client.get(f"{path}/story").ok())]

    same(both, story)
