"""Outcomes put together as decisions: pieces into their workload, placed pods into binds, planned starts into
reservations.

`engine.decide` calls it once everything is decided. What has run for as long as it declared, and gangs that stay
incomplete, are stopped here, since who was completed just now goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from windlass.cluster.facts import NodeFacts
from windlass.model.decision import Admit, AdmittedPodSet, Bind, Evict, Hold, Reserve
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.elastic import is_extra, whole_key
from windlass.placement.explain.aftermath import Aftermath
from windlass.placement.grants import GrantReader
from windlass.placement.late_pods import LatePods
from windlass.placement.lifetimes import Lifetimes
from windlass.placement.obstacles import Obstacles
from windlass.placement.pieces import is_alone, with_their_base
from windlass.placement.timeplan.alone import keep_free
from windlass.placement.timeplan.calendar import Shortfall
from windlass.placement.timeplan.planned import InTime
from windlass.placement.timeplan.walls import Wall, counts_by_node, domain_of
from windlass.placement.verdicts import verdict_of
from windlass.placement.work import Work
from windlass.queueing.outcome import Admitted, Evicted, Held
from windlass.queueing.site import text_of


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


def decisions_of(work: Work, found: InTime, late: LatePods, tells_holds: bool = True) -> WorkloadDecisions:
    return _Decisions(work, late, tells_holds).put_together(found)


class _Decisions:
    def __init__(self, work: Work, late: LatePods, tells_holds: bool) -> None:
        self._work, self._late, self._tells_holds = work, late, tells_holds
        self._facts, self._pods = work.snapshot.facts, work.snapshot.pods
        self._whole = dict(work.whole)
        self._reader = GrantReader(work.snapshot)
        self._admits: dict[str, list[Admitted]] = {}
        self._evicted: dict[str, list[tuple[str, Evicted]]] = {}
        self._holds = {key: Hold(key, verdict) for key, verdict in late.refused.items()}
        self._binds: list[Bind] = []

    def put_together(self, found: InTime) -> WorkloadDecisions:
        for outcome in with_their_base(found.outcomes, self._work.by_key):
            if isinstance(outcome, Admitted):
                self._admits.setdefault(whole_key(outcome.workload), []).append(outcome)
                self._bind(self._work.by_key[outcome.workload], wholes(outcome.after))
            elif isinstance(outcome, Evicted):
                whole = whole_key(outcome.workload)
                self._evicted.setdefault(whole, []).append((outcome.workload, outcome))
            elif self._tells_holds:
                self._hold(outcome, found)
        self._stop()
        for piece, after in self._late.seated:
            if whole_key(piece.key) not in self._evicted:
                self._bind(piece, wholes(after))
        return WorkloadDecisions(
            Aftermath(self._work.room, self._work.config, self._work.by_key, found),
            tuple(
                admit_of(self._whole[key], parts)
                for key, parts in self._admits.items()
                if not is_alone(self._whole[key])
            ),
            tuple(self._binds),
            tuple(self._evict(key, parts) for key, parts in self._evicted.items()),
            (
                *(hold for key, hold in self._holds.items() if key not in self._admits),
                *(self._extra_holds(found) if self._tells_holds else ()),
                *short_of_room(found.short, self._facts.size),
            ),
            tuple(reserve_of(wall, self._facts) for wall in found.walls if wall.seats),
            {node: wholes(keys) for node, keys in self._work.site.seats.leaving().items()},
            keep_free(self._work.room, found.walls),
        )

    def _bind(self, piece: Workload, after: tuple[str, ...]) -> None:
        for part, existing in enumerate(self._work.waiting_pods(piece)):
            for place in self._work.site.seats[piece.key].placed:
                if place.part == part and place.member < len(existing):
                    key, placing = existing[place.member], place.placing
                    grants = self._reader.grants(self._work.pod_row[key], placing.node, placing.grant)
                    self._binds.append(Bind(key, self._facts.names[placing.node], grants, after))

    def _stop(self) -> None:
        """Gangs that can't be completed within their grace, and whatever has run for as long as it declared.

        Nobody who is just getting members: what comes and goes in one decision would never end.
        """
        work, late = self._work, self._late
        lifetimes = Lifetimes(
            work.snapshot, work.pod_row, work.now, work.settings.grace_seconds, work.settings.time
        )
        busy = {*self._evicted, *self._admits, *(whole_key(piece.key) for piece, _ in late.seated)}
        for workload, reason in lifetimes.over(work.whole, work.others, busy, late.workloads):
            self._evicted[workload.key] = [(workload.key, Evicted(workload.key, "", reason))]
            self._whole.setdefault(workload.key, workload)

    def _hold(self, outcome: Held, found: InTime) -> None:
        key = whole_key(outcome.workload)
        if is_extra(outcome.workload) and key in self._holds:
            return
        verdict = verdict_of(outcome.code, outcome.message, self._facts.size)
        outlook = found.outlooks.get(outcome.workload)
        if outlook is not None:
            verdict = replace(verdict, planned_start=outlook.start, ahead=outlook.ahead, outlook=outlook.text)
        self._holds[key] = Hold(key, verdict)

    def _extra_holds(self, found: InTime) -> Iterator[Hold]:
        """Members above the minimum that wait while their gang starts, each by its own name."""
        for one in found.outcomes:
            if isinstance(one, Held) and is_extra(one.workload) and whole_key(one.workload) in self._admits:
                said = text_of(one.message)
                detail = f"its gang starts without it, since it is above the minimum: {said}"
                for part in self._work.waiting_pods(self._work.by_key[one.workload]):
                    yield from (Hold(pod, Verdict(one.code, self._facts.size, detail=detail)) for pod in part)

    def _evict(self, key: str, parts: Sequence[tuple[str, Evicted]]) -> Evict:
        pieces = [self._running(piece) for piece, _ in parts]
        if any(piece == key for piece, _ in parts):
            pieces = [self._whole.get(key) or self._running(key)]  # without its minimum nothing of it stays
        pods = [
            name
            for piece in pieces
            for pod_set in piece.pod_sets
            for name in pod_set.pods
            if name in self._work.pod_row and self._pods.node[self._work.pod_row[name]] >= 0
        ]
        first = parts[0][1]
        return Evict(key, tuple(pods), whole_key(first.for_), first.reason)

    def _running(self, key: str) -> Workload:
        """Also one that nobody decides on here: a lone pod, or a pod that is alone in leaving."""
        known = self._work.by_key.get(key) or self._whole.get(key)
        return known or self._work.preemption.workload(key)


def wholes(keys: Iterable[str]) -> tuple[str, ...]:
    """The workloads of these pieces, each once."""
    return tuple(dict.fromkeys(whole_key(key) for key in keys))


def admit_of(whole: Workload, parts: Sequence[Admitted]) -> Admit:
    """One decision a workload: its pieces together."""
    sets: dict[str, AdmittedPodSet] = {}
    for part in parts:
        nodes = part.nodes or tuple({} for _ in part.choices)
        for choice, where in zip(part.choices, nodes, strict=True):
            known = sets.get(choice.name)
            count, merged = choice.count, dict(where)
            if known is not None:
                count += known.count
                merged = {
                    name: known.nodes.get(name, 0) + where.get(name, 0) for name in {**known.nodes, **where}
                }
            sets[choice.name] = AdmittedPodSet(choice.name, count, choice.flavors, merged)
    after = wholes(name for part in parts for name in part.after)
    asked = {one.name: one.count for one in whole.pod_sets} if whole.admission is None else {}
    pod_sets = tuple(
        replace(one, wanted=asked[one.name]) if one.count < asked.get(one.name, 0) else one
        for one in sets.values()
    )
    return Admit(whole.key, whole.kind, parts[0].queue, pod_sets, after)


def reserve_of(wall: Wall, facts: NodeFacts) -> Reserve:
    domain = domain_of([seat.node for seat in wall.seats], facts)
    return Reserve(whole_key(wall.key), domain, wall.start, wall.end, counts_by_node(wall, facts))


def short_of_room(short: Iterable[Shortfall], nodes: int) -> list[Hold]:
    """Reservations that lack room."""
    return [
        Hold(
            one.key,
            Verdict("GPU_FULL", nodes, detail=f"there is room for {one.found} of its {one.wanted} units"),
        )
        for one in short
    ]
