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

from windlass.apply.decision_sink import DecisionSink, execute_plan
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.errors import WindlassError
from windlass.model.plan import Plan
from windlass.simulate.clock import VIRTUAL_EPOCH

MAX_CYCLES = 40
"""Decisions at one moment after which the cluster is said not to come to rest."""


class VirtualCluster(DecisionSink, Protocol):
    def snapshot(self, now: int) -> Snapshot:
        """The cluster as it is at that moment, for a decision on it."""
        ...

    def on_decided(self, snapshot: Snapshot) -> None:
        """A decision was made on the snapshot."""
        ...

    def finish_cycle(self) -> bool:
        """A plan has been carried out; whether the cluster is at rest: another decision would find nothing new."""
        ...


class SimulationScript(Protocol):
    def next_event_time(self) -> int | None:
        """When the next thing happens; None when everything has been played."""
        ...

    def apply_events(self, now: int) -> bool:
        """Everything that is due; whether there is something to decide on."""
        ...

    def observe(self, now: int) -> None:
        """The moment is over: measure it, or check what was expected of it."""
        ...

    def on_not_converged(self, now: int, plan: Plan) -> None:
        """The cluster has not come to rest at this moment; the plan is the last one."""
        ...


class NotConverged(WindlassError):
    """Decisions undo one another without end."""

    def __init__(self, now: int, plan: Plan) -> None:
        names = sorted({evict.workload for evict in plan.evicts})
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        super().__init__(
            f"second {now}: not at rest after {MAX_CYCLES} decisions; still evicting {', '.join(names[:3])}{more}"
        )


class SimulationDriver:
    def __init__(self, cluster: VirtualCluster, config: EngineConfig) -> None:
        self._cluster, self._config, self._memo = cluster, config, EngineCache()
        self.plan = Plan((), ())
        """The last one."""
        self.decisions = 0

    def play(self, script: SimulationScript) -> Iterator[int]:
        """The whole script; yields each moment when it is over."""
        while (now := script.next_event_time()) is not None:
            if script.apply_events(now) and not self.run_until_stable(now):
                script.on_not_converged(now, self.plan)
            script.observe(now)
            yield now

    def run_until_stable(self, now: int) -> bool:
        """Decide and carry out until the cluster is at rest; false if it never is."""
        for _ in range(MAX_CYCLES):
            self.plan = self.decide(now)
            execute_plan(self.plan, self._cluster)
            if self._cluster.finish_cycle():
                return True
        return False

    def decide(self, now: int) -> Plan:
        """What would be done now. Nothing is carried out."""
        snapshot = self._cluster.snapshot(now)
        plan = decide(snapshot, self._config, VIRTUAL_EPOCH + now, self._memo)
        self._cluster.on_decided(snapshot)
        self.decisions += 1
        return plan
