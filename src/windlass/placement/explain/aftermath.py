"""A decision as it was left: what explanations are worked out on.

`placement.decided` makes one at the end of its decision, `engine` one for lone pods where there are no workloads. It
lives as long as the plan. The score table is the memo's, and the next decision uses it: from then on `is_current` is
false, and nothing may be tried here any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.facts import Bools
from windlass.cluster.pods import UNREADABLE
from windlass.cluster.workloads.facts import Identity, run_limit
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.times import seconds_of
from windlass.model.workload import Admission, PodSet, Workload
from windlass.placement.elastic import is_extra, whole_key
from windlass.placement.gang import Place
from windlass.placement.overlay import Overlay
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.planned import InTime
from windlass.placement.timeplan.room import Occupant, Room
from windlass.placement.timeplan.terms import TimeSettings
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Admitted, Held, Outcome
from windlass.queueing.site import PodSetChoice

NOTHING_FOUND = InTime([], [], {}, [])
MOST_LONE = 4096
"""So many pods that were placed on their own are counted among those whose end might help."""
FEW_NODES = 512
"""Up to so many nodes plain Python does; beyond, it is worth loading the compiled kernels."""


class Aftermath:
    def __init__(
        self,
        room: Room,
        queues: QueueConfig,
        pieces: Mapping[str, Workload],
        found: InTime = NOTHING_FOUND,
    ) -> None:
        self.room, self.queues, self.walls = room, queues, found.walls
        self.pieces = pieces
        self.basis = {key: outlook.basis for key, outlook in found.outlooks.items() if outlook.basis}
        """Workload with a planned start → those whose end makes room for it."""
        self._outcomes = found.outcomes
        self.turns = {one.workload: one.turn for one in found.outcomes if isinstance(one, Admitted | Held)}
        self._waiting = _waiting_pieces(found.outcomes, pieces)
        self._epoch = room.overlay.table.epoch
        self._is_counted = False

    @property
    def overlay(self) -> Overlay:
        return self.room.overlay

    @property
    def site(self) -> OverlaySite:
        return self.room.site

    @property
    def now(self) -> int:
        return self.room.now

    @property
    def is_current(self) -> bool:
        """Nobody has used the table since."""
        return self._epoch == self.room.overlay.table.epoch

    def use_kernels(self) -> None:
        """Those that will be done first: every trial looks at every node."""
        overlay = self.overlay
        overlay.kernels = jit.kernels(small=overlay.snapshot.facts.size <= FEW_NODES)

    def count_everybody(self) -> None:
        """Whoever was admitted in this decision holds quota from now on."""
        if self._is_counted:
            return
        self._is_counted = True
        for one in self._outcomes:
            if isinstance(one, Admitted) and one.workload in self.pieces:
                self.room.add_placed(self.pieces[one.workload], one.choices)
        self._seat_lone_pods()

    def _seat_lone_pods(self) -> None:
        """Those that were placed on their own, in the fast loop, stand in somebody's way like any other."""
        seats = self.site.seats
        members = {key for piece in self.pieces.values() for one in piece.pod_sets for key in one.pods}
        for placing in self.overlay.placed_here()[:MOST_LONE]:
            key = placing.pod.key
            if key not in members and key not in seats and seats.row_of(key) is not None:
                seats.put(key, [Place(0, 0, placing)], ("main",))
                self.room.add_placed(lone_workload(placing.pod), (PodSetChoice("main", 1, {}),))

    def pods_leaving(self) -> frozenset[str]:
        """Running pods that this decision evicts."""
        objects = self.overlay.snapshot.pods.objects
        return frozenset(objects[row].key for row in self.overlay.taken_off())

    def running(self) -> list[Occupant]:
        """Those who run and stay, and those who were placed in this decision."""
        gone, seats = self.overlay.taken_off(), self.site.seats
        return [
            one for one in self.room.occupants() if not gone.intersection(seats[one.workload.key].running)
        ]

    def piece(self, key: str) -> Workload | None:
        """The workload that waits, or the part of it that does; a pod on its own is one, too."""
        found = self.pieces.get(self._waiting.get(key, key))
        if found is not None:
            return found if found.admission is None else None
        snapshot = self.overlay.snapshot
        row = self.site.seats.row_of(key)
        if row is None:
            return None
        return (
            None if int(snapshot.pods.shape[row]) == UNREADABLE else lone_workload(snapshot.pods.objects[row])
        )

    def nodes_of_queue(self, piece: Workload) -> Bools:
        """Nodes of the flavors that its queue has; all nodes where it is in none."""
        facts, node = self.overlay.snapshot.facts, self.room.queue_of(piece)
        if node is None:
            return np.ones(facts.size, dtype=np.bool_)
        names = {quotas.flavor for group in node.spec.groups for quotas in group.flavors}
        inside: Bools = np.zeros(facts.size, dtype=np.bool_)
        for name in names & self.room.system.flavors.keys():
            inside |= facts.matching_labels(self.room.system.flavors[name].node_labels)
        return inside


def _waiting_pieces(outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> dict[str, str]:
    """Workload → the piece of it that waits: what its minimum lacks before a member above it; and each such member's
    pod → its piece."""
    found: dict[str, str] = {}
    for one in outcomes:
        if not isinstance(one, Held):
            continue
        if not is_extra(one.workload):
            found[whole_key(one.workload)] = one.workload
        elif one.workload in pieces:
            found.setdefault(whole_key(one.workload), one.workload)
            found |= {pod: one.workload for part in pieces[one.workload].pod_sets for pod in part.pods}
    return found


def lone_workload(pod: Pod) -> Workload:
    one = PodSet("main", 1, pod, pods=(pod.key,))
    return Workload(pod.key, "Pod", (one,), priority=pod.spec.priority)


def lone_room(overlay: Overlay, config: QueueConfig, settings: TimeSettings, now: int) -> Aftermath:
    """Of a decision on nothing but pods on their own."""
    system = overlay.snapshot.system
    site = OverlaySite(overlay, system, (), ResourceRules())
    room = Room(overlay, site, system, now, settings)
    pods = overlay.snapshot.pods
    rows = np.flatnonzero((pods.alive == 1) & (pods.node >= 0) & (pods.shape != UNREADABLE)).tolist()
    known = [one for one in overlay.snapshot.workloads if one.admission is not None]
    room.add_running(known or [_running(pods.objects[row]) for row in rows])
    return Aftermath(room, config, {})


def _running(pod: Pod) -> Workload:
    """Where nothing says what belongs together, every pod is a workload."""
    alone = lone_workload(pod)
    return msgspec.structs.replace(
        alone,
        admission=Admission(""),
        started_at=seconds_of(pod.status.start_time) or seconds_of(pod.metadata.creation_timestamp),
        max_run_seconds=run_limit(Identity(pod.key, "Pod", pod.metadata), alone.pod_sets, None),
        evicted=bool(pod.metadata.deletion_timestamp),
    )
