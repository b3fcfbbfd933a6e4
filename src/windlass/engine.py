"""`decide`: from a snapshot to a plan. The main path, a pure function.

    collect ─► order ─► quota and flavors · place · preempt, cycle by cycle ─► plan ahead ─► notices ─► ask ─► plan

The live scheduler, the embedded cluster, the simulator, `why` and `plan` all call it, and nothing else decides. No
clock, no randomness but a seed in the config, no I/O: the same snapshot, config and time give the same plan. The cache
only saves work; an empty one gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from windlass import jit
from windlass.cluster.node_state import Ints
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import Defragmentation, WorkloadClass
from windlass.model.decision import Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.workload import Workload
from windlass.placement.asks import AskSettings, with_asks
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.decision_context import DecisionContext, GangSettings
from windlass.placement.decision_pass import run_pass
from windlass.placement.decisions import WorkloadDecisions, build_decisions
from windlass.placement.defrag.proactive import with_moves
from windlass.placement.explain import Advisor, make_single_pod_holds, single_pod_state, with_api_refusals
from windlass.placement.explain.unmatched_selectors import with_selector_of_configuration
from windlass.placement.grants import GrantUnpacker
from windlass.placement.late_pods import place_late_pods
from windlass.placement.notices import with_notices
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, USES_MIX, PlacementConfig, make_scoring_rule
from windlass.placement.preemption.context import Preemption, merge_evictions
from windlass.placement.preemption.single_pods import place_single_pods
from windlass.placement.resized_workloads import resize_workloads
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.single_pod_placer import SinglePodResults
from windlass.placement.stop_conditions import StopConditions
from windlass.placement.timeplan.run_limits import PlannedStartSettings, with_run_estimates
from windlass.placement.timeplan.single_pods import (
    any_run_limit,
    mark_reserved_for_others,
    single_pods_to_plan,
)
from windlass.placement.timeplan.start_planner import PlannedOutcomes, StartPlanner
from windlass.placement.workload_mix import WorkloadMix, mix_arrays, mix_of
from windlass.placement.workload_pieces import is_single_pod
from windlass.queueing.config import QueueConfig
from windlass.queueing.queue_sort import (
    QueueSortKey,
    single_pods_between,
    sort_pending_pods,
    sorts_before_all,
    waiting_sort_keys,
)

MAX_INTERPRETED_CELLS = 8_000
"""Nodes and cells (nodes times shapes) up to which plain Python is faster than loading the compiled kernels."""
_NO_ROWS = np.empty(0, dtype=np.int64)
MAX_PASSES = 4
"""After so many passes that don't agree on who starts now and who later, fewer planned starts are kept."""
LAST_GUARDED = (1, 0)
"""How many then: the first, as in EASY backfill; and none, if that one turns out later all the same."""


class EngineConfig(msgspec.Struct, frozen=True):
    placement: PlacementConfig = PlacementConfig()
    expected_mix: WorkloadMix | None = None
    """The pods to expect, for policies that use it; None: the mix of all pods decided so far."""
    queues: QueueConfig = QueueConfig()
    gangs: GangSettings = GangSettings()
    classes: tuple[WorkloadClass, ...] = ()
    """Workloads with a placement policy of their own."""
    asks: AskSettings = AskSettings()
    """How long victims that ask for it get to write a checkpoint."""
    defrag: Defragmentation = Defragmentation()
    """Whether running pods may be moved for pending ones."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that the scheduler uses; the snapshot has no others."""
    max_explained_holds: int | None = 0
    """How many holds are explained, the first in order. None: the plan has no holds at all."""

    @property
    def reports_holds(self) -> bool:
        # Proactive defragmentation moves pods for workloads that are held.
        return self.max_explained_holds is not None or self.defrag.proactive


class EngineCache:
    """Work kept from one decision to the next, for successive snapshots of one store."""

    def __init__(self) -> None:
        self._table: ScoreTable | None = None
        self._table_key: tuple[object, ...] = ()
        self.decision_cache = DecisionCache()
        self.cells_evaluated = 0
        """Nodes and cells evaluated so far: with many small decisions, compiled kernels pay off, too."""
        self._unpacker: GrantUnpacker | None = None

    def grant_unpacker(self, snapshot: Snapshot) -> GrantUnpacker:
        self._unpacker = (
            self._unpacker.for_snapshot(snapshot) if self._unpacker is not None else GrantUnpacker(snapshot)
        )
        return self._unpacker

    def score_table(self, snapshot: Snapshot, config: EngineConfig, mix: WorkloadMix) -> ScoreTable:
        key = (
            config.placement,
            config.classes,
            mix,
            len(snapshot.gpu_models.names),
            snapshot.node_state.free.shape,
        )
        table = self._table
        is_stale = table is None or table.nodes is not snapshot.nodes or table.listers is not snapshot.listers
        if table is None or is_stale or key != self._table_key:
            strategies = ScorerSelector(SCORERS[config.placement.policy], config.classes)
            arrays = mix_arrays(mix, snapshot.gpu_models, snapshot.node_state)
            table = ScoreTable(snapshot, arrays, strategies)
            self._table, self._table_key = table, key
        return table


def decide(snapshot: Snapshot, config: EngineConfig, now: float, cache: EngineCache | None = None) -> Plan:
    """Every pending pod is bound to a node or held with a verdict; the first holds are explained."""
    plan, advisor = decide_without_explanations(snapshot, config, now, cache)
    return plan if advisor is None else advisor.explain(plan, config.max_explained_holds or 0)


def decide_without_explanations(
    snapshot: Snapshot, config: EngineConfig, now: float, cache: EngineCache | None = None
) -> tuple[Plan, Advisor | None]:
    """As `decide`, with what explains the holds instead of explanations: for a loop that executes the plan first, and
    explains it before its next decision. None where there is nothing to decide."""
    cache = cache or EngineCache()
    if not snapshot.workloads and not snapshot.reservations and not len(snapshot.pods.pending()):
        return Plan(), None
    planned_starts = with_run_estimates(config.gangs.planned_starts, snapshot.run_times, int(now))
    waiting = collect_pending(snapshot, planned_starts, requeues_at_creation=config.queues.requeues_at_creation)
    before, after = waiting.pods_before_workloads, waiting.pods_after_workloads
    with np.errstate(over="ignore"):  # the tie-breaking hash in the kernels overflows on purpose
        overlay = _make_overlay(snapshot, config, cache, waiting.pending_workloads)
        overlay.now = int(now)
        preemption = Preemption(overlay, config.queues, int(now))
        placed_before = place_single_pods(overlay, before, preemption)
        # These binds wait only for victims that are chosen up to here; later evictions are not theirs.
        victims = _victims_by_node(preemption.victims_by_node)
        binds = _binds(cache.grant_unpacker(snapshot), snapshot, before, placed_before, victims)
        refused = before[placed_before.failure >= 0]
        decided = _decide_workloads(overlay, waiting, config, planned_starts, int(now), preemption, refused)
        placed_after = place_single_pods(overlay, after, preemption)
        mark_reserved_for_others(overlay, after, placed_after, decided.blocked)
        advisor = Advisor(
            overlay,
            lambda: decided.post_decision or single_pod_state(overlay, config.queues, planned_starts, int(now)),
        )
        holds: list[Hold] = []
        if config.reports_holds:
            holds += make_single_pod_holds(snapshot, before, placed_before, advisor)
            holds += map(advisor.refine_hold, decided.holds)
            holds += make_single_pod_holds(snapshot, after, placed_after, advisor)
            holds = with_api_refusals(holds, snapshot)
            if config.node_selector and not snapshot.nodes.size:
                holds = list(with_selector_of_configuration(holds, config.node_selector))
    victims = _victims_by_node(decided.victims_by_node, preemption.victims_by_node)
    binds_after = _binds(cache.grant_unpacker(snapshot), snapshot, after, placed_after, victims)
    plan = Plan(
        binds=(*binds, *decided.binds, *binds_after),
        holds=tuple(holds),
        admits=decided.admits,
        evicts=tuple(merge_evictions([*decided.evicts, *preemption.evicts()])),
        reserves=decided.reserves,
    )
    evicted = {evict.workload for evict in plan.evicts}
    plan = replace(plan, resizes=tuple(resize_workloads(snapshot.workloads, evicted)))
    plan = with_moves(plan, advisor.post_decision, config.defrag)
    plan, leave_by = with_notices(plan, snapshot, int(now), overlay.pod_rows, advisor.post_decision)
    return with_asks(plan, snapshot, config.asks, int(now), overlay.pod_rows, leave_by), advisor


def _make_overlay(snapshot: Snapshot, config: EngineConfig, cache: EngineCache, pending: int) -> Overlay:
    table = cache.score_table(snapshot, config, _expected_mix(snapshot, config))
    rule = make_scoring_rule(config.placement, snapshot.node_state)
    cache.cells_evaluated += snapshot.nodes.size * (1 + pending + _max_pending_shapes(snapshot))
    kernels = jit.kernels(cache.cells_evaluated <= MAX_INTERPRETED_CELLS)
    return Overlay(snapshot, table, rule, kernels, cache.decision_cache)


class PendingWork(NamedTuple):
    """What is to be decided, in order: urgent single pods, then workloads, then the other single pods."""

    workloads: list[Workload]
    """Gangs and queued workloads, also running ones; and single pods that are decided one by one."""
    pods_before_workloads: Ints
    """Rows of single pods that come before all workloads."""
    pods_after_workloads: Ints
    """Rows of the other single pods."""
    pending_workloads: int
    """How many of the workloads are pending, without single pods."""
    needs_admission_cycles: bool
    """False where all workloads run, are complete and in no queue."""
    has_run_limits: bool
    """Whether a single pod declares a run limit."""


def collect_pending(
    snapshot: Snapshot, planned_starts: PlannedStartSettings, *, requeues_at_creation: bool = False
) -> PendingWork:
    grouped: list[Workload] = []
    single_pods: list[Workload] = []
    workloads: Iterable[Workload] = snapshot.workloads
    if requeues_at_creation:
        workloads = [replace(known, queued_at=known.created) if known.requeues else known for known in workloads]
    for workload in workloads:
        (single_pods if is_single_pod(workload) else grouped).append(workload)
    sort_keys = waiting_sort_keys(grouped)
    pods_to_plan = single_pods_to_plan(snapshot, grouped, single_pods, planned_starts)
    pods = (*pods_to_plan, *single_pods_between(sort_keys, single_pods))
    one_by_one = list({pod.key: pod for pod in pods}.values())
    before_workloads, after_workloads = _single_pod_rows(snapshot, grouped, one_by_one, sort_keys)
    pending = sum(1 for workload in grouped if workload.admission is None)
    # The other pending pods are members of gangs. Where no gang is pending, they came after their gang had started.
    collected = len(before_workloads) + len(after_workloads) + len(one_by_one)
    has_late_pods = collected < len(snapshot.pods.pending())
    any_queued = any(workload.queue_name for workload in grouped)
    return PendingWork(
        [*grouped, *one_by_one],
        before_workloads,
        after_workloads,
        pending,
        needs_admission_cycles=bool(pending or one_by_one or has_late_pods or any_queued),
        has_run_limits=any_run_limit(single_pods),
    )


def _decide_workloads(
    overlay: Overlay,
    waiting: PendingWork,
    config: EngineConfig,
    planned_starts: PlannedStartSettings,
    now: int,
    preemption: Preemption,
    refused: Ints,
) -> WorkloadDecisions:
    snapshot = overlay.snapshot
    if not waiting.workloads and not snapshot.reservations and not waiting.has_run_limits:
        return WorkloadDecisions()
    settings = msgspec.structs.replace(config.gangs, planned_starts=planned_starts)
    if not waiting.needs_admission_cycles and not snapshot.reservations and not waiting.has_run_limits:
        return _stop_running_gangs(overlay, waiting, settings, now, preemption)
    context = DecisionContext(overlay, waiting.workloads, config.queues, now, settings, preemption, refused)
    late = place_late_pods(context)
    decided = build_decisions(context, decide_with_backfill(context), late, config.reports_holds)
    preemption.record_decisions(decided.evicts, decided.admits)
    return decided


def _stop_running_gangs(
    overlay: Overlay, waiting: PendingWork, settings: GangSettings, now: int, preemption: Preemption
) -> WorkloadDecisions:
    """Where only single pods are pending, all else to decide is which running gangs have to stop."""
    rows, snapshot = overlay.pod_rows(), overlay.snapshot
    stop_conditions = StopConditions(
        snapshot, rows, now, settings.grace_seconds, settings.planned_starts, settings.readiness
    )
    victims = preemption.victims
    running = {workload.key: workload for workload in waiting.workloads if workload.key not in victims}
    evicts = []
    for workload, reason in stop_conditions.workloads_to_stop(running, ()):
        keys = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys if key in rows]
        pods = tuple(key for key in keys if snapshot.pods.node[rows[key]] >= 0)
        evicts.append(Evict(workload.key, pods, "", reason))
    preemption.record_decisions(evicts, ())
    return WorkloadDecisions(evicts=tuple(evicts))


def decide_with_backfill(context: DecisionContext) -> PlannedOutcomes:
    """Quota, placement and preemption for all pending workloads, until none is delayed by one that comes after it.

    As in Slurm's backfill, a waiting workload gets the earliest start that the known ends of running workloads allow;
    a later one may run now only if that delays no planned start. Where nothing has a known end, one pass is enough.
    """
    starts = StartPlanner(
        context.occupancy,
        context.config,
        [*context.pieces, *context.running_single_pods],
        context.snapshot.reservations,
    )
    checkpoint = context.occupancy.checkpoint()
    outcomes = run_pass(context, starts.guard())
    for first in (*[None] * MAX_PASSES, *LAST_GUARDED):
        if not starts.plan(outcomes):
            break
        context.occupancy.rollback(checkpoint)
        outcomes = run_pass(context, starts.guard(outcomes, first))
    else:
        starts.plan(outcomes)
    return starts.planned_outcomes(outcomes)


def _victims_by_node(*by_node: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Node → victims that have to end before anything else is bound there."""
    nodes = dict.fromkeys(node for victims in by_node for node in victims)
    return {node: tuple(sorted({key for keys in by_node for key in keys.get(node, ())})) for node in nodes}


def _max_pending_shapes(snapshot: Snapshot) -> int:
    """Upper bound of the number of shapes: of pending pods, and of pending workloads without pods."""
    pending_workloads = [workload for workload in snapshot.workloads if workload.admission is None]
    without_pods = sum(1 for workload in pending_workloads if not workload.pod_sets[0].pod_keys)
    pending = snapshot.pods.pending()
    return without_pods + len(set(snapshot.pods.shape[pending].tolist()))


def _single_pod_rows(
    snapshot: Snapshot,
    grouped: Sequence[Workload],
    one_by_one: Sequence[Workload],
    sort_keys: Sequence[QueueSortKey],
) -> tuple[Ints, Ints]:
    """Rows of pending single pods: those before all workloads with these sort keys, and the rest."""
    if not grouped and not one_by_one and not snapshot.reservations:
        none = np.zeros(len(snapshot.pods.node), dtype=np.bool_)
        return sort_pending_pods(snapshot, none), sort_pending_pods(snapshot)
    pod_sets = [pod_set for workload in (*grouped, *one_by_one) for pod_set in workload.pod_sets]
    members = {key for pod_set in pod_sets for key in pod_set.pod_keys}
    pending, keys = snapshot.pods.pending(), snapshot.pods.keys
    is_single = np.zeros(len(snapshot.pods.node), dtype=np.bool_)
    is_single[pending] = [keys[row] not in members for row in pending.tolist()]
    if not is_single.any():
        return _NO_ROWS, _NO_ROWS
    urgent = sorts_before_all(snapshot, sort_keys)
    if snapshot.reservations:
        urgent &= False  # reservations are planned with the workloads, and single pods must not take their nodes
    return sort_pending_pods(snapshot, is_single & urgent), sort_pending_pods(snapshot, is_single & ~urgent)


def _expected_mix(snapshot: Snapshot, config: EngineConfig) -> WorkloadMix:
    if config.placement.policy not in USES_MIX:
        return WorkloadMix()
    if config.expected_mix is not None:
        return config.expected_mix
    counts = snapshot.decided_by_shape.tolist()
    return mix_of((snapshot.shapes[number], count) for number, count in enumerate(counts) if count)


def _binds(
    unpacker: GrantUnpacker,
    snapshot: Snapshot,
    queue: Ints,
    placed: SinglePodResults,
    victims_by_node: Mapping[int, tuple[str, ...]],
) -> list[Bind]:
    """Binds of placed single pods, which wait (`after`) for the victims on their node."""
    if not len(queue):
        return []
    names, keys = snapshot.nodes.names, snapshot.pods.keys
    at = np.flatnonzero(placed.node >= 0)
    rows, nodes = queue[at], placed.node[at]
    grants = unpacker.grants_of_all(rows, nodes, placed.grant[at])
    binds = [
        Bind(keys[row], names[node], granted)
        for row, node, granted in zip(rows.tolist(), nodes.tolist(), grants, strict=True)
    ]
    for index in np.flatnonzero(np.isin(nodes, list(victims_by_node))).tolist() if victims_by_node else ():
        node = int(nodes[index])
        # Victims evicted for a pod further back in the order are not needed for this bind.
        preempted = placed.preempted_nodes.get(node, ())
        evicted_later = [victims for since, victims in preempted if since > at[index]]
        after = [key for key in victims_by_node[node] if not any(key in victims for victims in evicted_later)]
        binds[index] = msgspec.structs.replace(binds[index], after=tuple(after))
    return binds
