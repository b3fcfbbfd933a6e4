"""The workload index, updated change by change, equals one built at once from all objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.cluster.change_detection import is_pod_unchanged, is_unchanged
from windlass.cluster.delta import Assume, Deleted, Forget, Put
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

NOW = 1_767_229_200
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
BATCH, KUEUE = "batch/v1", "kueue.x-k8s.io/v1beta2"


def meta(name: str, **more: Any) -> Unstructured:
    made = {"name": name, "namespace": "eng", "uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**made, **more}


def owner(kind: str, name: str, version: str) -> list[Unstructured]:
    return [{"kind": kind, "name": name, "apiVersion": version, "uid": "u", "controller": True}]


SPEC = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}


def pod(name: str, way: str, node: str, phase: str, turn: int) -> Unstructured:
    more: Unstructured = {"labels": {"turn": str(turn)}, "annotations": {}}
    if way == "queued":
        more["labels"][QUEUE] = "lq"
    elif way == "group":
        more["labels"] |= {GROUP: "g0", QUEUE: "lq"}
        more["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    elif way == "coscheduling":
        more["labels"]["scheduling.x-k8s.io/pod-group"] = "g0"
    elif way == "job":
        more["ownerReferences"] = owner("Job", "j0", BATCH)
    elif way == "unknown":
        more["ownerReferences"] = owner("Thing", "t0", "example.com/v1")
    spec = {**SPEC, **({"nodeName": node} if node else {})}
    status = {"phase": phase or ("Running" if node else "Pending")}
    metadata = meta(name, uid=f"u-{name}-{turn}", **more)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def job(name: str, queued: bool, suspended: bool, parent: str) -> Unstructured:
    more = {"labels": {QUEUE: "lq"} if queued else {}}
    if parent:
        more["ownerReferences"] = owner("JobSet", parent, "jobset.x-k8s.io/v1alpha2")
    spec = {"suspend": suspended, "parallelism": 2, "template": {"spec": SPEC}}
    return {"apiVersion": BATCH, "kind": "Job", "metadata": meta(name, **more), "spec": spec}


def workload(name: str, of: tuple[str, str] | None, finished: bool) -> Unstructured:
    more = {} if of is None else {"ownerReferences": owner(*of, BATCH if of[0] == "Job" else "v1")}
    sets = [{"name": "main", "count": 2, "template": {"spec": SPEC}}]
    made: Unstructured = {"apiVersion": KUEUE, "kind": "Workload", "metadata": meta(name, **more)}
    made["spec"] = {"queueName": "lq", "podSets": sets}
    if finished:
        made["status"] = {"conditions": [{"type": "Finished", "status": "True"}]}
    return made


def node(name: str, pool: str) -> Unstructured:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "pool": pool}
    status = {"capacity": amounts, "allocatable": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


def kueue(kind: str, name: str, spec: Unstructured, namespace: str = "") -> Unstructured:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **where}, "spec": spec}


def cluster_queue(cpu: int) -> Unstructured:
    quotas = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    group = {"coveredResources": ["cpu"], "flavors": quotas}
    return kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": [group]})


def pod_group(minimum: int) -> Unstructured:
    spec = {"minMember": minimum}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": meta("g0"),
        "spec": spec,
    }


QUEUES = [
    kueue("ResourceFlavor", "default", {}),
    cluster_queue(4),
    kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, "eng"),
]
ways = st.sampled_from(["alone", "queued", "group", "coscheduling", "job", "unknown"])
pods = st.builds(
    pod,
    st.sampled_from(["p0", "p1", "p2", "p3"]),
    ways,
    st.sampled_from(["", "", "n0", "n1"]),
    st.sampled_from(["", "", "", "Succeeded"]),
    st.integers(0, 3),
)
others = st.one_of(
    st.builds(job, st.sampled_from(["j0", "j1"]), st.booleans(), st.booleans(), st.sampled_from(["", "s0"])),
    st.builds(
        workload,
        st.sampled_from(["w0", "w1"]),
        st.sampled_from([None, ("Job", "j0"), ("Job", "j1"), ("Pod", "p0")]),
        st.booleans(),
    ),
    st.builds(node, st.sampled_from(["n0", "n1"]), st.sampled_from(["a", "b"])),
    st.builds(cluster_queue, st.integers(1, 4)),
    st.builds(pod_group, st.integers(1, 3)),
)
changes = st.one_of(
    st.tuples(st.just("put"), pods),
    st.tuples(st.just("put"), others),
    st.tuples(st.just("gone"), st.integers(0, 30)),
    st.tuples(st.just("look"), st.just(None)),
)


def name_of(tree: Unstructured) -> tuple[str, str]:
    metadata = tree["metadata"]
    where = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return tree["kind"], where + metadata["name"]


class There:
    """The objects, and a store that has seen all changes."""

    def __init__(self) -> None:
        self.things: dict[tuple[str, str], Any] = {}

    def put(self, name: tuple[str, str], thing: Any) -> None:
        known = self.things.get(name)
        if isinstance(thing, Pod) and isinstance(known, Pod) and not thing.is_terminal and not known.is_terminal:
            late = known.is_bound and not thing.is_bound and known.metadata.uid == thing.metadata.uid
            if is_pod_unchanged(known, thing) or late:
                return
        elif known is not None and is_unchanged(known, thing):
            return
        if isinstance(thing, Pod):
            self.things.pop(name, None)  # a changed pod gets a new row
        self.things[name] = thing


@given(st.lists(changes, max_size=25))
def test_changes_one_by_one_equal_all_at_once(sequence: list[tuple[str, Any]]) -> None:
    store, there = Store(), There()
    for tree in QUEUES:
        thing = decode_object(tree)
        there.put(name_of(tree), thing)
        store.apply([Put(thing)])
    for number, (what, detail) in enumerate(sequence):
        if what == "put":
            thing = decode_object(detail)
            there.put(name_of(detail), thing)
            store.apply([Put(thing)])
        elif what == "gone" and there.things:
            kind, key = list(there.things)[detail % len(there.things)]
            del there.things[kind, key]
            store.apply([Deleted(kind, key)])
        else:
            store.snapshot(NOW + number)
    fresh = Store()
    fresh.apply(map(Put, there.things.values()))
    kept, made = store.snapshot(NOW), fresh.snapshot(NOW)
    assert kept.workloads == made.workloads
    assert kept.notes == made.notes
    assert kept.queue_system == made.queue_system


def store_with(*trees: Unstructured) -> Store:
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in (*QUEUES, *trees))
    return store


def test_a_change_leaves_the_other_workloads_the_very_same_objects() -> None:
    store = store_with(node("n0", "a"), *(pod(f"p{i}", "queued", "n0", "", 0) for i in range(4)))
    before = {workload.key: workload for workload in store.snapshot(NOW).workloads}
    store.apply([Put(decode_object(pod("p0", "queued", "n0", "", 1)))])
    after = {workload.key: workload for workload in store.snapshot(NOW + 60).workloads}
    assert [key for key in after if after[key] is not before[key]] == ["eng/p0"]


def test_a_bind_that_was_sent_off_holds_quota_until_it_is_forgotten() -> None:
    store = store_with(node("n0", "a"), pod("p0", "queued", "", "", 0))
    store.apply([Assume("eng/p0", "n0")])
    held = store.snapshot(NOW).workloads[0].admission
    assert held is not None
    assert [part.usage for part in held.assignments] == [{"cpu": 1000, "pods": 1}]
    store.apply([Forget("eng/p0")])
    assert store.snapshot(NOW).workloads[0].admission is None


def test_what_nobody_has_dated_is_as_old_as_the_moment_of_asking() -> None:
    undated = job("j0", True, True, "")
    del undated["metadata"]["creationTimestamp"], undated["metadata"]["uid"]
    store = store_with(undated)
    assert [store.snapshot(moment).workloads[0].created for moment in (NOW, NOW + 5, NOW)] == [
        NOW,
        NOW + 5,
        NOW,
    ]


def test_lone_pods_are_spelled_out_as_workloads_once_something_else_is_decided_with_them() -> None:
    store = store_with(pod("p0", "alone", "", "", 0))
    snapshot = store.snapshot(NOW)
    assert snapshot.workloads == ()
    assert snapshot.queue_system.queues, "queues are known all the same"
    store.apply([Put(decode_object(pod("p1", "queued", "", "", 0)))])
    assert [workload.key for workload in store.snapshot(NOW).workloads] == ["eng/p0", "eng/p1"]


def test_a_pod_that_says_where_it_belongs_is_a_workload_without_any_other_object() -> None:
    store = store_with(pod("p0", "queued", "", "", 0))
    store.apply(Deleted(tree["kind"], name_of(tree)[1]) for tree in QUEUES)
    (waits,) = store.snapshot(NOW).workloads
    assert waits.hold_code == "KUEUE_QUEUE_MISSING"
    store.apply([Deleted("Pod", "eng/p0")])
    assert store.snapshot(NOW).workloads == ()


def test_of_two_nodes_with_one_hostname_the_first_by_name_counts() -> None:
    nodes = {name: node(name, "a") for name in ("n0", "n1")}
    for tree in nodes.values():
        tree["metadata"]["labels"]["kubernetes.io/hostname"] = "same"
    admitted = workload("w0", None, False)
    where = {"levels": ["kubernetes.io/hostname"], "domains": [{"values": ["same"], "count": 2}]}
    assigned = {"name": "main", "count": 2, "topologyAssignment": where}
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    admitted["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    admitted["status"] = {
        "conditions": [reserved],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
    }

    def host(store: Store) -> list[str]:
        (made,) = store.snapshot(NOW).workloads
        assert made.admission is not None
        return list(made.admission.assignments[0].nodes)

    for order in (("n0", "n1"), ("n1", "n0")):
        store = store_with(*QUEUES, admitted)
        for name in order:
            store.apply([Put(decode_object(nodes[name]))])
            store.snapshot(NOW)
        assert host(store) == ["n0"]
        store.apply([Deleted("Node", "n0")])
        assert host(store) == ["n1"], "the other one is still there"
