"""The order in which a plan is executed, the same for every sink.

    asks ─► evictions ─► changed sizes ─► admissions and binds that may start now ─► nominations ─► reservations
    ─► holds

`apply.executor` is the sink for an API server; `simulate.job_cluster` and `simulate.scenario.executor` are the others.
Which decisions come first, and which wait for victims to terminate, is defined here. Nothing here decides, writes or
waits.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol, TypeVar

from windlass.model.decision import Admit, Ask, Bind, Evict, Hold, Reserve, Resize, WithdrawAsk
from windlass.model.plan import Plan
from windlass.placement.timeplan.messages import RESERVATION_PREFIX

Start = TypeVar("Start", Admit, Bind)


class DecisionSink(Protocol):
    """Executes every kind of decision, in batches that may be empty."""

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        """Not called where there are none of either."""
        ...

    def evict(self, evicts: Sequence[Evict]) -> None: ...

    def is_terminating(self, key: str) -> bool:
        """Whether an evicted workload or pod is still there. Called after `evict`."""
        ...

    def resize(self, resizes: Sequence[Resize]) -> None: ...

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        """Admissions and binds that wait for no victims."""
        ...

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        """Admissions and binds that wait for victims to terminate. The next plan has them again, first in order."""
        ...

    def reserve(self, reserves: Sequence[Reserve]) -> None: ...

    def hold(self, holds: Sequence[Hold]) -> None: ...


def execute_plan(plan: Plan, sink: DecisionSink) -> None:
    if plan.asks or plan.withdrawals:
        sink.ask(plan.asks, plan.withdrawals)
    # Victims of one preemptor go together: those that wait for an ask to be over stay as well as those that are asked.
    later = [evict for evict in plan.evicts if evict.after] if plan.asks else []
    staying = {key for ask in plan.asks for key in (ask.workload, *ask.pods)}
    staying |= {key for evict in later for key in (evict.workload, *evict.pods)}
    sink.evict([evict for evict in plan.evicts if not evict.after] if later else plan.evicts)
    sink.resize(plan.resizes)
    admits, waiting_admits = _split_ready(plan.admits, sink, staying)
    binds, waiting_binds = _split_ready(plan.binds, sink, staying)
    sink.start(admits, binds)
    sink.nominate(waiting_admits, waiting_binds)
    sink.reserve(plan.reserves)
    sink.hold(plan.holds)


def _split_ready(
    starts: Sequence[Start], sink: DecisionSink, staying: Set[str]
) -> tuple[Sequence[Start], Sequence[Start]]:
    """Starts that are ready, and those that wait. All members of a gang have the same `after`, so it isn't split."""
    waiting = [
        start
        for start in starts
        if start.after and (not staying.isdisjoint(start.after) or any(map(sink.is_terminating, start.after)))
    ]
    if not waiting:
        return starts, ()
    waiting_ids = set(map(id, waiting))
    return [start for start in starts if id(start) not in waiting_ids], waiting


def reserved_nodes(reserves: Sequence[Reserve]) -> dict[str, dict[str, int]]:
    """Reservation object → its nodes, for its status: the next decision keeps it there if possible."""
    return {
        reserve.workload.removeprefix(RESERVATION_PREFIX): reserve.nodes
        for reserve in reserves
        if reserve.workload.startswith(RESERVATION_PREFIX)
    }
