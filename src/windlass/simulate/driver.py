"""Virtual time: what happens, what is decided on it, and that carried out; for traces, scenarios and claims alike.

    script (arrivals, ends, failures) ─► cluster ─► snapshot ─► decide ─► plan ─► carry_out ─┐
       ▲                                    ▲                                                 │
       └── what started ends later ─────────┴───────── evicted, admitted, bound ◄─────────────┘

A script says when something happens and measures what came of it; a virtual cluster holds the production store and is
the sink of the plans. The clock jumps from one moment of the script to the next. At each moment decisions follow one
another until the cluster is at rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from windlass.apply.execution import Sink, carry_out
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineConfig, Memo, decide
from windlass.model.errors import WindlassError
from windlass.model.plan import Plan
from windlass.simulate.clock import START

MOST_ROUNDS = 40
"""Decisions at one moment after which the cluster is said not to come to rest."""


class VirtualCluster(Sink, Protocol):
    def snapshot(self, now: int) -> Snapshot:
        """The cluster as it is at that moment, for a decision on it."""
        ...

    def learn(self, snapshot: Snapshot) -> None:
        """A decision was made on the snapshot."""
        ...

    def finish_round(self) -> bool:
        """A plan has been carried out; whether the cluster is at rest: another decision would find nothing new."""
        ...


class Script(Protocol):
    def next_moment(self) -> int | None:
        """When the next thing happens; None when everything has been played."""
        ...

    def happen(self, now: int) -> bool:
        """Everything that is due; whether there is something to decide on."""
        ...

    def look(self, now: int) -> None:
        """The moment is over: measure it, or check what was expected of it."""
        ...

    def note_unrest(self, now: int, plan: Plan) -> None:
        """The cluster has not come to rest at this moment; the plan is the last one."""
        ...


class Unrest(WindlassError):
    """Decisions undo one another without end."""

    def __init__(self, now: int, plan: Plan) -> None:
        names = sorted({evict.workload for evict in plan.evicts})
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        super().__init__(
            f"second {now}: not at rest after {MOST_ROUNDS} decisions; still evicting {', '.join(names[:3])}{more}"
        )


class Driver:
    def __init__(self, cluster: VirtualCluster, config: EngineConfig) -> None:
        self._cluster, self._config, self._memo = cluster, config, Memo()
        self.plan = Plan((), ())
        """The last one."""
        self.decisions = 0

    def play(self, script: Script) -> Iterator[int]:
        """The whole script; yields each moment when it is over."""
        while (now := script.next_moment()) is not None:
            if script.happen(now) and not self.settle(now):
                script.note_unrest(now, self.plan)
            script.look(now)
            yield now

    def settle(self, now: int) -> bool:
        """Decide and carry out until the cluster is at rest; false if it never is."""
        for _ in range(MOST_ROUNDS):
            self.plan = self.decide(now)
            carry_out(self.plan, self._cluster)
            if self._cluster.finish_round():
                return True
        return False

    def decide(self, now: int) -> Plan:
        """What would be done now. Nothing is carried out."""
        snapshot = self._cluster.snapshot(now)
        plan = decide(snapshot, self._config, START + now, self._memo)
        self._cluster.learn(snapshot)
        self.decisions += 1
        return plan
