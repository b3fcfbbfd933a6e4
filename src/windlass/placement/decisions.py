"""Turns outcomes into decisions: joins pieces into their workloads, binds placed pods, reserves planned starts.

`engine.decide` calls `build_decisions` once every piece has an outcome. Workloads that exceed their declared run time
and gangs that stay incomplete are stopped here, last, so that a gang which this decision completes keeps running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.pod_accounting import MILLI_PER_GPU
from windlass.model.decision import Admit, AdmittedPodSet, Bind, Evict, Hold, Reserve
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.blocked_capacity import BlockedCapacity
from windlass.placement.decision_context import DecisionContext
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.grants import GrantUnpacker
from windlass.placement.late_pods import LatePods
from windlass.placement.stop_conditions import GANG_BELOW_MINIMUM, StopConditions
from windlass.placement.timeplan.messages import RESERVATION_PREFIX
from windlass.placement.timeplan.planned_start import PlannedStart, describe_domain, pods_by_node
from windlass.placement.timeplan.reservations import ReservationShortfall
from windlass.placement.timeplan.single_pods import block_planned_capacity
from windlass.placement.timeplan.start_planner import PlannedOutcomes
from windlass.placement.verdicts import make_verdict
from windlass.placement.workload_pieces import (
    drop_without_prerequisites,
    is_above_minimum,
    is_single_pod,
    workload_key,
)
from windlass.queueing.flavor_costs import cost_note, risk_of
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON, PODS_READY_TIMEOUT, Admitted, Evicted, Held
from windlass.queueing.placement_interface import hold_message_text


class WorkloadDecisions(msgspec.Struct, frozen=True):
    post_decision: PostDecisionState | None = None
    """The state on which explanations of the holds are computed; None where nothing was decided here."""
    admits: tuple[Admit, ...] = ()
    binds: tuple[Bind, ...] = ()
    evicts: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    victims_by_node: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Node → workloads that have to terminate before their capacity there is free."""
    blocked: BlockedCapacity = msgspec.field(default_factory=BlockedCapacity)
    """Capacity of planned starts, to block on the overlay while single pods are placed after this."""


def build_decisions(
    context: DecisionContext, found: PlannedOutcomes, late: LatePods, with_holds: bool = True
) -> WorkloadDecisions:
    return _DecisionBuilder(context, late, with_holds).build(found)


class _DecisionBuilder:
    def __init__(self, context: DecisionContext, late: LatePods, with_holds: bool) -> None:
        self._context, self._late, self._with_holds = context, late, with_holds
        self._nodes, self._pods = context.snapshot.nodes, context.snapshot.pods
        self._workloads = dict(context.workloads)
        self._grants = GrantUnpacker(context.snapshot)
        self._admits: dict[str, list[Admitted]] = {}
        self._evicted: dict[str, list[Evicted]] = {}
        for outcome in late.evicted:
            self._evicted.setdefault(workload_key(outcome.workload), []).append(outcome)
        self._holds = {key: Hold(key, verdict) for key, verdict in late.refused.items()}
        self._binds: list[Bind] = []

    def build(self, found: PlannedOutcomes) -> WorkloadDecisions:
        self._collect(found)
        self._stop()
        # Only now is it known which workloads are evicted; nothing is bound for those.
        for piece, after in self._late.placed:
            if workload_key(piece.key) not in self._evicted:
                self._bind(piece, workload_keys(after))
        context, workloads = self._context, self._workloads
        victims = context.placer.placed_workloads.victims_by_node()
        return WorkloadDecisions(
            PostDecisionState(context.occupancy, context.config, context.piece_by_key, found),
            tuple(
                self._with_cost(build_admit(workloads[key], admitted), workloads[key])
                for key, admitted in self._admits.items()
                if not is_single_pod(workloads[key])
            ),
            tuple(self._binds),
            tuple(self._evict(key, evicted) for key, evicted in self._evicted.items()),
            (
                *(hold for key, hold in self._holds.items() if key not in self._admits),
                *(self._holds_above_minimum(found) if self._with_holds else ()),
                *shortfall_holds(found.shortfalls, self._nodes.size),
            ),
            tuple(build_reserve(planned, self._nodes) for planned in found.planned_starts if planned.pods),
            {node: workload_keys(keys) for node, keys in victims.items()},
            block_planned_capacity(context.occupancy, found.planned_starts),
        )

    def _with_cost(self, admit: Admit, workload: Workload) -> Admit:
        queue = self._context.system.queues.get(admit.queue)
        if queue is None or not queue.policy.orders_by_cost:
            return admit
        used = [flavor for part in admit.pod_sets for flavor in part.flavors.values()]
        listed = [quotas.flavor for group in queue.resource_groups for quotas in group.flavors]
        others = [flavor for flavor in listed if flavor not in used]
        risk = risk_of(workload, self._context.config)
        return replace(admit, note=cost_note(used, others, self._context.system.flavors, risk))

    def _collect(self, found: PlannedOutcomes) -> None:
        """Sort the outcomes of pieces by workload, and bind what was admitted."""
        for outcome in drop_without_prerequisites(found.outcomes, self._context.piece_by_key):
            if isinstance(outcome, Admitted):
                self._admits.setdefault(workload_key(outcome.workload), []).append(outcome)
                self._bind(self._context.piece_by_key[outcome.workload], workload_keys(outcome.after))
            elif isinstance(outcome, Evicted):
                if not outcome.preemptor and self._is_refused(outcome.workload):
                    continue  # its queue is stopped: it is evicted once the refusal has ended
                key = workload_key(outcome.workload)
                self._evicted.setdefault(key, []).append(outcome)
            elif self._with_holds:
                self._hold(outcome, found)

    def _is_refused(self, key: str) -> bool:
        """Whether the API server has just refused to evict one of its pods."""
        pods = (name for pod_set in self._context.piece_by_key[key].pod_sets for name in pod_set.pod_keys)
        return self._context.snapshot.refusals.forbid_eviction(pods)

    def _bind(self, piece: Workload, after: tuple[str, ...]) -> None:
        """Binds the pods that exist; of a workload without pods only the admission is written."""
        for pod_set, existing in enumerate(self._context.waiting_pods(piece)):
            for placement in self._context.placer.placed_workloads[piece.key].placed:
                if placement.pod_set == pod_set and placement.member < len(existing):
                    key, assumed = existing[placement.member], placement.assumed
                    grants = self._grants.grants(self._context.pod_row[key], assumed.node, assumed.grant)
                    self._binds.append(Bind(key, self._nodes.names[assumed.node], grants, after))

    def _stop(self) -> None:
        """Evict gangs that stay below their minimum beyond their grace, and workloads that exceed their run time.

        Not workloads that get pods in this decision: a start and a stop in one decision would repeat forever.
        """
        context, late = self._context, self._late
        settings = context.settings
        conditions = StopConditions(
            context.snapshot,
            context.pod_row,
            context.now,
            settings.grace_seconds,
            settings.planned_starts,
            settings.readiness,
        )
        changing = {*self._evicted, *self._admits, *(workload_key(piece.key) for piece, _ in late.placed)}
        for workload, reason in conditions.workloads_to_stop(
            context.workloads, context.running_single_pods, changing, late.workloads
        ):
            self._evicted[workload.key] = [Evicted(workload.key, "", reason, self._stop_message(workload, reason))]
            self._workloads.setdefault(workload.key, workload)

    def _stop_message(self, workload: Workload, reason: str) -> str:
        readiness = self._context.settings.readiness
        if reason != PODS_READY_TIMEOUT or readiness is None:
            return ""
        seconds = readiness.recovery_seconds if workload.is_recovering else readiness.seconds
        return f"the pods of {workload.key} were not ready within {seconds} s"

    def _hold(self, outcome: Held, found: PlannedOutcomes) -> None:
        key = workload_key(outcome.workload)
        if is_above_minimum(outcome.workload) and key in self._holds:
            return  # the hold of the minimum comes first, and says more
        verdict = make_verdict(outcome.code, outcome.message, self._nodes.size, outcome.remedy)
        outlook = found.outlooks.get(outcome.workload)
        if outlook is not None:
            verdict = replace(verdict, planned_start=outlook.start, ahead=outlook.ahead, outlook=outlook.text)
        self._holds[key] = Hold(key, verdict)

    def _holds_above_minimum(self, found: PlannedOutcomes) -> Iterator[Hold]:
        """Pods above the minimum that wait while their gang starts, each under its own key."""
        for outcome in found.outcomes:
            if (
                isinstance(outcome, Held)
                and is_above_minimum(outcome.workload)
                and workload_key(outcome.workload) in self._admits
            ):
                why = hold_message_text(outcome.message)
                gang = workload_key(outcome.workload)
                least = self._workloads[gang].min_pods
                minimum = f"its minimum of {least}" if least is not None else "its minimum"
                detail = f"gang {gang} runs with {minimum}; this pod above the minimum waits: {why}"
                verdict = Verdict(outcome.code, self._nodes.size, detail=detail)
                for pods in self._context.waiting_pods(self._context.piece_by_key[outcome.workload]):
                    yield from (Hold(pod, verdict) for pod in pods)

    def _evict(self, key: str, evicted: Sequence[Evicted]) -> Evict:
        """One decision for all evicted pieces of the workload; all its pods where the minimum is among them."""
        pieces = [self._running_piece(outcome.workload) for outcome in evicted]
        # The minimum has the key of the workload: without it the members above it go, too.
        if any(outcome.workload == key for outcome in evicted):
            pieces = [self._workloads.get(key) or self._running_piece(key)]
        pod_row = self._context.pod_row
        pods = [
            pod
            for piece in pieces
            for pod_set in piece.pod_sets
            for pod in pod_set.pod_keys
            if pod in pod_row and self._pods.node[pod_row[pod]] >= 0
        ]
        lost = sum(outcome.lost for outcome in evicted) // MILLI_PER_GPU
        least = evicted[0].least_lost // MILLI_PER_GPU
        preemptor, reason = workload_key(evicted[0].preemptor), evicted[0].reason
        refused = self._late.refused.get(key) if reason == GANG_BELOW_MINIMUM else None
        message = evicted[0].message if reason not in BUDGET_OVERRIDE_BY_REASON else ""
        message = refused.public_message if refused is not None else message
        return Evict(key, tuple(pods), preemptor, reason, lost, least, message)

    def _running_piece(self, key: str) -> Workload:
        """A piece of this decision, or a victim that is not decided on here: a single pod, or one pod of a gang."""
        piece = self._context.piece_by_key.get(key) or self._workloads.get(key)
        return piece or self._context.preemption.victim_workload(key)


def workload_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The workloads of these pieces, each once."""
    return tuple(dict.fromkeys(workload_key(key) for key in keys))


def build_admit(workload: Workload, admitted: Sequence[Admitted]) -> Admit:
    """One decision for all admitted pieces of the workload. Pieces of one pod set may have got different flavors."""
    merged: dict[tuple[str, frozenset[tuple[str, str]]], AdmittedPodSet] = {}
    total: dict[str, int] = {}
    for outcome in admitted:
        nodes = outcome.nodes or tuple({} for _ in outcome.choices)
        for choice, pods_on in zip(outcome.choices, nodes, strict=True):
            key = choice.name, frozenset(choice.flavors.items())
            earlier = merged.get(key, AdmittedPodSet(choice.name, 0, choice.flavors, {}))
            by_node = {name: earlier.nodes.get(name, 0) + pods_on.get(name, 0) for name in {**earlier.nodes, **pods_on}}
            merged[key] = AdmittedPodSet(choice.name, earlier.count + choice.count, choice.flavors, by_node)
            total[choice.name] = total.get(choice.name, 0) + choice.count
    after = workload_keys(key for outcome in admitted for key in outcome.after)
    # Partial admission: the count that was asked for is kept where fewer pods were admitted.
    asked = {pod_set.name: pod_set.count for pod_set in workload.pod_sets} if workload.admission is None else {}
    pod_sets = tuple(
        replace(part, wanted=asked[part.name]) if total[part.name] < asked.get(part.name, 0) else part
        for part in merged.values()
    )
    return Admit(workload.key, workload.kind, admitted[0].cluster_queue, pod_sets, after)


def build_reserve(planned: PlannedStart, nodes: NodeColumns) -> Reserve:
    domain = describe_domain([pod.node for pod in planned.pods], nodes)
    return Reserve(workload_key(planned.key), domain, planned.start, planned.end, pods_by_node(planned, nodes))


def shortfall_holds(shortfalls: Iterable[ReservationShortfall], nodes: int) -> list[Hold]:
    """Reservations that found too little capacity."""
    holds = []
    for shortfall in shortfalls:
        name = shortfall.key.removeprefix(RESERVATION_PREFIX)
        detail = f"Reservation {name} found room for {shortfall.found} of {shortfall.wanted} pods"
        holds.append(Hold(shortfall.key, Verdict("GPU_FULL", nodes, detail=detail)))
    return holds
