"""Running workloads are stopped: incomplete gangs after their grace period, declared durations at their end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod, pod_group

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Evict
from windlass.model.pod import Pod
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.stop_conditions import min_running_pods
from windlass.planner import plan_objects

GRACE = 300
QUEUE = "kueue.x-k8s.io/queue-name"


def evicts(*objects: Any, now: int = NOW) -> list[Evict]:
    return list(plan_objects(objects, Settings(gang_grace_seconds=GRACE), now)[0].evicts)


def changed(obj: Any, **meta: Any) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **meta))


def gang(lost_ago: int | None, *, controller: bool = False) -> list[Any]:
    """Two members, one of them on a node; the other was created again `lost_ago` seconds ago, or is missing."""
    members = [pod("gang-0", 4, 0, "n", age=7200, group="gang")]
    if lost_ago is not None:
        members.append(pod("gang-1", 4, 0, age=lost_ago, group="gang"))
    if controller:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "gang", "controller": True}
        made = decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "ownerReferences": [owner]}})
        members = [changed(member, owner_references=made.metadata.owner_references) for member in members]
    return [gpu_node("n", 4), pod_group("gang", 2), *members]


@pytest.mark.parametrize(("ago", "stopped"), [(60, False), (GRACE, False), (GRACE + 60, True)])
def test_the_grace_is_counted_from_the_loss_not_from_the_start(ago: int, stopped: bool) -> None:
    found = evicts(*gang(ago))
    assert [(evict.workload, evict.reason, evict.pods) for evict in found] == (
        [("default/gang", "GangBelowMinimum", ("default/gang-0",))] if stopped else []
    )


def test_what_can_be_completed_goes_on() -> None:
    assert evicts(*gang(GRACE + 60), gpu_node("spare", 4)) == []


def test_a_member_that_nobody_makes_again_is_not_waited_for() -> None:
    assert [evict.workload for evict in evicts(*gang(None))] == ["default/gang"]
    assert evicts(*gang(None, controller=True)) == [], "its controller is about to make it again"


def job(annotations: dict[str, str] | None = None) -> list[Any]:
    """A queued Job of two pods without a minimum of its own; one runs, one has waited for ten minutes."""
    meta = {"name": "train", "namespace": "default", "uid": "t", "labels": {QUEUE: "team"}}
    meta["creationTimestamp"] = "2026-01-01T01:00:00Z"
    template = {"spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}}
    spec = {"parallelism": 2, "completions": 2, "template": template}
    tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    pods = []
    for name, node, age in (("train-0", "n", 7200), ("train-1", "", 600)):
        member = pod(name, 4, 0, node, age)
        made = decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "ownerReferences": [owner]}})
        pods.append(changed(member, owner_references=made.metadata.owner_references, annotations=annotations or {}))
    return [decode_object(tree), *pods]


def queue(gpus: int) -> list[Any]:
    cells = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "default", "resources": cells}]}]
    kueue = "kueue.x-k8s.io/v1beta1"
    trees: list[dict[str, Any]] = [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": "team"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"clusterQueue": "team"},
        },
    ]
    return [decode_object(tree) for tree in trees]


def test_a_job_without_a_minimum_needs_all_its_pods() -> None:
    (evict,) = evicts(gpu_node("n", 4), *queue(8), *job())
    assert (evict.workload, evict.reason) == ("default/train", "GangBelowMinimum")
    assert evicts(gpu_node("n", 4), gpu_node("spare", 4), *queue(8), *job()) == []


@pytest.mark.parametrize(("declared", "over"), [("3h", False), ("2h", True), ("1h", True)])
def test_a_declared_duration_ends_at_its_end(declared: str, over: bool) -> None:
    """In a cluster with queues; the pod runs for two hours."""
    single = changed(pod("single", 4, 0, "n", age=7200), annotations={"windlass.dev/duration": declared})
    other = changed(pod("other", 4, 0, group=""), labels={QUEUE: "team"})
    found = [
        evict for evict in evicts(gpu_node("n", 4), *queue(8), single, other) if evict.workload == "default/single"
    ]
    assert [evict.reason for evict in found] == (["DurationExceeded"] if over else [])


def test_the_time_counts_from_the_start_not_from_the_creation() -> None:
    single = changed(pod("single", 4, 0, "n", age=7200), annotations={"windlass.dev/duration": "1h"})
    single = msgspec.structs.replace(single, status=msgspec.structs.replace(single.status, start_time=""))
    other = changed(pod("other", 4, 0), labels={QUEUE: "team"})
    assert evicts(gpu_node("n", 4), *queue(8), single, other) == [], "its start is not known yet"


def test_a_deadline_is_enforced_by_others() -> None:
    single = changed(pod("single", 4, 0, "n", age=7200, activeDeadlineSeconds=60))
    other = changed(pod("other", 4, 0), labels={QUEUE: "team"})
    assert evicts(gpu_node("n", 4), *queue(8), single, other) == []


def workload(sets: list[tuple[int, int | None]], held: int | None = None, **fields: Any) -> Workload:
    pod_sets = tuple(PodSet(f"s{at}", count, Pod(), least) for at, (count, least) in enumerate(sets))
    parts = (PodSetAssignment("s0", held, {}, {}),) if held is not None else ()
    return Workload("d/w", fields.pop("kind", "Job"), pod_sets, admission=Admission("q", parts), **fields)


@pytest.mark.parametrize(
    ("admitted", "fewest"),
    [
        (workload([(4, None)]), 4),
        (workload([(4, None)], min_pods=2), 2),
        (workload([(1, None)], min_pods=2), 2),  # lost members of a group are in no pod set
        (workload([(4, 2), (3, None)]), 5),
        (workload([(4, 2)], held=3, kind="Workload"), 2),
        (workload([(4, None)], held=3, kind="Workload"), 3),
    ],
)
def test_what_a_workload_needs(admitted: Workload, fewest: int) -> None:
    assert min_running_pods(admitted) == fewest
