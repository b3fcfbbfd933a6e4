"""Outcomes put together as decisions: pieces into their workload, placed pods into binds, planned starts into
reservations.

`engine.decide` calls it once everything is decided. What has run for as long as it declared, and gangs that stay
incomplete, are stopped here, since who was completed just now goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from windlass.cluster.node_columns import NodeColumns
from windlass.model.decision import Admit, AdmittedPodSet, Bind, Evict, Hold, Reserve
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import BlockedCapacity
from windlass.placement.decision_context import DecisionContext
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.grants import GrantUnpacker
from windlass.placement.late_pods import LatePods
from windlass.placement.pieces import drop_without_prerequisites, is_single_pod
from windlass.placement.stop_conditions import StopConditions
from windlass.placement.timeplan.planned_start import PlannedStart, describe_domain, pods_by_node
from windlass.placement.timeplan.reservations import ReservationShortfall
from windlass.placement.timeplan.single_pods import block_planned_capacity
from windlass.placement.timeplan.start_planner import PlannedOutcomes
from windlass.placement.verdicts import make_verdict
from windlass.placement.workload_pieces import is_above_minimum, workload_key
from windlass.queueing.outcome import Admitted, Evicted, Held
from windlass.queueing.placement_interface import hold_message_text


class WorkloadDecisions(msgspec.Struct, frozen=True):
    post_decision: PostDecisionState | None = None
    """What explanations of the holds are worked out on; None where nothing was decided here."""
    admits: tuple[Admit, ...] = ()
    binds: tuple[Bind, ...] = ()
    evicts: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    victims_by_node: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Node → workloads that have to be gone before their room there is free."""
    blocked: BlockedCapacity = msgspec.field(default_factory=BlockedCapacity)
    """Room that is spoken for, put up on the overlay for whatever is placed after this."""


def build_decisions(
    context: DecisionContext, found: PlannedOutcomes, late: LatePods, with_holds: bool = True
) -> WorkloadDecisions:
    return _Decisions(context, late, with_holds).put_together(found)


class _Decisions:
    def __init__(self, work: DecisionContext, late: LatePods, tells_holds: bool) -> None:
        self._work, self._late, self._tells_holds = work, late, tells_holds
        self._facts, self._pods = work.snapshot.nodes, work.snapshot.pods
        self._whole = dict(work.workloads)
        self._reader = GrantUnpacker(work.snapshot)
        self._admits: dict[str, list[Admitted]] = {}
        self._evicted: dict[str, list[tuple[str, Evicted]]] = {}
        self._holds = {key: Hold(key, verdict) for key, verdict in late.refused.items()}
        self._binds: list[Bind] = []

    def put_together(self, found: PlannedOutcomes) -> WorkloadDecisions:
        for outcome in drop_without_prerequisites(found.outcomes, self._work.piece_by_key):
            if isinstance(outcome, Admitted):
                self._admits.setdefault(workload_key(outcome.workload), []).append(outcome)
                self._bind(self._work.piece_by_key[outcome.workload], workload_keys(outcome.after))
            elif isinstance(outcome, Evicted):
                whole = workload_key(outcome.workload)
                self._evicted.setdefault(whole, []).append((outcome.workload, outcome))
            elif self._tells_holds:
                self._hold(outcome, found)
        self._stop()
        for piece, after in self._late.placed:
            if workload_key(piece.key) not in self._evicted:
                self._bind(piece, workload_keys(after))
        return WorkloadDecisions(
            PostDecisionState(self._work.occupancy, self._work.config, self._work.piece_by_key, found),
            tuple(
                build_admit(self._whole[key], parts)
                for key, parts in self._admits.items()
                if not is_single_pod(self._whole[key])
            ),
            tuple(self._binds),
            tuple(self._evict(key, parts) for key, parts in self._evicted.items()),
            (
                *(hold for key, hold in self._holds.items() if key not in self._admits),
                *(self._extra_holds(found) if self._tells_holds else ()),
                *shortfall_holds(found.shortfalls, self._facts.size),
            ),
            tuple(build_reserve(wall, self._facts) for wall in found.planned_starts if wall.pods),
            {
                node: workload_keys(keys)
                for node, keys in self._work.placer.placed_workloads.victims_by_node().items()
            },
            block_planned_capacity(self._work.occupancy, found.planned_starts),
        )

    def _bind(self, piece: Workload, after: tuple[str, ...]) -> None:
        for part, existing in enumerate(self._work.waiting_pods(piece)):
            for place in self._work.placer.placed_workloads[piece.key].placed:
                if place.pod_set == part and place.member < len(existing):
                    key, placing = existing[place.member], place.assumed
                    grants = self._reader.grants(self._work.pod_row[key], placing.node, placing.grant)
                    self._binds.append(Bind(key, self._facts.names[placing.node], grants, after))

    def _stop(self) -> None:
        """Gangs that can't be completed within their grace, and whatever has run for as long as it declared.

        Nobody who is just getting members: what comes and goes in one decision would never end.
        """
        work, late = self._work, self._late
        lifetimes = StopConditions(
            work.snapshot, work.pod_row, work.now, work.settings.grace_seconds, work.settings.planned_starts
        )
        busy = {*self._evicted, *self._admits, *(workload_key(piece.key) for piece, _ in late.placed)}
        for workload, reason in lifetimes.workloads_to_stop(
            work.workloads, work.running_single_pods, busy, late.workloads
        ):
            self._evicted[workload.key] = [(workload.key, Evicted(workload.key, "", reason))]
            self._whole.setdefault(workload.key, workload)

    def _hold(self, outcome: Held, found: PlannedOutcomes) -> None:
        key = workload_key(outcome.workload)
        if is_above_minimum(outcome.workload) and key in self._holds:
            return
        verdict = make_verdict(outcome.code, outcome.message, self._facts.size)
        outlook = found.outlooks.get(outcome.workload)
        if outlook is not None:
            verdict = replace(verdict, planned_start=outlook.start, ahead=outlook.ahead, outlook=outlook.text)
        self._holds[key] = Hold(key, verdict)

    def _extra_holds(self, found: PlannedOutcomes) -> Iterator[Hold]:
        """Members above the minimum that wait while their gang starts, each by its own name."""
        for one in found.outcomes:
            if (
                isinstance(one, Held)
                and is_above_minimum(one.workload)
                and workload_key(one.workload) in self._admits
            ):
                said = hold_message_text(one.message)
                detail = f"its gang starts without it, since it is above the minimum: {said}"
                for part in self._work.waiting_pods(self._work.piece_by_key[one.workload]):
                    yield from (Hold(pod, Verdict(one.code, self._facts.size, detail=detail)) for pod in part)

    def _evict(self, key: str, parts: Sequence[tuple[str, Evicted]]) -> Evict:
        pieces = [self._running(piece) for piece, _ in parts]
        if any(piece == key for piece, _ in parts):
            pieces = [self._whole.get(key) or self._running(key)]  # without its minimum nothing of it stays
        pods = [
            name
            for piece in pieces
            for pod_set in piece.pod_sets
            for name in pod_set.pod_keys
            if name in self._work.pod_row and self._pods.node[self._work.pod_row[name]] >= 0
        ]
        first = parts[0][1]
        return Evict(key, tuple(pods), workload_key(first.preemptor), first.reason)

    def _running(self, key: str) -> Workload:
        """Also one that nobody decides on here: a lone pod, or a pod that is alone in leaving."""
        known = self._work.piece_by_key.get(key) or self._whole.get(key)
        return known or self._work.preemption.victim_workload(key)


def workload_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The workloads of these pieces, each once."""
    return tuple(dict.fromkeys(workload_key(key) for key in keys))


def build_admit(workload: Workload, parts: Sequence[Admitted]) -> Admit:
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
    after = workload_keys(name for part in parts for name in part.after)
    asked = {one.name: one.count for one in workload.pod_sets} if workload.admission is None else {}
    pod_sets = tuple(
        replace(one, wanted=asked[one.name]) if one.count < asked.get(one.name, 0) else one
        for one in sets.values()
    )
    return Admit(workload.key, workload.kind, parts[0].cluster_queue, pod_sets, after)


def build_reserve(planned: PlannedStart, facts: NodeColumns) -> Reserve:
    domain = describe_domain([seat.node for seat in planned.pods], facts)
    return Reserve(
        workload_key(planned.key), domain, planned.start, planned.end, pods_by_node(planned, facts)
    )


def shortfall_holds(shortfalls: Iterable[ReservationShortfall], nodes: int) -> list[Hold]:
    """Reservations that lack room."""
    return [
        Hold(
            one.key,
            Verdict("GPU_FULL", nodes, detail=f"there is room for {one.found} of its {one.wanted} units"),
        )
        for one in shortfalls
    ]
