"""Names that match nothing (a WorkloadPriorityClass, a node selector of the pod or of the configuration) are named in
the hold, with what to do, and `why` says the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GPU, NAMESPACE, QUEUE

from windlass.apply.messages import condition_message
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"


def ground(flavor_labels: dict[str, str] | None = None) -> list[Unstructured]:
    quota = {"nominalQuota": "100"}
    return [
        make.node("n1", 16, 8, "a", "r1"),
        make.node("n2", 16, 8, "b", "r1"),
        make.flavor("any", flavor_labels or {}),
        make.cluster_queue("q", {"any": {"cpu": quota, GPU: quota}}),
        make.local_queue("q", "q"),
    ]


def plan_of(*objects: Unstructured, **settings: Any) -> Plan:
    return plan_objects([decode_object(tree) for tree in objects], Settings(**settings), EPOCH)[0]


def only_hold(*objects: Unstructured, **settings: Any) -> Hold:
    found = plan_of(*objects, **settings)
    assert (found.binds, found.admits) == ((), ())
    (hold,) = found.holds
    return hold


def job(labels: dict[str, str], **spec: Any) -> Unstructured:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w", "namespace": NAMESPACE, "uid": "w", "labels": {QUEUE: "q", **labels}},
        "spec": {"suspend": True, "parallelism": 1, "template": {"spec": make.pod_spec(1, 1, **spec)}},
    }


def workload_of_class(name: str) -> Unstructured:
    made = make.workload("w", "q", [make.pod_set("main", 1, make.pod_spec(1, 1))], priority=0, created=EPOCH)
    del made["spec"]["priority"]
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    made["spec"]["priorityClassRef"] = reference
    return made


def queued_pod(labels: dict[str, str]) -> Unstructured:
    return make.pod("w", make.pod_spec(1, 1), created=EPOCH, labels={QUEUE: "q", **labels})


def priority_class(name: str, value: int) -> Unstructured:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def says(hold: Hold, text: str) -> bool:
    """In all that is shown of it."""
    texts = (hold.verdict.message, hold.verdict.public_message, condition_message(hold.verdict))
    return all(text in shown for shown in texts)


@pytest.mark.parametrize("work", [job, queued_pod, None], ids=["job", "pod", "workload"])
def test_a_missing_workload_priority_class_is_named(work: Any) -> None:
    waiting = workload_of_class("urgent") if work is None else work({PRIORITY_CLASS: "urgent"})
    hold = only_hold(*ground(), waiting, priority_class("low", 1), priority_class("high", 9))
    assert hold.verdict.code == "INVALID_OBJECT"
    assert says(
        hold,
        "WorkloadPriorityClass urgent doesn't exist: create it, or name one of the 2 that exist (high, low)",
    )
    assert plan_of(*ground(), waiting, priority_class("urgent", 5)).holds == ()


def test_without_any_class_the_remedy_is_another_one() -> None:
    hold = only_hold(*ground(), job({PRIORITY_CLASS: "urgent"}))
    assert says(hold, "WorkloadPriorityClass urgent doesn't exist: create it, or remove the label that names it")


def test_a_workload_with_a_priority_of_its_own_needs_no_class() -> None:
    waiting = workload_of_class("urgent")
    waiting["spec"]["priority"] = 3
    assert plan_of(*ground(), waiting).holds == ()


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("busy", [False, True])
def test_a_node_selector_that_no_node_matches_is_named(gpus: int, busy: bool) -> None:
    spec = make.pod_spec(1, gpus, nodeSelector={make.POOL: "c", make.RACK: "r1"})
    objects = [*ground(), make.pod("w", spec, created=EPOCH)]
    for name in ("n1", "n2") if busy else ():
        objects.append(make.pod(f"on-{name}", make.pod_spec(1, 8, nodeName=name), created=EPOCH - 9))
    hold = only_hold(*objects)
    assert hold.verdict.code == "SELECTOR_MISMATCH"
    assert says(hold, f"its node selector {make.POOL}=c matches 0 of 2 nodes")


def test_labels_that_no_node_has_together_are_all_named() -> None:
    objects = ground()
    objects[1]["metadata"]["labels"][make.RACK] = "r2"
    spec = make.pod_spec(1, 0, nodeSelector={make.POOL: "b", make.RACK: "r1"})
    hold = only_hold(*objects, make.pod("w", spec, created=EPOCH))
    assert says(hold, f"its node selector {make.POOL}=b, {make.RACK}=r1 matches 0 of 2 nodes")


def test_an_affinity_that_no_node_matches_is_named() -> None:
    expression = {"key": make.POOL, "operator": "In", "values": ["c"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    hold = only_hold(*ground(), make.pod("w", make.pod_spec(1, 1, affinity=affinity), created=EPOCH))
    assert says(hold, "its required node affinity matches 0 of 2 nodes")


def test_a_flavor_whose_labels_no_node_has_is_named() -> None:
    hold = only_hold(*ground({make.POOL: "c"}), queued_pod({}))
    assert says(hold, f"its queue's flavor with node labels {make.POOL}=c matches 0 of 2 nodes")


@pytest.mark.parametrize("queued", [False, True])
def test_the_node_selector_of_the_configuration_is_named(queued: bool) -> None:
    waiting = queued_pod({}) if queued else make.pod("w", make.pod_spec(1, 1), created=EPOCH)
    hold = only_hold(*ground(), waiting, node_selector={"pool": "gpu"})
    text = "the scheduler's nodeSelector pool=gpu matches no node"
    assert says(hold, text)
    assert (hold.verdict.message + hold.verdict.public_message).count(text) == 2, "once in each"
    assert (
        "label the nodes that the scheduler should use, or correct nodeSelector in its configuration"
        in hold.verdict.message
    )


def test_without_any_node_the_selector_of_the_configuration_is_not_blamed() -> None:
    hold = only_hold(make.pod("w", make.pod_spec(1, 1), created=EPOCH), node_selector={"pool": "gpu"})
    assert "nodeSelector" not in hold.verdict.message
