"""The driver of virtual time: plays a script of events, decides, and executes the plans.

    script (arrivals, ends, failures) ─► cluster ─► snapshot ─► decide ─► execute_plan ─┐
       ▲                                    ▲                                            │
       └── ends of what has started ────────┴─────── evicted, admitted, bound ◄──────────┘

`simulate.trace_run`, `simulate.scenario.player` and `bench.claims` use it. A script knows when events happen and
measures the result; a virtual cluster holds the production store and is the sink of the plans. The clock jumps from
one event to the next. At each moment decisions follow one another until the cluster is stable.
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
"""Decisions at one moment after which the cluster counts as not converging."""


class VirtualCluster(DecisionSink, Protocol):
    def snapshot(self, now: int) -> Snapshot: ...

    def on_decided(self, snapshot: Snapshot) -> None: ...

    def finish_cycle(self) -> bool:
        """Called after a plan was executed; true if another decision would change nothing."""


class SimulationScript(Protocol):
    def next_event_time(self) -> int | None:
        """Time of the next event; None at the end of the script."""

    def apply_events(self, now: int) -> bool:
        """Applies all events that are due; true if there is something to decide on."""

    def observe(self, now: int) -> None:
        """Called when the cluster is stable: measures it, or checks expectations."""

    def on_not_converged(self, now: int, plan: Plan) -> None:
        """Called instead of convergence, with the last plan."""


class NotConverged(WindlassError):
    """Decisions keep undoing one another."""

    def __init__(self, now: int, plan: Plan) -> None:
        names = sorted({evict.workload for evict in plan.evicts})
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        super().__init__(
            f"second {now}: not stable after {MAX_CYCLES} decisions; still evicting {', '.join(names[:3])}{more}"
        )


class SimulationDriver:
    def __init__(self, cluster: VirtualCluster, config: EngineConfig) -> None:
        self._cluster, self._config, self._engine_cache = cluster, config, EngineCache()
        self.plan = Plan((), ())
        """The last plan."""
        self.decisions = 0

    def play(self, script: SimulationScript) -> Iterator[int]:
        """Plays the whole script; yields the time of each moment after it."""
        while (now := script.next_event_time()) is not None:
            if script.apply_events(now) and not self.run_until_stable(now):
                script.on_not_converged(now, self.plan)
            script.observe(now)
            yield now

    def run_until_stable(self, now: int) -> bool:
        """Decides and executes until the cluster is stable; false if it does not converge."""
        for _ in range(MAX_CYCLES):
            self.plan = self.decide(now)
            execute_plan(self.plan, self._cluster)
            if self._cluster.finish_cycle():
                return True
        return False

    def decide(self, now: int) -> Plan:
        """Makes a plan without executing it."""
        snapshot = self._cluster.snapshot(now)
        plan = decide(snapshot, self._config, VIRTUAL_EPOCH + now, self._engine_cache)
        self._cluster.on_decided(snapshot)
        self.decisions += 1
        return plan
