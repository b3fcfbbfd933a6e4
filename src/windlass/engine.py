"""`decide`: from what is, what to do. The main path, and a pure one.

    snapshot ─► order ─► place ─► plan

The live scheduler, the embedded cluster, the simulator, `why` and `plan` all call this function, and nothing else
decides. No clock, no randomness but a seed in the config, no I/O: the same snapshot, config and time give the same
plan. The memo only saves work; an empty one gives the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.pods import ALONE
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import Defragmentation, WorkloadClass
from windlass.model.decision import Bind, Hold
from windlass.model.plan import HoldsAsRead, Plan
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.admission import GangSettings, admit_workloads
from windlass.placement.defrag.proactive import with_moves
from windlass.placement.explain import Advisor, ExplainedHolds, lone_room
from windlass.placement.grants import GrantReader
from windlass.placement.mix import WorkloadMix, mix_arrays, mix_of
from windlass.placement.overlay import Overlay
from windlass.placement.pieces import is_alone
from windlass.placement.place import Placed
from windlass.placement.policies import SCORERS, USES_MIX, PlacementConfig, make_rule
from windlass.placement.preemption.alone import place_alone
from windlass.placement.preemption.context import Preemption, merged
from windlass.placement.recall import Recall
from windlass.placement.strategy import Strategies
from windlass.placement.table import ScoreTable
from windlass.placement.timeplan.alone import decided_in_time, has_ends, note_reserved
from windlass.placement.timeplan.terms import with_collected
from windlass.queueing.config import QueueConfig
from windlass.queueing.order import Queue, Turn, before_all, between, order, waiting_turns

SMALL = 8_000
"""Nodes and cells (nodes times shapes) up to which plain Python is quicker than loading the compiled kernels."""


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
    """What to do now: every pending pod is bound to a node or held with a verdict."""
    memo = memo or Memo()
    if not snapshot.workloads and not snapshot.reservations and not len(snapshot.pods.pending()):
        return Plan(binds=[], holds=[])  # pods that leave are news, too
    together: list[Workload] = []
    pods: list[Workload] = []
    for workload in snapshot.workloads:
        (pods if is_alone(workload) else together).append(workload)
    turns = waiting_turns(together)
    time = with_collected(config.gangs.time, snapshot.run_times, int(now))
    timed = decided_in_time(snapshot, together, pods, time)
    one_by_one = list({one.key: one for one in (*timed, *between(turns, pods))}.values())
    urgent, loose = _alone(snapshot, together, one_by_one, turns)
    table = memo.table(snapshot, config, _expected(snapshot, config))
    rule = make_rule(config.placement, snapshot.state)
    reader = memo.reader(snapshot)
    waiting = sum(1 for one in together if one.admission is None)
    memo.work += snapshot.facts.size * (1 + waiting + _shapes_to_look_at(snapshot))
    small = memo.work <= SMALL
    with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
        overlay = Overlay(snapshot, table, rule, jit.kernels(small), memo.recall)
        preemption = Preemption(overlay, config.queues, int(now))
        if not together and not snapshot.reservations and not has_ends(pods):
            placed = place_alone(overlay, loose, preemption)
            advisor = Advisor(lambda: lone_room(overlay, config.queues, time, int(now)))
            holds = ExplainedHolds([Holds(snapshot, loose, placed)], advisor)
            binds = _binds(reader, snapshot, loose, placed, preemption.leaving)
            plan = Plan(binds=binds, holds=holds, evicts=preemption.evicts())
            return with_moves(plan, advisor.aftermath, config.defrag)
        first = place_alone(overlay, urgent, preemption)
        urgent_binds = _binds(reader, snapshot, urgent, first, preemption.leaving)
        decided = admit_workloads(
            overlay,
            snapshot.system,
            [*together, *one_by_one],
            config.queues,
            int(now),
            msgspec.structs.replace(config.gangs, time=time),
            preemption,
        )
        preemption.note_decided(decided.evicts, decided.admits)
        last = place_alone(overlay, loose, preemption)
        note_reserved(overlay, loose, last, decided.kept)
    leaving = {
        node: tuple(dict.fromkeys((*decided.leaving.get(node, ()), *preemption.leaving.get(node, ()))))
        for node in {**decided.leaving, **preemption.leaving}
    }
    advisor = Advisor(lambda: decided.after)
    plan = Plan(
        binds=[*urgent_binds, *decided.binds, *_binds(reader, snapshot, loose, last, leaving)],
        holds=ExplainedHolds(
            [Holds(snapshot, urgent, first), decided.holds, Holds(snapshot, loose, last)],
            advisor,
        ),
        admits=decided.admits,
        evicts=merged([*decided.evicts, *preemption.evicts()]),
        reserves=decided.reserves,
    )
    return with_moves(plan, advisor.aftermath, config.defrag)


def _shapes_to_look_at(snapshot: Snapshot) -> int:
    """At the most: of pods that wait, and of workloads that have no pods yet."""
    podless = sum(1 for one in snapshot.workloads if one.admission is None and not one.pod_sets[0].pods)
    pending = snapshot.pods.pending()
    return podless + len(set(snapshot.pods.shape[pending].tolist()))


def _alone(
    snapshot: Snapshot, together: Sequence[Workload], one_by_one: Sequence[Workload], turns: Sequence[Turn]
) -> tuple[Queue, Queue]:
    """Pending pods that are on their own: those before all that waits in queues and gangs, and the rest."""
    if not together and not one_by_one and not snapshot.reservations:
        return order(snapshot, np.zeros(len(snapshot.pods.node), dtype=np.bool_)), order(snapshot)
    members = {key for one in (*together, *one_by_one) for pod_set in one.pod_sets for key in pod_set.pods}
    pending, objects = snapshot.pods.pending(), snapshot.pods.objects
    alone = np.zeros(len(snapshot.pods.node), dtype=np.bool_)
    alone[pending] = [objects[row].key not in members for row in pending.tolist()]
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
    queue: Queue,
    placed: Placed,
    leaving: Mapping[int, tuple[str, ...]],
) -> list[Bind]:
    """`leaving`: node → workloads that have to be gone before anything else is bound there."""
    names, objects = snapshot.facts.names, snapshot.pods.objects
    at = np.flatnonzero(placed.node >= 0)
    rows, nodes = queue.rows[at], placed.node[at]
    return [
        Bind(objects[row].key, names[node], grants, leaving.get(node, ()))
        for row, node, grants in zip(
            rows.tolist(), nodes.tolist(), reader.of_all(rows, nodes, placed.grant[at]), strict=True
        )
    ]


class Holds(HoldsAsRead):
    """What waits, each with its verdict, put into words as it is read."""

    def __init__(self, snapshot: Snapshot, queue: Queue, placed: Placed) -> None:
        self._snapshot, self._queue, self._placed = snapshot, queue, placed
        waiting = np.flatnonzero(placed.node < 0)
        gangs = snapshot.pods.group[queue.rows[waiting]] != ALONE
        self._waiting = waiting[~gangs | np.isin(waiting, queue.units)]
        """Queue positions: of a gang, which waits as one, that of its first member."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._queue.incomplete)

    def _at(self, index: int) -> Hold:
        if index >= len(self._waiting):
            return self._incomplete(*self._queue.incomplete[index - len(self._waiting)])
        position = int(self._waiting[index])
        row = int(self._queue.rows[position])
        pods, gang = self._snapshot.pods, int(self._snapshot.pods.group[row])
        name = pods.objects[row].key if gang == ALONE else self._snapshot.gangs[gang].key
        return Hold(name, self._verdict(pods.objects[row].key, position))

    def _verdict(self, key: str, position: int) -> Verdict:
        held = self._placed.held.get(position)
        if held is None:
            return self._placed.refusals[int(self._placed.refusal[position])].verdict()
        detail = self._snapshot.unreadable.get(key, held.kube)
        return Verdict(code=held.code, nodes=self._snapshot.facts.size, detail=detail)

    def _incomplete(self, number: int, there: int) -> Hold:
        gang = self._snapshot.gangs[number]
        detail = f"waiting for pods of the group: {there} of {gang.total} are there"
        return Hold(gang.key, Verdict(code="GANG_INCOMPLETE", nodes=self._snapshot.facts.size, detail=detail))
