"""`decide`: from what is, what to do. The main path, and a pure one.

    collect ─► order ─► quota and flavors · place · preempt, round by round ─► plan ahead ─► explain ─► plan

The live scheduler, the embedded cluster, the simulator, `why` and `plan` all call this function, and nothing else
decides. No clock, no randomness but a seed in the config, no I/O: the same snapshot, config and time give the same
plan. The memo only saves work; an empty one gives the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.node_state import Ints
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import Defragmentation, WorkloadClass
from windlass.model.decision import Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.workload import Workload
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.decision_context import DecisionContext, GangSettings
from windlass.placement.decision_pass import run_pass
from windlass.placement.decisions import WorkloadDecisions, build_decisions
from windlass.placement.defrag.proactive import with_moves
from windlass.placement.explain import Advisor, make_single_pod_holds, single_pod_state, with_api_refusals
from windlass.placement.grants import GrantUnpacker
from windlass.placement.late_pods import place_late_pods
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, USES_MIX, PlacementConfig, make_scoring_rule
from windlass.placement.preemption.context import Preemption, merge_evictions
from windlass.placement.preemption.single_pods import place_single_pods
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
"""Nodes and cells (nodes times shapes) up to which plain Python is quicker than loading the compiled kernels."""


MAX_PASSES = 4
"""After so many, what still delays a planned start is held instead of moved."""


class EngineConfig(msgspec.Struct, frozen=True):
    placement: PlacementConfig = PlacementConfig()
    expected_mix: WorkloadMix | None = None
    """The workload to expect; None: what has been seen so far."""
    queues: QueueConfig = QueueConfig()
    gangs: GangSettings = GangSettings()
    classes: tuple[WorkloadClass, ...] = ()
    """Workloads that are placed by a rule of their own."""
    defrag: Defragmentation = Defragmentation()
    """Whether running pods may be moved for what waits."""
    max_explained_holds: int | None = 0
    """So many holds, the first in order, are explained. None: no holds are told at all, for whoever reads none."""

    @property
    def reports_holds(self) -> bool:
        return (
            self.max_explained_holds is not None or self.defrag.proactive
        )  # pods are moved for what is held


class EngineCache:
    """Work kept from one decision to the next. It belongs to one stream of snapshots of one store."""

    def __init__(self) -> None:
        self._table: ScoreTable | None = None
        self._key: tuple[object, ...] = ()
        self.decision_cache = DecisionCache()
        self.cells_evaluated = 0
        """Nodes and cells looked at so far: who decides often soon wants compiled kernels."""
        self._reader: GrantUnpacker | None = None

    def grant_unpacker(self, snapshot: Snapshot) -> GrantUnpacker:
        self._reader = (
            self._reader.for_snapshot(snapshot) if self._reader is not None else GrantUnpacker(snapshot)
        )
        return self._reader

    def score_table(self, snapshot: Snapshot, config: EngineConfig, expected: WorkloadMix) -> ScoreTable:
        key = (
            config.placement,
            config.classes,
            expected,
            len(snapshot.gpu_models.names),
            snapshot.node_state.free.shape,
        )
        table = self._table
        fresh = table is None or table.facts is not snapshot.nodes or table.objects is not snapshot.listers
        if table is None or fresh or key != self._key:
            strategies = ScorerSelector(SCORERS[config.placement.policy], config.classes)
            table = ScoreTable(
                snapshot, mix_arrays(expected, snapshot.gpu_models, snapshot.node_state), strategies
            )
            self._table, self._key = table, key
        return table


def decide(snapshot: Snapshot, config: EngineConfig, now: float, cache: EngineCache | None = None) -> Plan:
    """What to do now: every pending pod is bound to a node or held with a verdict, the first holds explained."""
    plan, advisor = decide_without_explanations(snapshot, config, now, cache)
    return plan if advisor is None else advisor.explain(plan, config.max_explained_holds or 0)


def decide_without_explanations(
    snapshot: Snapshot, config: EngineConfig, now: float, cache: EngineCache | None = None
) -> tuple[Plan, Advisor | None]:
    """The same without explanations, and what makes them: for a loop that acts first and explains when there is time,
    before its next decision. None where nothing waits."""
    cache = cache or EngineCache()
    if not snapshot.workloads and not snapshot.reservations and not len(snapshot.pods.pending()):
        return Plan(), None  # pods that leave are news, too
    time = with_run_estimates(config.gangs.planned_starts, snapshot.run_times, int(now))
    waiting = collect_pending(snapshot, time)
    table = cache.score_table(snapshot, config, _expected(snapshot, config))
    rule = make_scoring_rule(config.placement, snapshot.node_state)
    cache.cells_evaluated += snapshot.nodes.size * (
        1 + waiting.pending_workloads + _shapes_to_look_at(snapshot)
    )
    with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
        overlay = Overlay(
            snapshot,
            table,
            rule,
            jit.kernels(cache.cells_evaluated <= MAX_INTERPRETED_CELLS),
            cache.decision_cache,
        )
        preemption = Preemption(overlay, config.queues, int(now))
        first = place_single_pods(overlay, waiting.pods_before_workloads, preemption)
        binds = _binds(
            cache.grant_unpacker(snapshot),
            snapshot,
            waiting.pods_before_workloads,
            first,
            _leaving(preemption.victims_by_node),
        )
        decided = _decide_workloads(overlay, waiting, config, time, int(now), preemption)
        last = place_single_pods(overlay, waiting.pods_after_workloads, preemption)
        mark_reserved_for_others(overlay, waiting.pods_after_workloads, last, decided.blocked)
        advisor = Advisor(
            overlay, lambda: decided.post_decision or single_pod_state(overlay, config.queues, time, int(now))
        )
        holds: list[Hold] = []
        if config.reports_holds:
            holds += make_single_pod_holds(snapshot, waiting.pods_before_workloads, first, advisor)
            holds += map(advisor.refine_hold, decided.holds)
            holds += make_single_pod_holds(snapshot, waiting.pods_after_workloads, last, advisor)
            holds = with_api_refusals(holds, snapshot)
    leaving = _leaving(decided.victims_by_node, preemption.victims_by_node)
    plan = Plan(
        binds=(
            *binds,
            *decided.binds,
            *_binds(cache.grant_unpacker(snapshot), snapshot, waiting.pods_after_workloads, last, leaving),
        ),
        holds=tuple(holds),
        admits=decided.admits,
        evicts=tuple(merge_evictions([*decided.evicts, *preemption.evicts()])),
        reserves=decided.reserves,
    )
    return with_moves(plan, advisor.post_decision, config.defrag), advisor


class PendingWork(NamedTuple):
    """What is to be decided, in its order: urgent pods, then workloads, then the other pods."""

    workloads: list[Workload]
    """Gangs and queued work, those that run among them; and lone pods that are decided one by one."""
    pods_before_workloads: Ints
    """Rows of lone pods that come before all of those."""
    pods_after_workloads: Ints
    """Rows of the other lone pods."""
    pending_workloads: int
    """Workloads that wait."""
    needs_admission_cycles: bool
    """Not all that is to be decided on is complete, runs, and is in no queue."""
    has_run_limits: bool
    """Some lone pod says for how long it runs."""


def collect_pending(snapshot: Snapshot, time: PlannedStartSettings) -> PendingWork:
    together: list[Workload] = []
    pods: list[Workload] = []
    for workload in snapshot.workloads:
        (pods if is_single_pod(workload) else together).append(workload)
    turns = waiting_sort_keys(together)
    timed = single_pods_to_plan(snapshot, together, pods, time)
    one_by_one = list({one.key: one for one in (*timed, *single_pods_between(turns, pods))}.values())
    urgent, loose = _alone(snapshot, together, one_by_one, turns)
    pending = sum(1 for one in together if one.admission is None)
    is_late = len(urgent) + len(loose) + len(one_by_one) < len(snapshot.pods.pending())
    needs_rounds = bool(pending or one_by_one or is_late or any(one.queue_name for one in together))
    return PendingWork([*together, *one_by_one], urgent, loose, pending, needs_rounds, any_run_limit(pods))


def _decide_workloads(
    overlay: Overlay,
    waiting: PendingWork,
    config: EngineConfig,
    time: PlannedStartSettings,
    now: int,
    preemption: Preemption,
) -> WorkloadDecisions:
    """Nothing where there are none: neither gangs nor queued work, and nothing that has to do with time."""
    snapshot = overlay.snapshot
    if not waiting.workloads and not snapshot.reservations and not waiting.has_run_limits:
        return WorkloadDecisions()
    settings = msgspec.structs.replace(config.gangs, planned_starts=time)
    if not waiting.needs_admission_cycles and not snapshot.reservations and not waiting.has_run_limits:
        return _stopped(overlay, waiting, settings, now, preemption)
    work = DecisionContext(overlay, waiting.workloads, config.queues, now, settings, preemption)
    late = place_late_pods(work)
    decided = build_decisions(work, decide_with_backfill(work), late, config.reports_holds)
    preemption.record_decisions(decided.evicts, decided.admits)
    return decided


def _stopped(
    overlay: Overlay, waiting: PendingWork, settings: GangSettings, now: int, preemption: Preemption
) -> WorkloadDecisions:
    """Where nothing waits but lone pods, all that is left to decide is whether a gang that runs has to stop."""
    rows, snapshot = overlay.pod_rows(), overlay.snapshot
    lifetimes = StopConditions(snapshot, rows, now, settings.grace_seconds, settings.planned_starts)
    whole = {one.key: one for one in waiting.workloads if one.key not in preemption.victims}
    evicts = []
    for workload, reason in lifetimes.workloads_to_stop(whole, ()):
        names = [name for one in workload.pod_sets for name in one.pod_keys if name in rows]
        pods = tuple(name for name in names if snapshot.pods.node[rows[name]] >= 0)
        evicts.append(Evict(workload.key, pods, "", reason))
    preemption.record_decisions(evicts, ())
    return WorkloadDecisions(evicts=tuple(evicts))


def decide_with_backfill(work: DecisionContext) -> PlannedOutcomes:
    """Quota, place and preemption for everything that waits, until nobody is delayed by one behind it.

    As in Slurm's backfill, who waits gets the earliest start that the known ends of running work allow; one behind it
    may run now only if that delays none of these. Where nothing has a known end, one pass is the answer.
    """
    starts = StartPlanner(
        work.occupancy, work.config, [*work.pieces, *work.running_single_pods], work.snapshot.reservations
    )
    mark = work.occupancy.checkpoint()
    outcomes = run_pass(work, starts.guard())
    for _ in range(MAX_PASSES):
        if not starts.plan(outcomes):
            return starts.planned_outcomes(outcomes)
        work.occupancy.rollback(mark)
        outcomes = run_pass(work, starts.guard(outcomes))
    starts.plan(outcomes)
    return starts.planned_outcomes(starts.hold_delaying_admissions(outcomes))


def _leaving(*by_node: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Node → workloads that have to be gone before anything else is bound there."""
    nodes = dict.fromkeys(node for each in by_node for node in each)
    return {node: tuple(sorted({key for each in by_node for key in each.get(node, ())})) for node in nodes}


def _shapes_to_look_at(snapshot: Snapshot) -> int:
    """At the most: of pods that wait, and of workloads that have no pods yet."""
    podless = sum(1 for one in snapshot.workloads if one.admission is None and not one.pod_sets[0].pod_keys)
    pending = snapshot.pods.pending()
    return podless + len(set(snapshot.pods.shape[pending].tolist()))


def _alone(
    snapshot: Snapshot,
    together: Sequence[Workload],
    one_by_one: Sequence[Workload],
    turns: Sequence[QueueSortKey],
) -> tuple[Ints, Ints]:
    """Pending pods that are on their own: those before all that waits in queues and gangs, and the rest."""
    if not together and not one_by_one and not snapshot.reservations:
        return sort_pending_pods(
            snapshot, np.zeros(len(snapshot.pods.node), dtype=np.bool_)
        ), sort_pending_pods(snapshot)
    members = {
        key for one in (*together, *one_by_one) for pod_set in one.pod_sets for key in pod_set.pod_keys
    }
    pending, keys = snapshot.pods.pending(), snapshot.pods.keys
    alone = np.zeros(len(snapshot.pods.node), dtype=np.bool_)
    alone[pending] = [keys[row] not in members for row in pending.tolist()]
    urgent = sorts_before_all(snapshot, turns)
    if snapshot.reservations:
        urgent &= False  # they are decided in time, with the gangs
    return sort_pending_pods(snapshot, alone & urgent), sort_pending_pods(snapshot, alone & ~urgent)


def _expected(snapshot: Snapshot, config: EngineConfig) -> WorkloadMix:
    if config.placement.policy not in USES_MIX:
        return WorkloadMix()
    if config.expected_mix is not None:
        return config.expected_mix
    counts = snapshot.decided_by_shape.tolist()
    return mix_of((snapshot.shapes[number], count) for number, count in enumerate(counts) if count)


def _binds(
    reader: GrantUnpacker,
    snapshot: Snapshot,
    queue: Ints,
    placed: SinglePodResults,
    leaving: Mapping[int, tuple[str, ...]],
) -> list[Bind]:
    """`leaving`: node → workloads that have to be gone before anything else is bound there."""
    names, keys = snapshot.nodes.names, snapshot.pods.keys
    at = np.flatnonzero(placed.node >= 0)
    rows, nodes = queue[at], placed.node[at]
    grants = reader.grants_of_all(rows, nodes, placed.grant[at])
    binds = [
        Bind(keys[row], names[node], granted)
        for row, node, granted in zip(rows.tolist(), nodes.tolist(), grants, strict=True)
    ]
    for index in np.flatnonzero(np.isin(nodes, list(leaving))).tolist() if leaving else ():
        later = [
            gone for since, gone in placed.preempted_nodes.get(int(nodes[index]), ()) if since > at[index]
        ]
        after = [key for key in leaving[int(nodes[index])] if not any(key in gone for gone in later)]
        binds[index] = msgspec.structs.replace(binds[index], after=tuple(after))
    return binds
