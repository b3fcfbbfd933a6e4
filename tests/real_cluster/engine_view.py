"""What the engine says about the same objects: which nodes a pod can go to, why not the others, and which it takes.

Used by the comparison with kube-scheduler. Asks the parts that `decide` itself asks, so that nothing is rebuilt here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from tests.real_cluster.api import Object

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_kind
from windlass.model.reasons import FIRST_RESOURCE_BIT, reason_of_bit
from windlass.placement.filters import prefilter_pod
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.preferences import preference_scores
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays


class EngineView:
    def __init__(self, documents: Iterable[tuple[Object, str, str]]) -> None:
        self.store = Store()
        self.store.apply(Put(decode_kind(msgspec.json.encode(raw), kind, version)) for raw, kind, version in documents)
        self.snapshot = snapshot = self.store.snapshot()
        self.names = snapshot.nodes.names
        table = ScoreTable(
            snapshot,
            mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state),
            ScorerSelector(SCORERS["first-fit"]),
        )
        rule = make_scoring_rule(PlacementConfig("first-fit"), snapshot.node_state)
        with np.errstate(over="ignore"):
            self._overlay = Overlay(snapshot, table, rule, jit.kernels(small=True))
        self._rows = self._overlay.pod_rows()

    def feasible(self, key: str) -> frozenset[str]:
        """The nodes that could take the pod."""
        return frozenset(name for name, why in self.reasons(key).items() if not why)

    def held(self, key: str) -> str:
        """Why no node is looked at for the pod; '' if nodes are."""
        row = self._rows[key]
        if key in self.snapshot.unreadable:
            return self.snapshot.unreadable[key]
        held = prefilter_pod(self.snapshot.pods.objects[row], self.snapshot.listers)
        return held.kube_words if held else ""

    def reasons(self, key: str) -> dict[str, list[str]]:
        """For every node the names of the reasons against it."""
        held = self.held(key)
        if held:
            return {name: [held] for name in self.names}
        _, why = self._look(key)
        requests = self.snapshot.shapes[int(self.snapshot.pods.shape[self._rows[key]])].requests

        def words(mask: int) -> list[str]:
            bits = [bit for bit in range(64) if mask >> bit & 1]
            return [
                reason_of_bit(bit).name if bit < FIRST_RESOURCE_BIT else requests[bit - FIRST_RESOURCE_BIT][0]
                for bit in bits
            ]

        return {name: words(int(cell)) for name, cell in zip(self.names, why, strict=True)}

    def preferences(self, key: str) -> dict[str, int] | None:
        """What the pod's and its neighbours' wishes come to on every node that could take it; None without any."""
        pod, why = self._look(key)
        scores = preference_scores(pod, self.snapshot.nodes, self._overlay.inter_pod_rules(), why == 0)
        if scores is None:
            return None
        return {self.names[row]: int(scores[row]) for row in np.flatnonzero(why == 0)}

    def chosen(self, policy: str = "windlass") -> dict[str, str]:
        """Pod → node as `decide` decides now."""
        plan = decide(self.snapshot, EngineConfig(PlacementConfig(policy)), 0)
        return {bind.pod: bind.node for bind in plan.binds}

    def _look(self, key: str):  # type: ignore[no-untyped-def]
        row = self._rows[key]
        pod = self.snapshot.pods.objects[row]
        shape = self.snapshot.shapes[int(self.snapshot.pods.shape[row])]
        with np.errstate(over="ignore"):
            return pod, self._overlay.reasons(pod, self._overlay.table.row(shape, self.snapshot))
