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
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints
from windlass.model.configuration import Defragmentation, WorkloadClass
from windlass.model.decision import Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.workload import Workload
from windlass.placement.decided import WorkloadDecisions, decisions_of
from windlass.placement.defrag.proactive import with_moves
from windlass.placement.explain import Advisor, lone_holds, lone_room, with_refusals
from windlass.placement.grants import GrantReader
from windlass.placement.late_pods import seat_late_pods
from windlass.placement.lifetimes import Lifetimes
from windlass.placement.mix import WorkloadMix, mix_arrays, mix_of
from windlass.placement.overlay import Overlay
from windlass.placement.pieces import is_alone
from windlass.placement.place import Placed
from windlass.placement.policies import SCORERS, USES_MIX, PlacementConfig, make_rule
from windlass.placement.preemption.alone import place_alone
from windlass.placement.preemption.context import Preemption, merged
from windlass.placement.recall import Recall
from windlass.placement.rounds import decide_once
from windlass.placement.strategy import Strategies
from windlass.placement.table import ScoreTable
from windlass.placement.timeplan.alone import decided_in_time, has_ends, note_reserved
from windlass.placement.timeplan.planned import InTime, PlannedStarts
from windlass.placement.timeplan.terms import TimeSettings, with_collected
from windlass.placement.work import GangSettings, Work
from windlass.queueing.config import QueueConfig
from windlass.queueing.order import Turn, before_all, between, order, waiting_turns

SMALL = 8_000
"""Nodes and cells (nodes times shapes) up to which plain Python is quicker than loading the compiled kernels."""


PASSES = 4
"""After so many, what still delays a planned start is held instead of moved."""


class EngineConfig(msgspec.Struct, frozen=True):
    placement: PlacementConfig = PlacementConfig()
    mix: WorkloadMix | None = None
    """The workload to expect; None: what has been seen so far."""
    queues: QueueConfig = QueueConfig()
    gangs: GangSettings = GangSettings()
    classes: tuple[WorkloadClass, ...] = ()
    """Workloads that are placed by a rule of their own."""
    defrag: Defragmentation = Defragmentation()
    """Whether running pods may be moved for what waits."""
    explain: int | None = 0
    """So many holds, the first in order, are explained. None: no holds are told at all, for whoever reads none."""

    @property
    def tells_holds(self) -> bool:
        return self.explain is not None or self.defrag.proactive  # pods are moved for what is held


class Memo:
    """Work kept from one decision to the next. It belongs to one stream of snapshots of one store."""

    def __init__(self) -> None:
        self._table: ScoreTable | None = None
        self._key: tuple[object, ...] = ()
        self.recall = Recall()
        self.work = 0
        """Nodes and cells looked at so far: who decides often soon wants compiled kernels."""
        self._reader: GrantReader | None = None

    def reader(self, snapshot: Snapshot) -> GrantReader:
        self._reader = self._reader.follow(snapshot) if self._reader is not None else GrantReader(snapshot)
        return self._reader

    def table(self, snapshot: Snapshot, config: EngineConfig, expected: WorkloadMix) -> ScoreTable:
        key = (
            config.placement,
            config.classes,
            expected,
            len(snapshot.models.names),
            snapshot.state.free.shape,
        )
        table = self._table
        fresh = table is None or table.facts is not snapshot.facts or table.objects is not snapshot.objects
        if table is None or fresh or key != self._key:
            strategies = Strategies(SCORERS[config.placement.policy], config.classes)
            table = ScoreTable(snapshot, mix_arrays(expected, snapshot.models, snapshot.state), strategies)
            self._table, self._key = table, key
        return table


def decide(snapshot: Snapshot, config: EngineConfig, now: float, memo: Memo | None = None) -> Plan:
    """What to do now: every pending pod is bound to a node or held with a verdict, the first holds explained."""
    plan, advisor = decide_first(snapshot, config, now, memo)
    return plan if advisor is None else advisor.explain(plan, config.explain or 0)


def decide_first(
    snapshot: Snapshot, config: EngineConfig, now: float, memo: Memo | None = None
) -> tuple[Plan, Advisor | None]:
    """The same without explanations, and what makes them: for a loop that acts first and explains when there is time,
    before its next decision. None where nothing waits."""
    memo = memo or Memo()
    if not snapshot.workloads and not snapshot.reservations and not len(snapshot.pods.pending()):
        return Plan(), None  # pods that leave are news, too
    time = with_collected(config.gangs.time, snapshot.run_times, int(now))
    waiting = collect(snapshot, time)
    table = memo.table(snapshot, config, _expected(snapshot, config))
    rule = make_rule(config.placement, snapshot.state)
    memo.work += snapshot.facts.size * (1 + waiting.pending + _shapes_to_look_at(snapshot))
    with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
        overlay = Overlay(snapshot, table, rule, jit.kernels(memo.work <= SMALL), memo.recall)
        preemption = Preemption(overlay, config.queues, int(now))
        first = place_alone(overlay, waiting.urgent, preemption)
        binds = _binds(memo.reader(snapshot), snapshot, waiting.urgent, first, _leaving(preemption.leaving))
        decided = _decide_workloads(overlay, waiting, config, time, int(now), preemption)
        last = place_alone(overlay, waiting.loose, preemption)
        note_reserved(overlay, waiting.loose, last, decided.kept)
        advisor = Advisor(overlay, lambda: decided.after or lone_room(overlay, config.queues, time, int(now)))
        holds: list[Hold] = []
        if config.tells_holds:
            holds += lone_holds(snapshot, waiting.urgent, first, advisor)
            holds += map(advisor.refined, decided.holds)
            holds += lone_holds(snapshot, waiting.loose, last, advisor)
            holds = with_refusals(holds, snapshot)
    leaving = _leaving(decided.leaving, preemption.leaving)
    plan = Plan(
        binds=(
            *binds,
            *decided.binds,
            *_binds(memo.reader(snapshot), snapshot, waiting.loose, last, leaving),
        ),
        holds=tuple(holds),
        admits=decided.admits,
        evicts=tuple(merged([*decided.evicts, *preemption.evicts()])),
        reserves=decided.reserves,
    )
    return with_moves(plan, advisor.aftermath, config.defrag), advisor


class Waiting(NamedTuple):
    """What is to be decided, in its order: urgent pods, then workloads, then the other pods."""

    workloads: list[Workload]
    """Gangs and queued work, those that run among them; and lone pods that are decided one by one."""
    urgent: Ints
    """Rows of lone pods that come before all of those."""
    loose: Ints
    """Rows of the other lone pods."""
    pending: int
    """Workloads that wait."""
    needs_rounds: bool
    """Not all that is to be decided on is complete, runs, and is in no queue."""
    has_ends: bool
    """Some lone pod says for how long it runs."""


def collect(snapshot: Snapshot, time: TimeSettings) -> Waiting:
    together: list[Workload] = []
    pods: list[Workload] = []
    for workload in snapshot.workloads:
        (pods if is_alone(workload) else together).append(workload)
    turns = waiting_turns(together)
    timed = decided_in_time(snapshot, together, pods, time)
    one_by_one = list({one.key: one for one in (*timed, *between(turns, pods))}.values())
    urgent, loose = _alone(snapshot, together, one_by_one, turns)
    pending = sum(1 for one in together if one.admission is None)
    is_late = len(urgent) + len(loose) + len(one_by_one) < len(snapshot.pods.pending())
    needs_rounds = bool(pending or one_by_one or is_late or any(one.queue for one in together))
    return Waiting([*together, *one_by_one], urgent, loose, pending, needs_rounds, has_ends(pods))


def _decide_workloads(
    overlay: Overlay,
    waiting: Waiting,
    config: EngineConfig,
    time: TimeSettings,
    now: int,
    preemption: Preemption,
) -> WorkloadDecisions:
    """Nothing where there are none: neither gangs nor queued work, and nothing that has to do with time."""
    snapshot = overlay.snapshot
    if not waiting.workloads and not snapshot.reservations and not waiting.has_ends:
        return WorkloadDecisions()
    settings = msgspec.structs.replace(config.gangs, time=time)
    if not waiting.needs_rounds and not snapshot.reservations and not waiting.has_ends:
        return _stopped(overlay, waiting, settings, now, preemption)
    work = Work(overlay, waiting.workloads, config.queues, now, settings, preemption)
    late = seat_late_pods(work)
    decided = decisions_of(work, decide_in_time(work), late, config.tells_holds)
    preemption.note_decided(decided.evicts, decided.admits)
    return decided


def _stopped(
    overlay: Overlay, waiting: Waiting, settings: GangSettings, now: int, preemption: Preemption
) -> WorkloadDecisions:
    """Where nothing waits but lone pods, all that is left to decide is whether a gang that runs has to stop."""
    rows, snapshot = overlay.pod_rows(), overlay.snapshot
    lifetimes = Lifetimes(snapshot, rows, now, settings.grace_seconds, settings.time)
    whole = {one.key: one for one in waiting.workloads if one.key not in preemption.gone}
    evicts = []
    for workload, reason in lifetimes.over(whole, ()):
        names = [name for one in workload.pod_sets for name in one.pods if name in rows]
        pods = tuple(name for name in names if snapshot.pods.node[rows[name]] >= 0)
        evicts.append(Evict(workload.key, pods, "", reason))
    preemption.note_decided(evicts, ())
    return WorkloadDecisions(evicts=tuple(evicts))


def decide_in_time(work: Work) -> InTime:
    """Quota, place and preemption for everything that waits, until nobody is delayed by one behind it.

    As in Slurm's backfill, who waits gets the earliest start that the known ends of running work allow; one behind it
    may run now only if that delays none of these. Where nothing has a known end, one pass is the answer.
    """
    starts = PlannedStarts(work.room, work.config, [*work.pieces, *work.others], work.snapshot.reservations)
    mark = work.room.mark()
    outcomes = decide_once(work, starts.guard())
    for _ in range(PASSES):
        if not starts.plan(outcomes):
            return starts.in_time(outcomes)
        work.room.rewind(mark)
        outcomes = decide_once(work, starts.guard(outcomes))
    starts.plan(outcomes)
    return starts.in_time(starts.without_offenders(outcomes))


def _leaving(*by_node: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Node → workloads that have to be gone before anything else is bound there."""
    nodes = dict.fromkeys(node for each in by_node for node in each)
    return {node: tuple(sorted({key for each in by_node for key in each.get(node, ())})) for node in nodes}


def _shapes_to_look_at(snapshot: Snapshot) -> int:
    """At the most: of pods that wait, and of workloads that have no pods yet."""
    podless = sum(1 for one in snapshot.workloads if one.admission is None and not one.pod_sets[0].pods)
    pending = snapshot.pods.pending()
    return podless + len(set(snapshot.pods.shape[pending].tolist()))


def _alone(
    snapshot: Snapshot, together: Sequence[Workload], one_by_one: Sequence[Workload], turns: Sequence[Turn]
) -> tuple[Ints, Ints]:
    """Pending pods that are on their own: those before all that waits in queues and gangs, and the rest."""
    if not together and not one_by_one and not snapshot.reservations:
        return order(snapshot, np.zeros(len(snapshot.pods.node), dtype=np.bool_)), order(snapshot)
    members = {key for one in (*together, *one_by_one) for pod_set in one.pod_sets for key in pod_set.pods}
    pending, keys = snapshot.pods.pending(), snapshot.pods.keys
    alone = np.zeros(len(snapshot.pods.node), dtype=np.bool_)
    alone[pending] = [keys[row] not in members for row in pending.tolist()]
    urgent = before_all(snapshot, turns)
    if snapshot.reservations:
        urgent &= False  # they are decided in time, with the gangs
    return order(snapshot, alone & urgent), order(snapshot, alone & ~urgent)


def _expected(snapshot: Snapshot, config: EngineConfig) -> WorkloadMix:
    if config.placement.policy not in USES_MIX:
        return WorkloadMix()
    if config.mix is not None:
        return config.mix
    counts = snapshot.seen.tolist()
    return mix_of((snapshot.shapes[number], count) for number, count in enumerate(counts) if count)


def _binds(
    reader: GrantReader,
    snapshot: Snapshot,
    queue: Ints,
    placed: Placed,
    leaving: Mapping[int, tuple[str, ...]],
) -> list[Bind]:
    """`leaving`: node → workloads that have to be gone before anything else is bound there."""
    names, keys = snapshot.facts.names, snapshot.pods.keys
    at = np.flatnonzero(placed.node >= 0)
    rows, nodes = queue[at], placed.node[at]
    grants = reader.of_all(rows, nodes, placed.grant[at])
    binds = [
        Bind(keys[row], names[node], granted)
        for row, node, granted in zip(rows.tolist(), nodes.tolist(), grants, strict=True)
    ]
    for index in np.flatnonzero(np.isin(nodes, list(leaving))).tolist() if leaving else ():
        later = [gone for since, gone in placed.cleared.get(int(nodes[index]), ()) if since > at[index]]
        after = [key for key in leaving[int(nodes[index])] if not any(key in gone for gone in later)]
        binds[index] = msgspec.structs.replace(binds[index], after=tuple(after))
    return binds
