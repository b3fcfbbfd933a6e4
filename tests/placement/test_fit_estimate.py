"""`could_place` never rejects a workload that would be placed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.test_queued_and_unqueued import FLAVOR, node, pod, queue

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.configuration import ResourceRules
from windlass.model.queue import QueueSystem
from windlass.model.unstructured import Unstructured
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PodSetChoice

RACK = "topology.kubernetes.io/rack"


def racked(number: int) -> Unstructured:
    made = node(f"n{number}")
    made["metadata"]["labels"][RACK] = f"rack-{number // 2}"
    return made


def placer_of(trees: list[Unstructured]) -> WorkloadPlacer:
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in trees)
    snapshot = store.snapshot(0)
    table = ScoreTable(
        snapshot,
        mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state),
        ScorerSelector(SCORERS["windlass"]),
    )
    rule = make_scoring_rule(PlacementConfig("windlass"), snapshot.node_state)
    overlay = Overlay(snapshot, table, rule, jit.kernels(small=True))
    return WorkloadPlacer(overlay, QueueSystem(), snapshot.workloads, ResourceRules())


@given(st.data())
def test_what_would_be_placed_is_never_called_impossible(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 4))
    running: list[Unstructured] = []
    for number in range(nodes):
        left = 8
        for i in range(data.draw(st.integers(0, 3))):
            gpus = data.draw(st.integers(1, 4))
            if gpus <= left:
                left -= gpus
                running.append(pod(f"r{number}-{i}", gpus, 0, f"n{number}"))
    # The store lists workloads, single pods among them, only where something is queued.
    queued = [FLAVOR, *queue("q", 8), pod("z", 1, queue="q")]
    with np.errstate(over="ignore"):
        placer = placer_of([*map(racked, range(nodes)), *running, *queued])
        assert len(placer.placed_workloads) == len(running)
        template = decode_object(pod("ask", data.draw(st.integers(1, 8))))
        count = data.draw(st.integers(1, 4))
        wanted = TopologyRequest("required", RACK) if data.draw(st.booleans()) else None
        request = Workload("default/ask", "Job", (PodSet("main", count, template, topology=wanted),))  # type: ignore[arg-type]
        choices = (PodSetChoice("main", count, {}),)
        present = list(placer.placed_workloads)
        removed = data.draw(st.sets(st.sampled_from(present))) if present else set()
        victims = [Workload(key, "Pod", request.pod_sets) for key in sorted(removed)]
        could = placer.could_place(request, choices, victims)
        for victim in victims:
            placer.remove(victim)
        assert could or not placer.place(request, choices).ok
