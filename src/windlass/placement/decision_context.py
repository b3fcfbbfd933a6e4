"""The workloads of one decision and the state that is decided on: what every stage behind `collect` shares.

Made by `engine.decide` where there are gangs, queued work or anything that has to do with time. The stages read the
pieces from here and try things on the site; `timeplan` sees the same site through the room, as it will be later.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from windlass.cluster.pod_table import PENDING
from windlass.cluster.workloads.pod_sets import KUEUE_GATES
from windlass.model.configuration import ResourceRules
from windlass.model.workload import Workload
from windlass.placement.overlay import Overlay
from windlass.placement.pieces import pieces_to_decide
from windlass.placement.preemption.context import Preemption
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.config import QueueConfig


class GangSettings(msgspec.Struct, frozen=True):
    grace_seconds: int = 300
    """How long a gang may run below its minimum before it is stopped whole."""
    resources: ResourceRules = ResourceRules()
    """How requests become what is counted against quota."""
    planned_starts: PlannedStartSettings = PlannedStartSettings()
    """Planned starts and reservations."""
    topology_levels: tuple[str, ...] = ()
    """Topology levels (node labels) where no Topology object names them; empty: the default list."""


class DecisionContext:
    def __init__(
        self,
        overlay: Overlay,
        workloads: Iterable[Workload],
        config: QueueConfig,
        now: int,
        settings: GangSettings,
        preemption: Preemption,
    ) -> None:
        """`workloads` are those to decide on; `preemption` knows who goes already, for lone pods."""
        self.overlay, self.snapshot, self.system = overlay, overlay.snapshot, overlay.snapshot.queue_system
        self.config, self.now, self.settings, self.preemption = config, now, settings, preemption
        self.workloads = {workload.key: workload for workload in workloads}
        self.pieces = [
            self._as_it_goes(piece)
            for piece in pieces_to_decide(self.system, self.workloads.values(), overlay.cache)
        ]
        self.piece_by_key = {piece.key: piece for piece in self.pieces}
        self.running_single_pods = [
            one for one in self.snapshot.workloads if one.key not in self.workloads and one.admission
        ]
        """Those that run and that nothing is decided on: lone pods."""
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

    def _as_it_goes(self, piece: Workload) -> Workload:
        """Marked if it goes already, or may not go since the API server has just refused it."""
        if piece.key in self.preemption.victims:
            return msgspec.structs.replace(piece, evicting=True)
        refused = self.snapshot.refusals.forbid_eviction(
            key for one in piece.pod_sets for key in one.pod_keys
        )
        return msgspec.structs.replace(piece, evictable=False) if refused else piece

    @cached_property
    def gated_pods(self) -> frozenset[str]:
        """Pods that wait with a scheduling gate that is not Kueue's own."""
        pods = self.snapshot.pods
        rows = pods.pending()
        return frozenset(
            pods.keys[row]
            for row in rows[pods.node_local[rows] == 0].tolist()
            if any(gate.name not in KUEUE_GATES for gate in pods.objects[row].spec.scheduling_gates)
        )

    def waiting_pods(self, piece: Workload) -> list[list[str]]:
        """Per pod set, the pods that exist and have no node."""
        node = self.snapshot.pods.node
        return [
            [key for key in pod_set.pod_keys if key in self.pod_row and node[self.pod_row[key]] == PENDING]
            for pod_set in piece.pod_sets
        ]
