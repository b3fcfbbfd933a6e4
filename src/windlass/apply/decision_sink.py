"""The order in which a plan is carried out, whatever it is carried out on.

    evictions ─► admissions and binds that may start now ─► nominations ─► reservations ─► holds

`apply.executor` is the sink for an API server; the virtual clusters of `simulate` are the others. Each does what a
decision says in its own way. What comes first, and what has to wait until others have left, is the same for all of
them and stands here. Nothing here decides, writes or waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.plan import Plan
from windlass.placement.timeplan.messages import RESERVATION_PREFIX

Start = TypeVar("Start", Admit, Bind)


class DecisionSink(Protocol):
    """Every kind of decision, in batches. Lists may be empty."""

    def evict(self, evicts: Sequence[Evict]) -> None: ...

    def is_terminating(self, key: str) -> bool:
        """Whether a workload or pod that has to leave is still there. Asked after `evict`."""
        ...

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        """Admissions and binds that wait for nothing."""
        ...

    def nominate(self, binds: Sequence[Bind]) -> None:
        """Binds that wait until others have left the node. The next plan has them again."""
        ...

    def reserve(self, reserves: Sequence[Reserve]) -> None: ...

    def hold(self, holds: Sequence[Hold]) -> None: ...


def execute_plan(plan: Plan, sink: DecisionSink) -> None:
    """Hands the plan's decisions to the sink, in order."""
    sink.evict(plan.evicts)
    admits, _ = _ready_or_not(plan.admits, sink)
    binds, waiting = _ready_or_not(plan.binds, sink)
    sink.start(admits, binds)
    sink.nominate(waiting)
    sink.reserve(plan.reserves)
    sink.hold(plan.holds)


def _ready_or_not(starts: Sequence[Start], sink: DecisionSink) -> tuple[Sequence[Start], Sequence[Start]]:
    """Those that may start now, and those that wait. The members of a gang have the same `after`, so it isn't split."""
    waiting = [start for start in starts if start.after and any(map(sink.is_terminating, start.after))]
    if not waiting:
        return starts, ()
    late = set(map(id, waiting))
    return [start for start in starts if id(start) not in late], waiting


def reserved_nodes(reserves: Sequence[Reserve]) -> dict[str, dict[str, int]]:
    """Calendar reservation → its nodes, for its status: the next decision keeps it there while it can."""
    return {
        reserve.workload.removeprefix(RESERVATION_PREFIX): reserve.nodes
        for reserve in reserves
        if reserve.workload.startswith(RESERVATION_PREFIX)
    }
