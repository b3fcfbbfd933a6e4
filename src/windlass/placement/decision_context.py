"""The workloads of one decision and the state that it works on, shared by all stages after `collect`.

`engine.decide` makes it where there are gangs, queued workloads, run limits or reservations. The stages read the pieces
and place them with `placer`; `timeplan` sees the same state at later times through `occupancy`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import msgspec
from msgspec.structs import replace

from windlass.cluster.node_state import Ints
from windlass.cluster.pod_table import PENDING
from windlass.model.configuration import ResourceRules
from windlass.model.workload import Workload
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.context import Preemption
from windlass.placement.stop_conditions import Readiness
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.placement.workload_pieces import pieces_to_decide
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.config import QueueConfig


class GangSettings(msgspec.Struct, frozen=True):
    grace_seconds: int = 300
    """How long a gang may run below its minimum before all of it is stopped."""
    resources: ResourceRules = ResourceRules()
    """How pod requests are converted into quota usage."""
    planned_starts: PlannedStartSettings = PlannedStartSettings()
    readiness: Readiness | None = None
    """How long admitted workloads may take to have their pods ready; None: as long as they like."""
    topology_levels: tuple[str, ...] = ()
    """Node labels that are topology levels where no Topology object names them; empty: the default list."""


class DecisionContext:
    def __init__(
        self,
        overlay: Overlay,
        workloads: Iterable[Workload],
        config: QueueConfig,
        now: int,
        settings: GangSettings,
        preemption: Preemption,
        refused: Ints,
    ) -> None:
        """`workloads` are those to decide on; `preemption` has the victims that single pods have evicted so far.
        `refused`: rows of single pods that come before all of them and that no node takes."""
        self.overlay, self.snapshot, self.system = overlay, overlay.snapshot, overlay.snapshot.queue_system
        self.config, self.now, self.settings, self.preemption = config, now, settings, preemption
        self.workloads = {workload.key: workload for workload in workloads}
        self.pieces = pieces_to_decide(self.system, self.workloads.values(), overlay.cache)
        if preemption.victims or self.snapshot.refusals:
            self.pieces = [self._with_eviction_state(piece) for piece in self.pieces]
        self.piece_by_key = {piece.key: piece for piece in self.pieces}
        self.running_single_pods = [
            workload
            for workload in self.snapshot.workloads
            if workload.key not in self.workloads and workload.admission
        ]
        """Running workloads that are not decided on here."""
        self.placer = WorkloadPlacer(
            overlay,
            self.system,
            self.pieces,
            settings.resources,
            preemption.victim_nodes(),
            settings.topology_levels,
        )
        self.occupancy = Occupancy(overlay, self.placer, self.system, now, settings.planned_starts)
        self.pod_row = overlay.pod_rows()
        self._refused = refused

    def _with_eviction_state(self, piece: Workload) -> Workload:
        """Marked as evicting if it is a victim, as not evictable if the API server has just refused its eviction."""
        if piece.key in self.preemption.victims:
            return replace(piece, evicting=True)
        refused = self.snapshot.refusals.forbid_eviction(key for pod_set in piece.pod_sets for key in pod_set.pod_keys)
        return replace(piece, evictable=False) if refused else piece

    def mark_evicting(self, keys: Collection[str]) -> None:
        """Those that a stage of this decision has evicted before the cycles of queues: they cost nothing more."""
        self.pieces = [replace(piece, evicting=True) if piece.key in keys else piece for piece in self.pieces]
        self.piece_by_key = {piece.key: piece for piece in self.pieces}

    @cached_property
    def refused_single_pods(self) -> list[Workload]:
        """Those that come before all that is decided on here and found no node; of pods that are alike, the first."""
        pods = self.snapshot.pods
        kinds = {(int(pods.shape[row]), int(pods.priority[row])): row for row in reversed(self._refused.tolist())}
        keys = {pods.keys[row] for row in kinds.values()}
        return [workload for workload in self.snapshot.workloads if workload.key in keys] if keys else []

    @cached_property
    def pods_with_rules(self) -> frozenset[str]:
        """Pending pods on which more than a node's own state decides; all pods with gates or claims are among them."""
        pods = self.snapshot.pods
        rows = pods.pending()
        return frozenset(pods.keys[row] for row in rows[pods.node_local[rows] == 0].tolist())

    def waiting_pods(self, piece: Workload) -> list[list[str]]:
        """Per pod set, the keys of its existing pods without a node."""
        node = self.snapshot.pods.node
        return [
            [key for key in pod_set.pod_keys if key in self.pod_row and node[self.pod_row[key]] == PENDING]
            for pod_set in piece.pod_sets
        ]
