"""A decision as it was left: what explanations are worked out on.

`placement.decisions` makes one at the end of its decision, `engine` one for lone pods where there are no workloads. It
lives as long as the plan. The score table is the memo's, and the next decision uses it: from then on `is_current` is
false, and nothing may be tried here any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.node_columns import Bools
from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.workloads.workload_attributes import WorkloadIdentity, run_limit
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, Workload
from windlass.placement.gang import PodPlacement
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan.occupancy import Occupancy, Occupant
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.placement.timeplan.start_planner import PlannedOutcomes
from windlass.placement.workload_pieces import is_above_minimum, workload_key
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Admitted, Held, Outcome
from windlass.queueing.placement_interface import PodSetChoice

NO_OUTCOMES = PlannedOutcomes([], [], {}, [])
MAX_SINGLE_PODS = 4096
"""So many pods that were placed on their own are counted among those whose end might help."""
SMALL_CLUSTER_NODES = 512
"""Up to so many nodes plain Python does; beyond, it is worth loading the compiled kernels."""


class PostDecisionState:
    def __init__(
        self,
        occupancy: Occupancy,
        queues: QueueConfig,
        pieces: Mapping[str, Workload],
        found: PlannedOutcomes = NO_OUTCOMES,
    ) -> None:
        self.occupancy, self.queues, self.planned_starts = occupancy, queues, found.planned_starts
        self.pieces = pieces
        self.basis = {key: outlook.basis for key, outlook in found.outlooks.items() if outlook.basis}
        """Workload with a planned start → those whose end makes room for it."""
        self._outcomes = found.outcomes
        self.turns = {
            one.workload: one.decided_in_cycle for one in found.outcomes if isinstance(one, Admitted | Held)
        }
        self._waiting = _waiting_pieces(found.outcomes, pieces)
        self._epoch = occupancy.overlay.table.epoch
        self._is_counted = False

    @property
    def overlay(self) -> Overlay:
        return self.occupancy.overlay

    @property
    def placer(self) -> WorkloadPlacer:
        return self.occupancy.placer

    @property
    def now(self) -> int:
        return self.occupancy.now

    @property
    def is_current(self) -> bool:
        """Nobody has used the table since."""
        return self._epoch == self.occupancy.overlay.table.epoch

    def select_kernels(self) -> None:
        """Those that will be done first: every trial looks at every node."""
        overlay = self.overlay
        overlay.kernels = jit.kernels(small=overlay.snapshot.nodes.size <= SMALL_CLUSTER_NODES)

    def count_admitted(self) -> None:
        """Whoever was admitted in this decision holds quota from now on."""
        if self._is_counted:
            return
        self._is_counted = True
        for one in self._outcomes:
            if isinstance(one, Admitted) and one.workload in self.pieces:
                self.occupancy.add_placed(self.pieces[one.workload], one.choices)
        self._seat_lone_pods()

    def _seat_lone_pods(self) -> None:
        """Those that were placed on their own, in the fast loop, stand in somebody's way like any other."""
        seats = self.placer.placed_workloads
        members = {key for piece in self.pieces.values() for one in piece.pod_sets for key in one.pod_keys}
        for placing in self.overlay.assumed_pods()[:MAX_SINGLE_PODS]:
            key = placing.pod.key
            if key not in members and key not in seats and seats.pod_row(key) is not None:
                seats.add_placed(key, [PodPlacement(0, 0, placing)], ("main",))
                self.occupancy.add_placed(single_pod_workload(placing.pod), (PodSetChoice("main", 1, {}),))

    def evicted_pods(self) -> frozenset[str]:
        """Running pods that this decision evicts."""
        objects = self.overlay.snapshot.pods.objects
        return frozenset(objects[row].key for row in self.overlay.removed_rows())

    def running(self) -> list[Occupant]:
        """Those who run and stay, and those who were placed in this decision."""
        gone, seats = self.overlay.removed_rows(), self.placer.placed_workloads
        return [
            one
            for one in self.occupancy.occupants()
            if not gone.intersection(seats[one.workload.key].running_rows)
        ]

    def pending_piece(self, key: str) -> Workload | None:
        """The workload that waits, or the part of it that does; a pod on its own is one, too."""
        found = self.pieces.get(self._waiting.get(key, key))
        if found is not None:
            return found if found.admission is None else None
        snapshot = self.overlay.snapshot
        row = self.placer.placed_workloads.pod_row(key)
        if row is None:
            return None
        return (
            None
            if int(snapshot.pods.shape[row]) == UNREADABLE
            else single_pod_workload(snapshot.pods.objects[row])
        )

    def nodes_of_queue(self, piece: Workload) -> Bools:
        """Nodes of the flavors that its queue has; all nodes where it is in none."""
        facts, node = self.overlay.snapshot.nodes, self.occupancy.cluster_queue_of(piece)
        if node is None:
            return np.ones(facts.size, dtype=np.bool_)
        names = {quotas.flavor for group in node.spec.resource_groups for quotas in group.flavors}
        inside: Bools = np.zeros(facts.size, dtype=np.bool_)
        for name in names & self.occupancy.system.flavors.keys():
            inside |= facts.matching_labels(self.occupancy.system.flavors[name].node_labels)
        return inside


def _waiting_pieces(outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> dict[str, str]:
    """Workload → the piece of it that waits: what its minimum lacks before a member above it; and each such member's
    pod → its piece."""
    found: dict[str, str] = {}
    for one in outcomes:
        if not isinstance(one, Held):
            continue
        if not is_above_minimum(one.workload):
            found[workload_key(one.workload)] = one.workload
        elif one.workload in pieces:
            found.setdefault(workload_key(one.workload), one.workload)
            found |= {pod: one.workload for part in pieces[one.workload].pod_sets for pod in part.pod_keys}
    return found


def single_pod_workload(pod: Pod) -> Workload:
    one = PodSet("main", 1, pod, pod_keys=(pod.key,))
    return Workload(pod.key, "Pod", (one,), priority=pod.spec.priority)


def single_pod_state(
    overlay: Overlay, config: QueueConfig, settings: PlannedStartSettings, now: int
) -> PostDecisionState:
    """Of a decision on nothing but pods on their own."""
    system = overlay.snapshot.queue_system
    site = WorkloadPlacer(overlay, system, (), ResourceRules())
    room = Occupancy(overlay, site, system, now, settings)
    pods = overlay.snapshot.pods
    rows = np.flatnonzero((pods.alive == 1) & (pods.node >= 0) & (pods.shape != UNREADABLE)).tolist()
    known = [one for one in overlay.snapshot.workloads if one.admission is not None]
    room.add_running(known or [_running(pods.objects[row]) for row in rows])
    return PostDecisionState(room, config, {})


def _running(pod: Pod) -> Workload:
    """Where nothing says what belongs together, every pod is a workload."""
    alone = single_pod_workload(pod)
    return msgspec.structs.replace(
        alone,
        admission=Admission(""),
        started_at=parse_timestamp(pod.status.start_time) or parse_timestamp(pod.metadata.creation_timestamp),
        max_run_seconds=run_limit(WorkloadIdentity(pod.key, "Pod", pod.metadata), alone.pod_sets, None),
        evicting=bool(pod.metadata.deletion_timestamp),
    )
