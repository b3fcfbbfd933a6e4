"""Workloads decided on the overlay: quota, place and eviction in one step, for the whole of each or not at all.

`engine.decide` calls it where the cluster has queues, gangs or owners. Gangs that are in no queue are placed in order
of priority and age, and may take the place of lower priorities (`preemption`); queued work goes through
`queueing.admit`, with the overlay as its site. `timeplan` sees to it that nobody runs ahead at the cost of those before
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from windlass.cluster.pods import PENDING
from windlass.model.configuration import ResourceRules
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.queue import QueueSystem
from windlass.model.reasons import Reason
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.decided import admit_of, reserve_of, short_of_room, wholes
from windlass.placement.elastic import is_extra, whole_key
from windlass.placement.explain.aftermath import Aftermath
from windlass.placement.filters import pod_holds
from windlass.placement.giving_way import give_way
from windlass.placement.grants import GrantReader
from windlass.placement.lifetimes import Lifetimes
from windlass.placement.obstacles import Obstacles
from windlass.placement.overlay import Overlay
from windlass.placement.pieces import held_choices, is_alone, pieces_to_decide, turn_of, with_their_base
from windlass.placement.preemption.context import Preemption
from windlass.placement.preemption.together import preempt_together
from windlass.placement.site import OverlaySite
from windlass.placement.timeplan.alone import keep_free
from windlass.placement.timeplan.passes import InTime, decide_in_time
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.terms import TimeSettings
from windlass.queueing.admit import admit
from windlass.queueing.config import QueueConfig
from windlass.queueing.node import queue_time
from windlass.queueing.outcome import PRIORITY, Admitted, Evicted, Held, Outcome
from windlass.queueing.site import PlaceResult, PodSetChoice, Said, Site, text_of


class GangSettings(msgspec.Struct, frozen=True):
    grace_seconds: int = 300
    """How long a gang may run below its minimum before it is stopped whole."""
    resources: ResourceRules = ResourceRules()
    """How requests become what is counted against quota."""
    time: TimeSettings = TimeSettings()
    """Planned starts and reservations."""
    levels: tuple[str, ...] = ()
    """Topology levels (node labels) where no Topology object names them; empty: the default list."""


class WorkloadDecisions(msgspec.Struct, frozen=True):
    after: Aftermath | None = None
    """What explanations of the holds are worked out on; None where nothing was decided here."""
    admits: tuple[Admit, ...] = ()
    binds: tuple[Bind, ...] = ()
    evicts: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    leaving: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Node → workloads that have to be gone before their room there is free."""
    kept: Obstacles = msgspec.field(default_factory=Obstacles)
    """Room that is spoken for, put up on the overlay for whatever is placed after this."""


def admit_workloads(
    overlay: Overlay,
    system: QueueSystem,
    workloads: Iterable[Workload],
    config: QueueConfig,
    now: int,
    settings: GangSettings,
    preemption: Preemption | None = None,
) -> WorkloadDecisions:
    """Decide on every workload that is handed in; `preemption` knows who goes already, for lone pods."""
    preemption = preemption or Preemption(overlay, config, now)
    return _Admission(overlay, system, workloads, config, now, settings, preemption).run()


class _Admission:
    def __init__(
        self,
        overlay: Overlay,
        system: QueueSystem,
        workloads: Iterable[Workload],
        config: QueueConfig,
        now: int,
        settings: GangSettings,
        preemption: Preemption,
    ) -> None:
        self._overlay, self._system, self._config, self._now = overlay, system, config, now
        self._preemption = preemption
        self._whole = {workload.key: workload for workload in workloads}
        self._pieces = [
            msgspec.structs.replace(piece, evicted=True) if piece.key in preemption.gone else piece
            for piece in pieces_to_decide(system, self._whole.values(), overlay.recall)
        ]
        self._by_key = {piece.key: piece for piece in self._pieces}
        self._site = OverlaySite(
            overlay, system, self._pieces, settings.resources, preemption.nodes_of_gone(), settings.levels
        )
        self._reader = GrantReader(overlay.snapshot)
        self._pod_row = overlay.pod_rows()
        self._room = Room(overlay, self._site, system, now, settings.time)
        self._lifetimes = Lifetimes(
            overlay.snapshot, self._pod_row, now, settings.grace_seconds, settings.time
        )
        self._admits: dict[str, list[Admitted]] = {}
        self._evicted: dict[str, list[tuple[str, Evicted]]] = {}
        self._holds: dict[str, Hold] = {}
        self._binds: list[Bind] = []
        self._late: set[str] = set()
        """Workloads that hold quota for pods which have no node."""

    def run(self) -> WorkloadDecisions:
        others = [
            one for one in self._overlay.snapshot.workloads if one.key not in self._whole and one.admission
        ]
        seated = self._seat_waiting_pods()
        found = decide_in_time(
            self._room,
            self._config,
            [*self._pieces, *others],
            self._overlay.snapshot.reservations,
            self._decide,
        )
        for outcome in with_their_base(found.outcomes, self._by_key):
            if isinstance(outcome, Admitted):
                self._admitted(outcome)
            elif isinstance(outcome, Evicted):
                whole = whole_key(outcome.workload)
                self._evicted.setdefault(whole, []).append((outcome.workload, outcome))
            else:
                self._held(outcome, found)
        self._stop(others, [piece for piece, _ in seated])
        for piece, after in seated:
            if whole_key(piece.key) not in self._evicted:
                self._bind_seats(piece, wholes(after))
        return WorkloadDecisions(
            Aftermath(self._room, self._config, self._by_key, found),
            tuple(
                admit_of(self._whole[key], parts)
                for key, parts in self._admits.items()
                if not is_alone(self._whole[key])
            ),
            tuple(self._binds),
            tuple(self._evict(key, parts) for key, parts in self._evicted.items()),
            (
                *(hold for key, hold in self._holds.items() if key not in self._admits),
                *self._extra_holds(found),
                *short_of_room(found.short, self._overlay.snapshot.facts.size),
            ),
            tuple(reserve_of(wall, self._overlay.snapshot.facts) for wall in found.walls if wall.seats),
            {node: wholes(keys) for node, keys in self._site.seats.leaving().items()},
            keep_free(self._room, found.walls),
        )

    def _decide(self, site: Site) -> list[Outcome]:
        """What is in no queue and comes before all that is queued, then what is queued, then the rest."""
        before, behind = self._unqueued()
        disruptions = self._preemption.begin_pass(self._dragged())
        outcomes: list[Outcome] = []
        for turn, piece in enumerate(before):
            outcomes = self._place_unqueued(piece, turn, site, outcomes)
        queued = [piece for piece in self._pieces if piece.queue]
        counted = self._overlay.recall.counted
        gone: list[Outcome] = []
        found = admit(
            self._system,
            queued,
            self._config,
            self._now,
            site,
            disruptions,
            counted,
            partial(self._place_by_priority, site, gone),
        )
        outcomes += gone
        outcomes += [one for one in found if isinstance(one, Evicted)]
        decided = sorted((one for one in found if not isinstance(one, Evicted)), key=self._rank)
        outcomes += [
            msgspec.structs.replace(one, turn=turn) for turn, one in enumerate(decided, start=len(before))
        ]
        for turn, piece in enumerate(behind, start=len(before) + len(queued)):
            outcomes = self._place_unqueued(piece, turn, site, outcomes)
        return outcomes

    def _dragged(self) -> dict[str, tuple[str, ...]]:
        """Gang → the pods of its extra members, which don't stay without its minimum."""
        if not self._preemption.budgets:
            return {}
        found: dict[str, tuple[str, ...]] = {}
        for piece in self._pieces:
            if is_extra(piece.key):
                names = tuple(name for one in piece.pod_sets for name in one.pods)
                found[whole_key(piece.key)] = (*found.get(whole_key(piece.key), ()), *names)
        return found

    def _rank(self, outcome: Admitted | Held) -> tuple[object, ...]:
        """Who comes before whom: by the round, which keeps each queue's own order, then by priority and age."""
        piece = self._by_key[outcome.workload]
        age = (not piece.begun, queue_time(piece))
        return (outcome.turn, not piece.promised, -piece.priority, age, piece.uid or piece.key, piece.key)

    # Work that holds quota

    def _seat_waiting_pods(self) -> list[tuple[Workload, tuple[str, ...]]]:
        """Pods that came after the admission of their workload, or in the place of lost ones: quota is no question.
        With each, who has to be gone first."""
        held = [piece for piece in self._pieces if piece.admission is not None and not piece.evicted]
        pods = self._overlay.snapshot.pods
        pending = {pods.objects[row].key for row in pods.pending().tolist()}
        late = [piece for piece in held if any(not pending.isdisjoint(part.pods) for part in piece.pod_sets)]
        self._late = {whole_key(piece.key) for piece in late}
        seated = []
        for piece in sorted(late, key=lambda one: (-one.priority, one.queued_at, one.key)):
            if piece.unreadable:
                verdict = Verdict(
                    "INVALID_OBJECT", self._overlay.snapshot.facts.size, detail=piece.unreadable
                )
                self._holds[whole_key(piece.key)] = Hold(whole_key(piece.key), verdict)
                continue
            found = self._site.place(piece, held_choices(piece))
            if found.ok:
                seated.append((piece, found.after))
            else:
                verdict = self._verdict(found.code, found.message)
                self._holds[whole_key(piece.key)] = Hold(whole_key(piece.key), verdict)
        return seated

    # Work that is in no queue

    def _unqueued(self) -> tuple[list[Workload], list[Workload]]:
        """Gangs and lone pods: those that come before the first that is queued, and the rest, extra members last."""
        waiting = [piece for piece in self._pieces if piece.admission is None]
        ordered = sorted((piece for piece in waiting if not piece.queue), key=turn_of)
        head = min((turn_of(piece)[:-1] for piece in waiting if piece.queue), default=None)
        before = len(ordered) if head is None else sum(turn_of(piece)[:-1] <= head for piece in ordered)
        # Room that others have left for somebody is not taken by what is queued, which has its turn all at once.
        named = (piece.promised and not is_extra(piece.key) for piece in ordered)
        promised = [place for place, is_named in enumerate(named, start=1) if is_named]
        before = max([before, *promised])
        return ordered[:before], ordered[before:]

    def _place_unqueued(
        self, piece: Workload, turn: int, site: Site, outcomes: list[Outcome]
    ) -> list[Outcome]:
        """`outcomes` with its own, and with what changes for those that were admitted before it."""
        if piece.hold or not piece.active:
            code, message = piece.hold_code or "JOB_SUSPENDED", piece.hold or "it is not active"
            return [*outcomes, Held(piece.key, code, message, turn)]
        held = self._member_hold(piece)
        if held is not None:
            return [*outcomes, Held(piece.key, held.code, held.kube, turn)]
        choices = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        found = site.place(piece, choices)
        if not found.ok and found.feasible and not is_extra(piece.key):
            way = give_way(piece, choices, outcomes, self._by_key, site)
            if way is not None:
                found, outcomes = way
            else:
                gone: list[Outcome] = []
                found = self._place_by_priority(site, gone, piece, choices) or found
                outcomes = [*outcomes, *gone]
        if not found.ok:
            return [*outcomes, Held(piece.key, found.code, found.message, turn)]
        return [*outcomes, Admitted(piece.key, "", choices, found.nodes, found.after, turn)]

    def _place_by_priority(
        self, site: Site, gone: list[Outcome], piece: Workload, choices: tuple[PodSetChoice, ...]
    ) -> PlaceResult | None:
        """At the cost of lower priorities, who are written down in `gone`; None where that doesn't help."""
        if is_extra(piece.key):
            return None
        way = preempt_together(piece, choices, site, self._site, self._preemption)
        if way is None:
            return None
        self._preemption.note(way.victims)
        gone += [Evicted(unit.key, piece.key, PRIORITY) for unit in way.victims if not unit.leaving]
        after = {*way.result.after, *(unit.key for unit in way.victims)}
        return msgspec.structs.replace(way.result, after=tuple(sorted(after)))

    def _member_hold(self, piece: Workload) -> Reason | None:
        """One member that is held, by a gate or a claim that isn't ready, holds all of them."""
        objects = self._overlay.snapshot.pods.objects
        members = (objects[self._pod_row[key]] for part in self._waiting_pods(piece) for key in part)
        found = (pod_holds(pod, self._overlay.snapshot.objects) for pod in members)
        return next((held for held in found if held is not None), None)

    def _stop(self, others: Iterable[Workload], seated: Iterable[Workload]) -> None:
        """Gangs that can't be completed within their grace, and whatever has run for as long as it declared.

        Nobody who is just getting members: what comes and goes in one decision would never end.
        """
        busy = {*self._evicted, *self._admits, *(whole_key(piece.key) for piece in seated)}
        timed = [one for one in others if one.max_run_seconds is not None]
        for workload in (*self._whole.values(), *timed):
            key = workload.key
            is_plain_pod = workload.kind == "Pod" and workload.max_run_seconds is None
            if is_plain_pod or workload.admission is None or key in busy:
                continue
            reason = self._lifetimes.why_over(workload)
            if not reason and key in self._whole:
                reason = self._lifetimes.why_broken(workload, key in self._late)
            if reason:
                self._evicted[key] = [(key, Evicted(key, "", reason))]
                self._whole.setdefault(key, workload)

    # Outcomes into decisions

    def _admitted(self, outcome: Admitted) -> None:
        self._admits.setdefault(whole_key(outcome.workload), []).append(outcome)
        self._bind_seats(self._by_key[outcome.workload], wholes(outcome.after))

    def _bind_seats(self, piece: Workload, after: tuple[str, ...]) -> None:
        names = self._overlay.snapshot.facts.names
        for part, existing in enumerate(self._waiting_pods(piece)):
            for place in self._site.seats[piece.key].placed:
                if place.part == part and place.member < len(existing):
                    key, placing = existing[place.member], place.placing
                    grants = self._reader.grants(self._pod_row[key], placing.node, placing.grant)
                    self._binds.append(Bind(key, names[placing.node], grants, after))

    def _waiting_pods(self, piece: Workload) -> list[list[str]]:
        """Per pod set, the pods that exist and have no node."""
        node = self._overlay.snapshot.pods.node
        return [
            [key for key in pod_set.pods if key in self._pod_row and node[self._pod_row[key]] == PENDING]
            for pod_set in piece.pod_sets
        ]

    def _held(self, outcome: Held, found: InTime) -> None:
        key = whole_key(outcome.workload)
        if not is_extra(outcome.workload) or key not in self._holds:
            verdict = self._verdict(outcome.code, outcome.message)
            outlook = found.outlooks.get(outcome.workload)
            if outlook is not None:
                verdict = msgspec.structs.replace(
                    verdict, planned_start=outlook.start, ahead=outlook.ahead, outlook=outlook.text
                )
            self._holds[key] = Hold(key, verdict)

    def _verdict(self, code: str, said: Said) -> Verdict:
        if isinstance(said, str):
            return Verdict(code, self._overlay.snapshot.facts.size, detail=said)
        return said.verdict()

    def _extra_holds(self, found: InTime) -> Iterator[Hold]:
        """Members above the minimum that wait while their gang starts, each by its own name."""
        nodes = self._overlay.snapshot.facts.size
        for one in found.outcomes:
            if isinstance(one, Held) and is_extra(one.workload) and whole_key(one.workload) in self._admits:
                detail = f"its gang starts without it, since it is above the minimum: {text_of(one.message)}"
                for part in self._waiting_pods(self._by_key[one.workload]):
                    yield from (Hold(pod, Verdict(one.code, nodes, detail=detail)) for pod in part)

    def _running(self, key: str) -> Workload:
        """Also one that nobody decides on here: a lone pod, or a pod that is alone in leaving."""
        known = self._by_key.get(key) or self._whole.get(key)
        return known or self._preemption.workload(key)

    def _evict(self, key: str, parts: Sequence[tuple[str, Evicted]]) -> Evict:
        pieces = [self._running(piece) for piece, _ in parts]
        if any(piece == key for piece, _ in parts):
            pieces = [self._whole.get(key) or self._running(key)]  # without its minimum nothing of it stays
        pods = [
            name
            for piece in pieces
            for pod_set in piece.pod_sets
            for name in pod_set.pods
            if name in self._pod_row and self._overlay.snapshot.pods.node[self._pod_row[name]] >= 0
        ]
        first = parts[0][1]
        return Evict(key, tuple(pods), whole_key(first.for_), first.reason)
