"""Verdicts with what would help in them.

Made by `engine` with every decision. Two questions: `refined` finds the cause and is cheap; `explained` works out
everything else, for the first holds of a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from windlass.cluster.pod_table import UNREADABLE
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.plan import Plan
from windlass.model.reasons import NODE_REASONS, POD_REASONS, RESERVED_FOR_OTHERS, insufficient_reason
from windlass.model.verdict import Verdict, format_reason_counts
from windlass.model.workload import Workload
from windlass.placement.empty_cluster import TOO_LARGE, EmptyCluster
from windlass.placement.explain.budget_protection import make_preemption, protecting_budgets
from windlass.placement.explain.changes import find_changes
from windlass.placement.explain.dry_runs import DryRunBudget
from windlass.placement.explain.gpu_fragmentation import GPU_FRAGMENTED, GPU_FULL
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.limits import exceeds_quota, find_limits
from windlass.placement.explain.move_offers import MoveOffers
from windlass.placement.explain.node_refusals import find_cause
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.explain.relief import find_relief
from windlass.placement.explain.remedies import find_remedy
from windlass.placement.gang import PendingPodSet
from windlass.placement.inter_pod import has_inter_pod_rules
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.context import Preemption
from windlass.placement.verdicts import reason_of
from windlass.queueing.outcome import BEHIND_HEAD, QUEUE_MISSING, TOPOLOGY_NOFIT
from windlass.queueing.placement_interface import PodSetChoice

MAX_EXPLAINED_HOLDS = 32
"""Holds of one plan that are explained; those behind them have their code and their counts."""
CODES_NOT_ABOUT_REQUEST = frozenset(
    {QUEUE_MISSING, BEHIND_HEAD, "GANG_INCOMPLETE", "JOB_SUSPENDED", "RESOURCE_QUOTA_EXCEEDED"}
    | {reason.code for reason in POD_REASONS if reason is not RESERVED_FOR_OTHERS}
)
"""Codes of holds that no other request and nobody's end lifts."""
STORAGE_CODE = "STORAGE_INSUFFICIENT"
NODE_REFUSAL_CODES = frozenset(
    {reason.code for reason in NODE_REASONS}
    | {
        insufficient_reason(name).code
        for name in ("cpu", "ephemeral-storage", "pods", "nvidia.com/gpu", "other.com/x")
    }
    | {TOO_LARGE}
)
"""Codes of holds for which the nodes are asked what binds."""
CODES_FIXED_BY_MOVES = frozenset({GPU_FRAGMENTED, GPU_FULL, TOPOLOGY_NOFIT, "CPU_MEM_INSUFFICIENT"})
"""Codes of holds that moves may lift."""

replace = msgspec.structs.replace


class Advisor:
    def __init__(self, overlay: Overlay, make: Callable[[], PostDecisionState]) -> None:
        """`make` gives the decision as it was left; it is called only if something has to be tried on that."""
        self._overlay, self._make = overlay, make
        self._made: PostDecisionState | None = None
        self._offers: MoveOffers | None = None
        self._preemption: Preemption | None = None
        self._budget: DryRunBudget | None = None
        self._known: dict[bytes, dict[str, Any]] = {}
        self._empty = EmptyCluster(overlay)
        self._by_shape: dict[tuple[int, str], str] = {}
        """Shape of lone pods and the code that the decision came to → the cause."""
        self._by_request: dict[tuple[object, ...], str] = {}

    def post_decision(self) -> PostDecisionState:
        return self._after

    @property
    def _after(self) -> PostDecisionState:
        if self._made is None:
            self._made = self._make()
            self._offers = MoveOffers(self._made)
            self._preemption = make_preemption(self._made)
            self._budget = DryRunBudget(self._made.overlay.snapshot.nodes.size)
        return self._made

    # The cause as the code: what binds it, of all that nodes say (`cause`)

    def refine_single_pod(self, verdict: Verdict, row: int) -> Verdict:
        """Of a pod on its own, by its row; asked once for pods of one shape that nothing ties to others."""
        number = int(self._overlay.snapshot.pods.shape[row])
        if number == UNREADABLE or not _is_about_nodes(verdict):
            return verdict
        known = self._by_shape.get((number, verdict.code))
        if known is None:
            pod = self._overlay.snapshot.pods.objects[row]
            part = PendingPodSet("main", 1, pod, self._overlay.snapshot.shapes[number])
            everywhere = np.ones(verdict.nodes, dtype=np.bool_)
            known = find_cause(self._overlay, [part], everywhere, verdict.code, self._empty)
            if not has_inter_pod_rules(pod):
                self._by_shape[number, verdict.code] = known
        return replace(verdict, code=known)

    def refine_hold(self, hold: Hold) -> Hold:
        """Of a workload; asked once for those that ask for the same."""
        verdict = hold.verdict
        piece = self._after.pending_piece(hold.workload) if _is_about_nodes(verdict) else None
        if piece is None:
            return hold
        try:
            return replace(hold, verdict=replace(verdict, code=self._cause_of_piece(piece, verdict.code)))
        except InputError:
            return hold  # what it asks for can't be read, and that is what it is held for

    def _cause_of_piece(self, piece: Workload, literal: str) -> str:
        plain = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        parts, _, _ = self._after.placer.pending_pod_sets(piece, plain)
        if literal == TOO_LARGE and any(part.topology is not None for part in parts):
            return literal  # too large for one domain, whatever the nodes say
        asked = (
            literal,
            piece.namespace,
            piece.queue_name,
            *((part.shape.key, part.count) for part in parts),
        )
        known = self._by_request.get(asked)
        if known is None or any(has_inter_pod_rules(part.pod) for part in parts):
            among = self._after.nodes_of_queue(piece)
            known = find_cause(self._overlay, parts, among, literal, self._empty)
            self._by_request[asked] = known
        return known

    # What would help

    def explain(self, plan: Plan, most: int) -> Plan:
        """The plan with its first holds explained, so many at the most; to be called before the next decision."""
        if not most or not plan.holds:
            return plan
        first = (self.explain_hold(hold) for hold in plan.holds[:most])
        return replace(plan, holds=(*first, *plan.holds[most:]))

    def explain_hold(self, hold: Hold) -> Hold:
        """With everything in its verdict that binds it and would help. Trials are counted over all holds, so that the
        first ones have to be asked about first."""
        piece = self._after.pending_piece(hold.workload)
        assert self._after.is_current, "another decision has used the table since"
        if piece is None:
            return replace(hold, verdict=replace(hold.verdict, is_explained=True))
        self._after.select_kernels()
        try:
            with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
                return replace(hold, verdict=self._verdict(piece, hold.verdict))
        except InputError:  # what it asks for can't be read, and that is what it is held for
            return replace(hold, verdict=replace(hold.verdict, is_explained=True))

    def _verdict(self, piece: Workload, verdict: Verdict) -> Verdict:
        """Once for all that ask for the same and are held for the same."""
        key = self._request(piece, verdict)
        advice = self._known.get(key) if key else None
        if advice is None:
            advice = self._advice(HeldWorkload(self._after, piece, verdict, self._budget))
            if key:
                self._known[key] = advice
        refusals = verdict.refusals or advice["refusals"]
        return replace(verdict, is_explained=True, **{**advice, "refusals": refusals})

    def _request(self, piece: Workload, verdict: Verdict) -> bytes:
        """Equal for workloads that get the same advice; empty where that can't be said."""
        if self._after.planned_starts or any(has_inter_pod_rules(one.template) for one in piece.pod_sets):
            return b""
        sets = [
            (one.name, one.count, one.min_count, one.topology, one.template.spec) for one in piece.pod_sets
        ]
        notes = [one.template.metadata.annotations for one in piece.pod_sets]
        asked = (piece.namespace, piece.queue_name, sets, notes, verdict.code, verdict.detail)
        return msgspec.json.encode(asked, order="deterministic")

    def _advice(self, case: HeldWorkload) -> dict[str, Any]:
        """The fields of the verdict that are filled in here."""
        limits = find_limits(case)
        if case.verdict.code in CODES_NOT_ABOUT_REQUEST:
            return {"limits": limits, "remedy": find_remedy(case), "refusals": ()}
        infeasible = self._is_infeasible(case)
        assert self._offers is not None
        moves = (
            self._offers.moves(case) if case.verdict.code in CODES_FIXED_BY_MOVES and not infeasible else ()
        )
        relief, changes = None if infeasible else find_relief(case), find_changes(case)
        return {
            "detail": _counted_before(case),
            "limits": limits,
            "is_infeasible": infeasible,
            "relief": relief,
            "changes": changes,
            "moves": moves,
            "refusals": protecting_budgets(case, self._preemption),
            "remedy": "" if relief or changes or moves else find_remedy(case, infeasible),
        }

    @staticmethod
    def _is_infeasible(case: HeldWorkload) -> bool:
        if case.verdict.code == TOO_LARGE or exceeds_quota(case):
            return True
        empty = EmptyCluster(case.state.overlay)
        if empty.never_fits(case.pod_sets) is not None:
            return True
        return empty.never_fits_topology(case.pod_sets) is not None


def _is_about_nodes(verdict: Verdict) -> bool:
    """A claim that is missing, or that has no volume, holds a pod before any node is looked at."""
    if verdict.code == STORAGE_CODE and not verdict.counts:
        return False
    return verdict.code in NODE_REFUSAL_CODES and verdict.nodes > 0


def _counted_before(case: HeldWorkload) -> str:
    """The count of nodes by reason as it was before any pod of a gang was placed, where the decision counted after."""
    detail, nodes = case.verdict.detail, case.state.overlay.snapshot.nodes.size
    counted = detail.startswith(f"0/{nodes} nodes are available") or (not detail and case.verdict.counts)
    if not counted or not case.pod_sets:
        return detail
    index = case.tightest_pod_set()
    part, space = case.pod_sets[index], case.feasibility(index)
    if part.count < 2 or not space.placeable:
        return detail
    words = format_reason_counts(
        (reason_of(part.shape, bit).kube, count) for bit, count in space.reason_counts()
    )
    verb = "finds" if space.placeable == 1 else "find"
    reasons = f": {words}" if words else ""
    return f"{space.placeable} of {part.count} pods {verb} a node{reasons}"
