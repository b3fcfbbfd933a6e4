"""The engine decides the same with a used cache and an empty one: queues, gangs, topology, evictions, lost nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.park import in_bytes
from windlass.cluster.delta import Assume, Deleted, Delta, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass_bench.engine import synthetic_objects

NOW = 1_767_229_200
few = settings(max_examples=settings.default.max_examples // 4)
LEVELS = (synthetic_objects.BLOCK, synthetic_objects.RACK, HOSTNAME_LABEL)
POLICY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def queues(gpus: int) -> list[object]:
    quota = {"cpu": "100", GPU_RESOURCE: str(gpus)}
    made = [synthetic_objects.cluster_queue(name, quota, cohortName="all", preemption=POLICY) for name in ("a", "b")]
    return synthetic_objects.queue_objects(made, topology=LEVELS)


def work(number: int, queue: str, size: int, gpus: int, priority: int, close: bool) -> list[Pod]:
    """A lone pod where the queue is empty, else a pod or a gang in it."""
    labels = {QUEUE_NAME_LABEL: queue} if queue else {}
    annotations = {}
    if queue and size > 1:
        labels[KUEUE_POD_GROUP_NAME] = f"g{number}"
        annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(size)} | (
            {REQUIRED_TOPOLOGY_ANNOTATION: synthetic_objects.RACK} if close else {}
        )
    requests = {"cpu": "1", GPU_RESOURCE: str(gpus)}
    template = synthetic_objects.pod_template(requests, labels=labels, annotations=annotations, priority=priority)
    return synthetic_objects.make_pods(template, size if queue else 1, f"w{number}")


arrivals = st.tuples(
    st.sampled_from(["", "a", "a", "b"]),
    st.integers(1, 3),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([0, 100]),
    st.booleans(),
)
steps = st.one_of(
    st.tuples(st.just("come"), arrivals),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("quota"), st.sampled_from([4, 16])),
    st.tuples(st.just("node"), st.integers(0, 3)),
    st.tuples(st.just("confirm"), st.none()),
)


class Cluster:
    def __init__(self) -> None:
        self.store, self.pods, self.sent = Store(), dict[str, Pod](), dict[str, str]()
        self.nodes = synthetic_objects.gpu_nodes(4, nodes_per_rack=2)
        self.store.apply(map(Put, [*self.nodes, *queues(16)]))
        self._number = 0

    def step(self, what: str, detail: Any) -> None:
        deltas: list[Delta] = []
        if what == "come":
            self._number += 1
            pods = work(self._number, *detail)
            self.pods |= {pod.key: pod for pod in pods}
            deltas = [Put(pod) for pod in pods]
        elif what == "end" and self.pods:
            deltas = [self._gone(list(self.pods)[detail % len(self.pods)])]
        elif what == "quota":
            deltas = [Put(obj) for obj in queues(detail)]
        elif what == "node":
            node = self.nodes[detail]
            known = node.name in self.store.nodes_for_grouping
            deltas = [Deleted("Node", node.name) if known else Put(node)]
        elif what == "confirm":
            deltas = [Put(synthetic_objects.bound_pod(self.pods[key], node)) for key, node in self.sent.items()]
            self.sent = {}
        self.store.apply(deltas)

    def carry_out(self, plan: Plan) -> None:
        deltas: list[Delta] = [self._gone(key) for evict in plan.evicts for key in evict.pods]
        binds = [bind for bind in plan.binds if not bind.after and bind.pod in self.pods]
        self.sent |= {bind.pod: bind.node for bind in binds}
        self.store.apply([*deltas, *(Assume(bind.pod, bind.node, bind.devices) for bind in binds)])

    def _gone(self, key: str) -> Deleted:
        self.pods.pop(key, None)
        self.sent.pop(key, None)
        return Deleted("Pod", key)


@few
@given(st.lists(steps, min_size=2, max_size=14))
def test_a_memo_changes_no_plan(sequence: list[tuple[str, Any]]) -> None:
    cluster, memo = Cluster(), EngineCache()
    for number, (what, detail) in enumerate(sequence):
        cluster.step(what, detail)
        snapshot, now = cluster.store.snapshot(NOW + number), NOW + number
        plan = decide(snapshot, EngineConfig(), now, memo)
        assert in_bytes(plan) == in_bytes(decide(snapshot, EngineConfig(), now))
        cluster.carry_out(plan)


def test_quota_holds_back_what_assumed_binds_leave_no_room_for() -> None:
    """Between a bind and its confirmation, the quota stays in use."""
    cluster = Cluster()
    cluster.store.apply(map(Put, queues(2)))
    for number in (1, 2, 3):
        pods = work(number, "a", 1, 2, 0, False)
        cluster.pods |= {pod.key: pod for pod in pods}
        cluster.store.apply(map(Put, pods))
    first = decide(cluster.store.snapshot(NOW), EngineConfig(), NOW)
    assert [bind.pod for bind in first.binds] == ["bench/w1-000000", "bench/w2-000000"]  # its own, and b's
    cluster.carry_out(first)
    second = decide(cluster.store.snapshot(NOW), EngineConfig(), NOW)
    assert second.binds == ()
    assert [hold.verdict.code for hold in second.holds] == ["KUEUE_QUOTA_INSUFFICIENT"]
