"""The state that a decision leaves behind, on which its holds are explained.

`placement.decisions` makes one at the end of a decision, `engine` one for single pods where there are no workloads. It
lives as long as the plan. The score table belongs to the cache that the next decision uses: from then on `is_current`
is false, and no dry run may use this state.
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
"""Single pods placed by this decision that are considered as relief."""
SMALL_CLUSTER_NODES = 512
"""Up to this size the interpreted kernels are faster than loading the compiled ones."""


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
        """Workload with a planned start → the workloads whose end makes room for it."""
        self._outcomes = found.outcomes
        decided = [outcome for outcome in found.outcomes if isinstance(outcome, Admitted | Held)]
        self.turns = {outcome.workload: outcome.decided_in_cycle for outcome in decided}
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
        """Whether no later decision has used the score table."""
        return self._epoch == self.occupancy.overlay.table.epoch

    def select_kernels(self) -> None:
        """Interpreted or compiled, whichever finishes first: every dry run looks at every node."""
        overlay = self.overlay
        overlay.kernels = jit.kernels(small=overlay.snapshot.nodes.size <= SMALL_CLUSTER_NODES)

    def count_admitted(self) -> None:
        """Count workloads that this decision admitted as users of quota and capacity; the first call does it."""
        if self._is_counted:
            return
        self._is_counted = True
        for outcome in self._outcomes:
            if isinstance(outcome, Admitted) and outcome.workload in self.pieces:
                self.occupancy.add_placed(self.pieces[outcome.workload], outcome.choices)
        self._add_single_pods()

    def _add_single_pods(self) -> None:
        """Single pods that the fast loop placed are occupants like any other workload."""
        placed_workloads = self.placer.placed_workloads
        pod_sets = (pod_set for piece in self.pieces.values() for pod_set in piece.pod_sets)
        members = {key for pod_set in pod_sets for key in pod_set.pod_keys}
        for assumed in self.overlay.assumed_pods()[:MAX_SINGLE_PODS]:
            key = assumed.pod.key
            if key not in members and key not in placed_workloads and placed_workloads.pod_row(key) is not None:
                placed_workloads.add_placed(key, [PodPlacement(0, 0, assumed)], ("main",))
                self.occupancy.add_placed(single_pod_workload(assumed.pod), (PodSetChoice("main", 1, {}),))

    def evicted_pods(self) -> frozenset[str]:
        """Running pods that this decision evicts."""
        objects = self.overlay.snapshot.pods.objects
        return frozenset(objects[row].key for row in self.overlay.removed_rows())

    def running(self) -> list[Occupant]:
        """Workloads that run and are not evicted, and workloads that this decision placed."""
        removed, placed_workloads = self.overlay.removed_rows(), self.placer.placed_workloads
        return [
            occupant
            for occupant in self.occupancy.occupants()
            if not removed.intersection(placed_workloads[occupant.workload.key].running_rows)
        ]

    def pending_piece(self, key: str) -> Workload | None:
        """The workload that waits, or the piece of it that waits; a single pod counts as a workload."""
        found = self.pieces.get(self._waiting.get(key, key))
        if found is not None:
            return found if found.admission is None else None
        snapshot = self.overlay.snapshot
        row = self.placer.placed_workloads.pod_row(key)
        if row is None or int(snapshot.pods.shape[row]) == UNREADABLE:
            return None
        return single_pod_workload(snapshot.pods.objects[row])

    def nodes_of_queue(self, piece: Workload) -> Bools:
        """Nodes of the flavors of its queue; all nodes where it is in no queue."""
        columns, node = self.overlay.snapshot.nodes, self.occupancy.cluster_queue_of(piece)
        if node is None:
            return np.ones(columns.size, dtype=np.bool_)
        names = {quotas.flavor for group in node.spec.resource_groups for quotas in group.flavors}
        inside: Bools = np.zeros(columns.size, dtype=np.bool_)
        for name in names & self.occupancy.system.flavors.keys():
            inside |= columns.matching_labels(self.occupancy.system.flavors[name].node_labels)
        return inside


def _waiting_pieces(outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> dict[str, str]:
    """Workload → the piece of it that waits, its minimum before a pod above it; and each such pod → its piece."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        if not isinstance(outcome, Held):
            continue
        if not is_above_minimum(outcome.workload):
            found[workload_key(outcome.workload)] = outcome.workload
        elif outcome.workload in pieces:
            found.setdefault(workload_key(outcome.workload), outcome.workload)
            for pod_set in pieces[outcome.workload].pod_sets:
                found |= dict.fromkeys(pod_set.pod_keys, outcome.workload)
    return found


def single_pod_workload(pod: Pod) -> Workload:
    pod_set = PodSet("main", 1, pod, pod_keys=(pod.key,))
    return Workload(pod.key, "Pod", (pod_set,), priority=pod.spec.priority)


def single_pod_state(
    overlay: Overlay, config: QueueConfig, settings: PlannedStartSettings, now: int
) -> PostDecisionState:
    """The state after a decision that had nothing but single pods."""
    system = overlay.snapshot.queue_system
    placer = WorkloadPlacer(overlay, system, (), ResourceRules())
    occupancy = Occupancy(overlay, placer, system, now, settings)
    pods = overlay.snapshot.pods
    rows = np.flatnonzero((pods.alive == 1) & (pods.node >= 0) & (pods.shape != UNREADABLE)).tolist()
    admitted = [workload for workload in overlay.snapshot.workloads if workload.admission is not None]
    occupancy.add_running(admitted or [_running_pod_workload(pods.objects[row]) for row in rows])
    return PostDecisionState(occupancy, config, {})


def _running_pod_workload(pod: Pod) -> Workload:
    """A running pod as an admitted workload of its own."""
    workload = single_pod_workload(pod)
    return msgspec.structs.replace(
        workload,
        admission=Admission(""),
        started_at=parse_timestamp(pod.status.start_time) or parse_timestamp(pod.metadata.creation_timestamp),
        max_run_seconds=run_limit(WorkloadIdentity(pod.key, "Pod", pod.metadata), workload.pod_sets, None),
        evicting=bool(pod.metadata.deletion_timestamp),
    )
