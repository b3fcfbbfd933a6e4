"""Claims of queued pods and of templates: what keeps a pod from starting on any node holds its whole workload, without
quota, in a queue as well as outside of one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GPU, NAMESPACE, QUEUE, stamp

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

QUOTA = {"nominalQuota": "100"}
GATES = [{"name": "kueue.x-k8s.io/admission"}]
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICE = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}
SCRATCH = {"volumes": [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}


def ground() -> list[Unstructured]:
    return [
        make.node("n1", 16, 8, "a", "r1"),
        make.flavor("any", {}),
        make.cluster_queue("q", {"any": {"cpu": QUOTA, GPU: QUOTA}}),
        make.local_queue("q", "q"),
    ]


def plan_of(*objects: Unstructured) -> Plan:
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in (*ground(), *objects)])
    return decide(store.snapshot(EPOCH), EngineConfig(max_explained_holds=8), EPOCH)


def pod(name: str = "a", queue: str = "q", **spec: Any) -> Unstructured:
    labels = {QUEUE: queue} if queue else {}
    return make.pod(name, make.pod_spec(1, 1, **spec), created=EPOCH - 60, labels=labels)


def workload(**spec: Any) -> Unstructured:
    sets = [make.pod_set("main", 2, make.pod_spec(1, 1, **spec))]
    return make.workload("w", "q", sets, priority=0, created=EPOCH - 60)


def job(queue: str = "q", **spec: Any) -> Unstructured:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w", "namespace": NAMESPACE, "labels": {QUEUE: queue} if queue else {}},
        "spec": {"parallelism": 2, "template": {"spec": make.pod_spec(1, 1, **spec)}},
    }


def claim(**spec: Any) -> Unstructured:
    meta = {"name": "data", "namespace": NAMESPACE, "creationTimestamp": stamp(EPOCH)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def storage_class(mode: str) -> Unstructured:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": "example.com/disk",
        "volumeBindingMode": mode,
    }


WAITING = {"a queued pod": pod, "a Workload": workload, "a queued Job": job, "a Job": lambda **spec: job("", **spec)}


@pytest.mark.parametrize("kind", WAITING)
@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        (CLAIM, "STORAGE_INSUFFICIENT", 'persistentvolumeclaim "data" not found'),
        (DEVICE, "NOT_IMPLEMENTED", "which Windlass does not allocate: gpu"),
    ],
)
def test_what_lacks_a_claim_gets_neither_quota_nor_a_node(kind: str, spec: Unstructured, code: str, text: str) -> None:
    found = plan_of(WAITING[kind](**spec))
    assert (found.admits, found.binds) == ((), ())
    (hold,) = found.holds
    assert hold.verdict.code == code
    assert text in hold.verdict.message
    assert text in hold.verdict.public_message


@pytest.mark.parametrize("kind", WAITING)
def test_a_claim_that_binds_at_once_has_to_be_bound(kind: str) -> None:
    waiting = WAITING[kind](**CLAIM)
    unbound = claim(storageClassName="disk", accessModes=["ReadWriteMany"])
    (hold,) = plan_of(waiting, unbound, storage_class("Immediate")).holds
    assert "unbound immediate PersistentVolumeClaims: data" in hold.verdict.public_message
    late = plan_of(waiting, unbound, storage_class("WaitForFirstConsumer"))
    assert late.holds == ()


def test_claims_that_are_made_with_the_pods_hold_no_template() -> None:
    assert len(plan_of(workload(**SCRATCH)).admits) == 1
    assert len(plan_of(job("", **SCRATCH)).holds) == 0


def test_kueues_own_gates_hold_nothing_in_a_queue_and_others_are_named() -> None:
    assert len(plan_of(pod(schedulingGates=GATES)).binds) == 1
    (hold,) = plan_of(pod(schedulingGates=[*GATES, {"name": "example.com/mine"}])).holds
    assert (hold.verdict.code, hold.verdict.detail) == (
        "SCHEDULING_GATED",
        "waiting for scheduling gates: [example.com/mine]",
    )


def test_the_others_of_the_queue_are_not_held_up() -> None:
    found = plan_of(pod("a", **CLAIM), pod("b"))
    assert [bind.pod for bind in found.binds] == [f"{NAMESPACE}/b"]


def test_a_pod_that_came_after_the_admission_is_held_for_its_claim() -> None:
    admitted = workload(**CLAIM)
    usage = {"cpu": "2", GPU: "2"}
    part = {"name": "main", "count": 2, "flavors": {"cpu": "any", GPU: "any"}, "resourceUsage": usage}
    admitted["status"] = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [part]},
        "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": stamp(EPOCH - 30)}],
    }
    late = pod("late", "", **CLAIM)
    late["metadata"]["annotations"] = {make.OWNER: "w"}
    found = plan_of(admitted, late)
    assert found.binds == ()
    (hold,) = found.holds
    assert 'persistentvolumeclaim "data" not found' in hold.verdict.public_message
