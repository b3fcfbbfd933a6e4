"""Fills verdicts with their cause and with what would let the workload start.

`engine` makes one Advisor per decision. `refine_hold` and `refine_single_pod` find the cause of every hold and are
cheap; `explain` finds everything else, for the first holds of a plan, and may run dry runs on the overlay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from windlass.cluster.pod_table import UNREADABLE
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.obstacle import Obstacle
from windlass.model.plan import Plan
from windlass.model.reasons import POD_REASONS, RESERVED_FOR_OTHERS
from windlass.model.verdict import Limit, Verdict, format_reason_counts
from windlass.model.workload import Workload
from windlass.placement.empty_cluster import NO_NODE_LARGE_ENOUGH, TOO_LARGE, EmptyCluster
from windlass.placement.explain.budget_protection import make_preemption, protecting_budgets
from windlass.placement.explain.changes import find_changes
from windlass.placement.explain.dry_runs import DryRunBudget
from windlass.placement.explain.gpu_fragmentation import GPU_FRAGMENTED, GPU_FULL
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.limits import find_limits
from windlass.placement.explain.move_offers import MoveOffers
from windlass.placement.explain.node_reasons import NODE_REFUSAL_CODES, STORAGE_CODE, find_cause
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.explain.preemption_obstacles import PreemptionRules, find_obstacles
from windlass.placement.explain.quota_limits import exceeds_quota
from windlass.placement.explain.relief import find_relief
from windlass.placement.explain.remedies import CAPACITY_CODES, find_remedy
from windlass.placement.explain.stuck_pods import find_stuck_pods
from windlass.placement.gang import PendingPodSet
from windlass.placement.inter_pod import has_inter_pod_rules
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.context import Preemption
from windlass.placement.unhealthy_gpus import find_unhealthy_gpus
from windlass.placement.verdicts import reason_of
from windlass.queueing.outcome import (
    ADMISSION_DEFERRED,
    BEHIND_HEAD,
    LIMIT_REACHED,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    TOPOLOGY_NOFIT,
)
from windlass.queueing.placement_interface import PodSetChoice

MAX_EXPLAINED_HOLDS = 32
"""Holds of one plan that are explained; the others have only their code and their counts."""
CODES_NOT_ABOUT_REQUEST = frozenset(
    {
        QUEUE_MISSING,
        BEHIND_HEAD,
        ADMISSION_DEFERRED,
        LIMIT_REACHED,
        "DURATION_EXCEEDED",
        "GANG_INCOMPLETE",
        "JOB_SUSPENDED",
        "RESOURCE_QUOTA_EXCEEDED",
    }
    | {reason.code for reason in POD_REASONS if reason is not RESERVED_FOR_OTHERS}
)
"""Codes of holds that neither a smaller request nor the end of running work resolves."""
CODES_FIXED_BY_MOVES = frozenset({GPU_FRAGMENTED, GPU_FULL, TOPOLOGY_NOFIT, "CPU_MEM_INSUFFICIENT"})
"""Codes of holds that moving running pods may resolve."""

replace = msgspec.structs.replace


class Advisor:
    def __init__(self, overlay: Overlay, make: Callable[[], PostDecisionState]) -> None:
        """`make` builds the state after the decision; it is called only if a hold needs it."""
        self._overlay, self._make_state = overlay, make
        self._state: PostDecisionState | None = None
        self._offers: MoveOffers | None = None
        self._preemption: Preemption | None = None
        self._rules: PreemptionRules | None = None
        self._budget: DryRunBudget | None = None
        self._advice_by_request: dict[bytes, dict[str, Any]] = {}
        self._empty = EmptyCluster(overlay)
        self._cause_by_shape: dict[tuple[int, str], str] = {}
        """(shape of a single pod, code that the decision reported) → cause."""
        self._cause_by_request: dict[tuple[object, ...], str] = {}

    @property
    def overlay(self) -> Overlay:
        """The nodes as the decision leaves them."""
        return self._overlay

    def post_decision(self) -> PostDecisionState:
        if self._state is None:
            self._state = self._make_state()
            self._offers = MoveOffers(self._state)
            self._preemption = make_preemption(self._state)
            self._rules = PreemptionRules(self._state)
            self._budget = DryRunBudget(self._state.overlay.snapshot.nodes.size)
        return self._state

    # The cause, which becomes the code of the hold (rules in `cause`)

    def refine_single_pod(self, verdict: Verdict, row: int) -> Verdict:
        """The verdict with its cause as the code; computed once per shape, unless the pod has inter-pod rules."""
        shape = int(self._overlay.snapshot.pods.shape[row])
        if shape == UNREADABLE or not _is_about_nodes(verdict):
            return verdict
        cause = self._cause_by_shape.get((shape, verdict.code))
        if cause is None:
            pod = self._overlay.snapshot.pods.objects[row]
            pod_set = PendingPodSet("main", 1, pod, self._overlay.snapshot.shapes[shape])
            all_nodes = np.ones(verdict.nodes, dtype=np.bool_)
            cause = find_cause(self._overlay, [pod_set], all_nodes, verdict.code, self._empty)
            if not has_inter_pod_rules(pod):
                self._cause_by_shape[shape, verdict.code] = cause
        return replace(verdict, code=cause)

    def refine_hold(self, hold: Hold) -> Hold:
        """The hold with its cause as the code; computed once for workloads with the same request."""
        verdict = hold.verdict
        piece = self.post_decision().pending_piece(hold.workload) if _is_about_nodes(verdict) else None
        if piece is None:
            return hold
        try:
            return replace(hold, verdict=replace(verdict, code=self._cause_of_piece(piece, verdict.code)))
        except InputError:
            return hold  # the request can't be parsed, which is already the reason of the hold

    def _cause_of_piece(self, piece: Workload, reported: str) -> str:
        choices = tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
        pod_sets, _, _ = self.post_decision().placer.pending_pod_sets(piece, choices)
        if reported == TOO_LARGE and any(pod_set.topology is not None for pod_set in pod_sets):
            return reported  # too large for one domain: single nodes can't tell the cause
        shapes = ((pod_set.shape.key, pod_set.count) for pod_set in pod_sets)
        key = (reported, piece.namespace, piece.queue_name, *shapes)
        cause = self._cause_by_request.get(key)
        if cause is None or any(has_inter_pod_rules(pod_set.pod) for pod_set in pod_sets):
            allowed_nodes = self.post_decision().nodes_of_queue(piece)
            cause = find_cause(self._overlay, pod_sets, allowed_nodes, reported, self._empty)
            self._cause_by_request[key] = cause
        return cause

    # Limits, relief, changes and moves

    def explain(self, plan: Plan, most: int) -> Plan:
        """The plan with its first `most` holds explained. Call it before the next decision uses the score table."""
        if not most or not plan.holds:
            return plan
        first = (self.explain_hold(hold) for hold in plan.holds[:most])
        return replace(plan, holds=(*first, *plan.holds[most:]))

    def explain_hold(self, hold: Hold) -> Hold:
        """The hold with limits, relief, changes and moves in its verdict.

        All holds of a plan share one budget of dry runs, so explain them in the order of the plan.
        """
        piece = self.post_decision().pending_piece(hold.workload)
        assert self.post_decision().is_current, "another decision has used the table since"
        if piece is None or hold.verdict.limits:  # limits that the decision itself has named say all
            return replace(hold, verdict=replace(hold.verdict, is_explained=True))
        self.post_decision().select_kernels()
        try:
            with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
                return replace(hold, verdict=self._verdict(piece, hold.verdict))
        except InputError:  # the request can't be parsed, which is already the reason of the hold
            return replace(hold, verdict=replace(hold.verdict, is_explained=True))

    def _verdict(self, piece: Workload, verdict: Verdict) -> Verdict:
        """Computed once for workloads with the same request and the same hold."""
        key = self._request(piece, verdict)
        advice = self._advice_by_request.get(key) if key else None
        if advice is None:
            advice = self._advice(HeldWorkload(self.post_decision(), piece, verdict, self._budget))
            if key:
                self._advice_by_request[key] = advice
        refusals = verdict.refusals or advice["refusals"]
        return replace(verdict, is_explained=True, **{**advice, "refusals": refusals})

    def _request(self, piece: Workload, verdict: Verdict) -> bytes:
        """A key that is equal for workloads that get the same advice; empty where the advice can't be shared."""
        if self.post_decision().planned_starts or any(
            has_inter_pod_rules(pod_set.template) for pod_set in piece.pod_sets
        ):
            return b""
        pod_sets = [
            (pod_set.name, pod_set.count, pod_set.min_count, pod_set.topology, pod_set.template.spec)
            for pod_set in piece.pod_sets
        ]
        annotations = [pod_set.template.metadata.annotations for pod_set in piece.pod_sets]
        request = (piece.namespace, piece.queue_name, pod_sets, annotations, verdict.code, verdict.detail)
        return msgspec.json.encode(request, order="deterministic")

    def _advice(self, held: HeldWorkload) -> dict[str, Any]:
        """The fields to set on the verdict."""
        limits = find_limits(held)
        if held.verdict.code in CODES_NOT_ABOUT_REQUEST:
            return {"limits": limits, "remedy": find_remedy(held), "refusals": ()}
        infeasible = self._is_infeasible(held)
        assert self._offers is not None
        may_move = held.verdict.code in CODES_FIXED_BY_MOVES and not infeasible
        moves = self._offers.moves(held) if may_move else ()
        relief, changes = None if infeasible else find_relief(held), find_changes(held)
        return {
            "detail": _size_detail(held, limits) or _gang_detail(held),
            "limits": limits,
            "is_infeasible": infeasible,
            "relief": relief,
            "changes": changes,
            "moves": moves,
            "refusals": protecting_budgets(held, self._preemption),
            "obstacles": () if infeasible else self._obstacles(held),
            "remedy": "" if relief or changes or moves else find_remedy(held, infeasible),
        }

    def _obstacles(self, held: HeldWorkload) -> tuple[Obstacle, ...]:
        assert self._rules is not None
        codes = {*CAPACITY_CODES, QUOTA_INSUFFICIENT, TOPOLOGY_NOFIT}
        others = find_obstacles(held, self._rules) if held.verdict.code in codes else ()
        return (*find_unhealthy_gpus(held.state.overlay, held.pod_sets), *find_stuck_pods(held), *others)

    @staticmethod
    def _is_infeasible(held: HeldWorkload) -> bool:
        if held.verdict.code == TOO_LARGE or exceeds_quota(held):
            return True
        empty = EmptyCluster(held.state.overlay)
        if empty.never_fits(held.pod_sets) is not None:
            return True
        return empty.never_fits_topology(held.pod_sets) is not None


def _is_about_nodes(verdict: Verdict) -> bool:
    """Whether nodes were looked at: a missing claim, or one without a volume, holds a pod before that."""
    if verdict.code == STORAGE_CODE and not verdict.counts:
        return False
    return verdict.code in NODE_REFUSAL_CODES and verdict.nodes > 0


def _size_detail(held: HeldWorkload, limits: tuple[Limit, ...]) -> str:
    """The number for which no node is large enough; the decision itself takes no time to look for it."""
    size = next((limit for limit in limits if limit.kind == "size" and limit.resource), None)
    if size is None or held.verdict.detail != NO_NODE_LARGE_ENOUGH:
        return ""
    return f"no node has {size.needed} {size.resource}; the largest has {size.available}"


def _gang_detail(held: HeldWorkload) -> str:
    """How many pods of a gang fit, with reasons counted before any of its pods is placed.

    The decision counts nodes after placing the first pods of the gang, which would blame those pods.
    """
    detail, nodes = held.verdict.detail, held.state.overlay.snapshot.nodes.size
    counted = detail.startswith(f"0/{nodes} nodes are available") or (not detail and held.verdict.counts)
    if not counted or not held.pod_sets:
        return detail
    index = held.tightest_pod_set()
    pod_set, feasibility = held.pod_sets[index], held.feasibility(index)
    if pod_set.count < 2 or not feasibility.placeable:
        return detail
    counts = feasibility.reason_counts()
    words = format_reason_counts((reason_of(pod_set.shape, bit).kube_words, count) for bit, count in counts)
    reasons = f": {words}" if words else ""
    only = "only " if feasibility.placeable < pod_set.count else ""
    return f"{only}{feasibility.placeable} of {pod_set.count} pods fit{reasons}"
