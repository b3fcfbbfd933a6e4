"""Whatever a decision fails on, everything else is decided on as if that did not exist.

A bug is put into one stage at a time, which raises as soon as it meets one certain unit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.engine.plain_objects import node as plain_node
from tests.engine.plain_objects import pod as plain_pod
from tests.invariants.crowds import KUEUE, NOW, Crowd

from windlass import engine, isolation
from windlass.cluster import shape
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.cluster.workloads import workload_index
from windlass.engine import EngineConfig
from windlass.isolation import IsolatingEngine
from windlass.model.bug import INTERNAL_ERROR
from windlass.model.codec import decode_object
from windlass.model.decision_document import decision_document
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.placement import preempted_piece
from windlass.placement.explain.advisor import Advisor
from windlass.placement.preemption.victim_units import _Finder
from windlass.placement.timeplan.start_planner import StartPlanner
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing import queue_sort
from windlass.queueing.nominator import Nominator

ODD = "odd/culprit"
GPU = "nvidia.com/gpu"


class Broken(RuntimeError):
    """What the bug raises; it names another tenant's pod."""

    def __init__(self) -> None:
        super().__init__("team/secret")


def pod(name: str, gpus: int = 1, **metadata: Any) -> Unstructured:
    limits = {GPU: str(gpus)}
    spec = {"priority": 5, "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]}
    meta = {"name": name, "namespace": "odd", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def single(gpus: int) -> list[Unstructured]:
    return [pod("culprit", gpus)]


def gang(gpus: int) -> list[Unstructured]:
    meta: Unstructured = {
        "labels": {f"{KUEUE}/pod-group-name": "culprit"},
        "annotations": {f"{KUEUE}/pod-group-total-count": "2", "windlass.dev/duration": "1h"},
    }
    return [pod("a", gpus, **meta), pod("b", gpus, **meta)]


def queued(gpus: int) -> list[Unstructured]:
    labels = {f"{KUEUE}/queue-name": "odd-queue"}
    return [pod("culprit", gpus, labels=labels)]


def odd_queue(objects: list[Unstructured]) -> Unstructured:
    """The odd tenant has a way into the same quota as the others."""
    queue = next(tree for tree in objects if tree["kind"] == "ClusterQueue")
    meta = {"name": "odd-queue", "namespace": "odd"}
    spec = {"clusterQueue": queue["metadata"]["name"]}
    return {"apiVersion": f"{KUEUE}/v1beta2", "kind": "LocalQueue", "metadata": meta, "spec": spec}


def crowd(seed: int) -> list[Unstructured]:
    """A cluster that is fuller than it should be, with queues."""
    made = Crowd(Random(seed))
    made.add_nodes()
    made.add_queues()
    for _ in range(5):
        made.add_lone(on=made.rng.choice(made.nodes))
    for _ in range(4):
        made.add_lone()
    for _ in range(4):
        made.add_gang()
    return [*made.objects, odd_queue(made.objects)]


class Trap:
    """Raises when a function is called with the culprit among its arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.sprung = 0

    def put(self, owner: Any, name: str, meets: Callable[..., bool]) -> None:
        real = getattr(owner, name)

        def trapped(*arguments: Any, **named: Any) -> Any:
            if meets(*arguments, **named):
                self.sprung += 1
                raise Broken
            return real(*arguments, **named)

        self._monkeypatch.setattr(owner, name, trapped)


def _is_odd(key: str) -> bool:
    return key.startswith("odd/")


def _has_odd_row(overlay: Any, rows: Any, *_: Any) -> bool:
    return any(_is_odd(overlay.snapshot.pods.keys[row]) for row in rows.tolist())


STAGES: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "read a pod": (shape, "read_requests", lambda pod, *_: pod.metadata.namespace == "odd"),
    "find its unit": (workload_index.UnitFinder, "unit_of", lambda _, pod: pod.metadata.namespace == "odd"),
    "build its workload": (workload_index, "build_workload", lambda unit, _: _is_odd(unit.key.key)),
    "collect": (engine, "is_single_pod", lambda workload: _is_odd(workload.key)),
    "order": (queue_sort, "_sort_key", lambda workload: _is_odd(workload.key)),
    "quota": (Nominator, "nominate", lambda _, pending: _is_odd(pending.workload.key)),
    "place": (WorkloadPlacer, "place", lambda _, workload, choices: _is_odd(workload.key)),
    "place single pods": (engine, "place_single_pods", _has_odd_row),
    "preempt": (preempted_piece, "preempt_for_gang", lambda piece, *_: _is_odd(piece.key)),
    "plan ahead": (StartPlanner, "plan", lambda _, outcomes: any(_is_odd(item.workload) for item in outcomes)),
    "hold": (Advisor, "refine_hold", lambda _, hold: _is_odd(hold.workload)),
    "explain": (Advisor, "explain_hold", lambda _, hold: _is_odd(hold.workload)),
}
FORMS: dict[str, Callable[[int], list[Unstructured]]] = {"single": single, "gang": gang, "queued": queued}


def decided(objects: list[Unstructured]) -> Plan:
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in objects)
    return IsolatingEngine(EngineConfig(max_explained_holds=8)).decide(store.snapshot(NOW), NOW)


def of_others(plan: Plan) -> list[Unstructured]:
    documents = [decision_document(decision) for decision in plan.decisions]
    return [tree for tree in documents if not _is_odd(str(tree.get("workload") or tree.get("pod")))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stage", STAGES)
def test_all_others_are_decided_on_as_if_it_did_not_exist(
    stage: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = 0
    for seed in range(4):
        others = crowd(seed)
        odd = FORMS[form](1 + 7 * (seed % 2))
        with monkeypatch.context() as patched:
            trap = Trap(patched)
            trap.put(*STAGES[stage])
            plan = decided([*odd, *others])
        if not trap.sprung:
            continue
        met += 1
        assert of_others(plan) == of_others(decided(others if stage != "explain" else [*odd, *others]))
        held = [hold.verdict for hold in plan.holds if _is_odd(hold.workload)]
        assert held, "it is told"
        for verdict in held if stage != "explain" else ():
            assert verdict.code in (INTERNAL_ERROR, "INVALID_OBJECT")
            assert "a bug in Windlass" in verdict.public_message
            assert "secret" not in verdict.message
    assert bool(met) == ((stage, form) not in NEVER_MET)


NEVER_MET = {
    ("quota", "single"),
    ("quota", "gang"),
    ("place single pods", "gang"),
    ("place single pods", "queued"),
    ("preempt", "queued"),
}
"""Stages that a form never comes to."""


def test_a_running_pod_on_which_it_fails_for_all_preemptors_is_to_blame_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [plain_node("n1"), plain_node("n2")]
    running = [plain_pod("victim", 8, on="n1"), plain_pod("runner", 8, on="n2", metadata={"namespace": "odd"})]
    waiting = [plain_pod(f"high-{number}", 8, priority=10) for number in range(3)]
    trap = Trap(monkeypatch)
    trap.put(_Finder, "_loss", lambda self, rows, workload: any(_is_odd(self._pods.keys[row]) for row in rows))
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in [*nodes, *running, *waiting])
    plan, _, faults = IsolatingEngine(EngineConfig()).decide_without_explanations(store.snapshot(NOW), NOW)
    assert trap.sprung
    assert [(fault.key, fault.is_pending) for fault in faults] == [("odd/runner", False)]
    assert [(evict.workload, evict.for_workload) for evict in plan.evicts] == [("default/victim", "default/high-0")]
    assert {hold.workload for hold in plan.holds} == {"default/high-1", "default/high-2"}
    assert INTERNAL_ERROR not in {hold.verdict.code for hold in plan.holds}


def test_an_earlier_decision_that_left_something_broken_sets_nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed decision left half computed in the cache must not reach the next one."""
    real, caches = isolation.decide_without_explanations, []

    def decide(snapshot: Any, config: Any, now: int, cache: Any = None) -> Any:
        if caches and cache is caches[0]:
            raise Broken
        caches.append(cache)
        return real(snapshot, config, now, cache)

    monkeypatch.setattr(isolation, "decide_without_explanations", decide)
    store, engine_of_it = Store(), IsolatingEngine(EngineConfig())
    store.apply(Put(decode_object(tree)) for tree in [plain_node("n1"), plain_pod("p", 1)])
    for _ in range(2):
        plan, _, faults = engine_of_it.decide_without_explanations(store.snapshot(NOW), NOW)
        assert ([bind.pod for bind in plan.binds], faults) == (["default/p"], ())
    assert caches[1] is not caches[0]
