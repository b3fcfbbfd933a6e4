"""Single pods are placed in order: by the placement loop where they are plain, else one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from reference.builders import HOST, near, pod_affinity, pod_anti_affinity, selector, taint
from reference.overlays import overlay_on, pod_row, snapshot_of
from reference.park import gpu_node, node, pod
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import WorkloadClass
from windlass.model.meta import LabelSelector
from windlass.model.pod import ContainerPort, SchedulingGate
from windlass.model.reasons import INVALID_OBJECT, SCHEDULING_GATED
from windlass.model.refusal import BIND, Refusal, Refusals
from windlass.placement import single_pod_placer
from windlass.placement.kernel_arrays import MILLI_CPU, SCORER
from windlass.placement.kernels import scores
from windlass.placement.overlay import Overlay
from windlass.placement.single_pod_placer import NO_SINGLE_PODS, SinglePodPlacer, SinglePodResults, score_table_rows


@pytest.fixture(autouse=True)
def _hashes_wrap_around() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


class Calls:
    """Wraps the kernels and notes how many entries each call of the placement loop had."""

    def __init__(self, overlay: Overlay) -> None:
        self.sizes: list[int] = []
        self.turns: list[int] = []
        kernels, place = overlay.kernels, overlay.kernels.place_queue

        def noted(*arguments):
            self.sizes.append(len(arguments[6]))
            self.turns.append(arguments[8])
            return place(*arguments)

        overlay.kernels = type(kernels)(**{**vars(kernels), "place_queue": noted})


def queue_of(snapshot: Snapshot, *names: str):
    return np.array([pod_row(snapshot, name) for name in names], dtype=np.int64)


def place(snapshot: Snapshot, *names: str, policy: str = "pack") -> tuple[SinglePodResults, Overlay, Calls]:
    overlay = overlay_on(snapshot, policy)
    calls = Calls(overlay)
    return SinglePodPlacer(overlay, queue_of(snapshot, *names)).run(), overlay, calls


def nodes_of(results: SinglePodResults) -> list[int]:
    return results.node.tolist()


def test_plain_pods_go_through_one_call_and_are_recorded() -> None:
    snapshot = snapshot_of(gpu_node("n0", 1), gpu_node("n1", 2), pod("a", 1), pod("b", 2), pod("c", 1))
    results, overlay, calls = place(snapshot, "b", "a", "c")
    assert nodes_of(results) == [1, 0, -1]
    assert results.failure.tolist() == [-1, -1, 0]
    assert results.grant[:2].tolist() == [0x11, 0x1]
    assert calls.sizes == [3]
    assumed = [(found.pod.metadata.name, found.node, int(found.grant)) for found in overlay.assumed_pods()]
    assert assumed == [("b", 1, 0x11), ("a", 0, 0x1)]
    assert {count.kube: count.nodes for count in results.failures[0].verdict().counts}[
        "Insufficient nvidia.com/gpu"
    ] == 2
    assert results.held == {}


def test_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_pod_placer, "KERNEL_CHUNK", 2)
    names = [f"p{i}" for i in range(5)]
    snapshot = snapshot_of(gpu_node("n0", 2), *[pod(name, 1 if i != 1 else 4) for i, name in enumerate(names)])
    results, overlay, calls = place(snapshot, *names)
    assert calls.sizes == [2, 2, 1]
    assert calls.turns == [0, 2, 4]
    assert nodes_of(results) == [0, -1, 0, -1, -1]
    # Verdicts are counted over all calls: p3 and p4 fail in different ones.
    assert results.failure.tolist() == [-1, 0, -1, 1, 2]
    assert len(results.failures) == 3
    assert [found.shape.gpu.count for found in results.failures if found.shape.gpu] == [4, 1, 1]
    assert len(overlay.assumed_pods()) == 2


def test_turns_go_on_from_the_pods_decided_before() -> None:
    snapshot = snapshot_of(gpu_node("n0", 2), pod("a", 1))
    _, _, calls = place(msgspec.structs.replace(snapshot, decided_pods=17), "a")
    assert calls.turns == [17]


def test_pods_with_rules_about_others_split_the_queue() -> None:
    port = pod("h", 1, priority=1)
    container = port.spec.containers[0]
    held = msgspec.structs.replace(
        port,
        spec=msgspec.structs.replace(
            port.spec,
            containers=(msgspec.structs.replace(container, ports=(ContainerPort(container_port=1, host_port=1),)),),
        ),
    )
    other = msgspec.structs.replace(held, metadata=msgspec.structs.replace(held.metadata, name="i", uid="i"))
    plain = [pod(name, 1) for name in "abcd"]
    snapshot = snapshot_of(gpu_node("n0", 8), gpu_node("n1", 8), *plain, held, other)
    results, _, calls = place(snapshot, "a", "b", "h", "i", "c", "d")
    assert calls.sizes == [2, 2]
    assert calls.turns == [0, 4]
    assert nodes_of(results) == [0, 0, 0, 1, 0, 0], "the second finds the port taken"
    _, _, calls = place(snapshot, "h", "a")
    assert calls.sizes == [1]
    _, _, calls = place(snapshot, "a", "h")
    assert calls.sizes == [1]


def test_a_pod_with_affinity_makes_all_others_of_the_queue_depend_on_it() -> None:
    lonely = pod("l", 1, labels={"app": "x"}, affinity=pod_anti_affinity(near(HOST, selector(app="x"))))
    snapshot = snapshot_of(gpu_node("n0", 8), gpu_node("n1", 8), lonely, pod("a", 1, labels={"app": "x"}))
    results, _, calls = place(snapshot, "l", "a")
    assert nodes_of(results) == [0, 1]
    assert calls.sizes == []


def test_a_bound_pod_with_affinity_does_so_too() -> None:
    lonely = pod("l", 1, affinity=pod_anti_affinity(near(HOST, selector(app="x"))), on="n0")
    snapshot = snapshot_of(gpu_node("n0", 8), gpu_node("n1", 8), lonely, pod("a", 1, labels={"app": "x"}))
    results, _, calls = place(snapshot, "a")
    assert nodes_of(results) == [1]
    assert calls.sizes == []


@pytest.mark.parametrize(("effect", "node_of_pod", "calls_"), [("PreferNoSchedule", 1, []), ("NoSchedule", 1, [1])])
def test_soft_taints_are_a_matter_of_preference(effect: str, node_of_pod: int, calls_: list[int]) -> None:
    snapshot = snapshot_of(gpu_node("n0", 1, taints=[taint("x", effect=effect)]), gpu_node("n1", 8), pod("a", 1))
    results, _, calls = place(snapshot, "a")
    assert nodes_of(results) == [node_of_pod]
    assert calls.sizes == calls_


def test_a_refused_bind_concerns_its_pod_only() -> None:
    snapshot = snapshot_of(gpu_node("n0", 2), gpu_node("n1", 8), *[pod(name, 1) for name in "abc"])
    binds = {"default/b": (Refusal(BIND, "default/b", 0, node="n0"),)}
    snapshot = msgspec.structs.replace(snapshot, refusals=Refusals(binds=binds))
    results, _, calls = place(snapshot, "a", "b", "c")
    assert nodes_of(results) == [0, 1, 0]
    assert calls.sizes == [1, 1]


def test_pods_that_are_not_ready_are_held_without_a_look_at_nodes() -> None:
    gated = pod("g", 1, scheduling_gates=(SchedulingGate(name="wait"),))
    broken = pod("x", asks={"memory": "much"})
    snapshot = snapshot_of(gpu_node("n0", 8), gated, broken, pod("a", 1))
    results, _, _ = place(snapshot, "g", "a", "x")
    assert nodes_of(results) == [-1, 0, -1]
    assert {at: reason.code for at, reason in results.held.items()} == {
        0: SCHEDULING_GATED.code,
        2: INVALID_OBJECT.code,
    }
    assert results.failure.tolist() == [-1, -1, -1]


def test_a_pod_that_finds_no_node_by_itself_is_explained() -> None:
    beside = pod("p", 1, affinity=pod_affinity(near(HOST, selector(app="none"))))
    snapshot = snapshot_of(gpu_node("n0", 8), beside, pod("a", 1))
    results, overlay, _ = place(snapshot, "p", "a", "p")
    assert nodes_of(results) == [-1, 0, -1]
    assert results.failure.tolist() == [0, -1, 1]
    assert [found.code for found in results.failures] == [results.failures[0].code] * 2
    assert len(overlay.assumed_pods()) == 1


def test_an_empty_queue_has_no_results() -> None:
    results, _, calls = place(snapshot_of(node("n")))
    assert [len(array) for array in (results.node, results.grant, results.failure)] == [0, 0, 0]
    assert calls.sizes == []
    assert [len(array) for array in NO_SINGLE_PODS[:5]] == [0] * 5


# Rows of the score table


def test_pods_of_one_shape_share_a_row_and_unreadable_ones_have_none() -> None:
    broken = pod("x", asks={"memory": "much"})
    snapshot = snapshot_of(node("n"), pod("a", cpu="1"), broken, pod("b", cpu="2"), pod("c", cpu="1"))
    overlay = overlay_on(snapshot)
    rows = score_table_rows(overlay, queue_of(snapshot, "a", "x", "b", "c"))
    assert rows[1] == -1
    assert [int(overlay.table.shapes[row, MILLI_CPU]) for row in rows[[0, 2, 3]]] == [1000, 2000, 1000]
    assert rows[0] == rows[3]
    only = score_table_rows(overlay_on(snapshot), queue_of(snapshot, "b"))
    assert only.tolist() == [0], "no row for shapes that are not in the queue"


def test_classes_of_workloads_give_pods_of_one_shape_rows_of_their_own() -> None:
    spread = WorkloadClass("s", LabelSelector(match_labels={"kind": "server"}), "spread")
    broken = pod("x", asks={"memory": "much"})
    snapshot = snapshot_of(node("n"), pod("a"), broken, pod("b", labels={"kind": "server"}), pod("c"))
    overlay = overlay_on(snapshot, "pack", classes=[spread])
    rows = score_table_rows(overlay, queue_of(snapshot, "a", "x", "b", "c"))
    assert rows[1] == -1
    assert [int(overlay.table.shapes[row, SCORER]) for row in rows[[0, 2, 3]]] == [
        scores.PACK,
        scores.SPREAD,
        scores.PACK,
    ]
    assert rows[0] == rows[3]
