"""Decides on everything, whatever a single unit of it does to the engine.

If a decision fails, the unit on which it fails is found by deciding on parts of the cluster, and set aside: it is held
with the id of the bug, and everything else is decided on as if it did not exist. It is tried again once it changes, and
every ten minutes. `scheduler.loop`, `planner`, `why` and the replay of records decide through this; a decision on which
nothing fails costs the same as without it.

Like the engine, this is pure: the same snapshots and times in the same order give the same plans.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from windlass.cluster.set_aside import DecisionUnit, decision_units, set_aside
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineCache, EngineConfig, decide_without_explanations
from windlass.model.bisection import first_failing
from windlass.model.bug import INTERNAL_ERROR, Bug, bug_of, first_named
from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import Advisor

RETRY_SECONDS = 600
"""What is set aside and does not change is tried again after so long."""
MAX_BUGS_PER_NAMESPACE = 3
"""With more units of a namespace that fail, the decision goes on without all that waits in this namespace: nobody can
make it take for ever by submitting many of them."""
MAX_PROBES = 400
"""Decisions on parts of the cluster, to find the units of one decision that fail."""

Probe = Callable[[Sequence[DecisionUnit]], Exception | None]
"""Decides without these units; the error if that fails."""


class Fault(NamedTuple):
    """A unit that is set aside."""

    key: str
    bug: Bug
    error: Exception
    is_pending: bool


class IsolatedDecision(NamedTuple):
    plan: Plan
    advisor: Advisor | None
    faults: tuple[Fault, ...] = ()
    """All units that are set aside now."""


class _Known(NamedTuple):
    fault: Fault
    unit: DecisionUnit
    since: int


class IsolatingEngine:
    """The engine for successive snapshots of one store."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._cache = EngineCache()
        self._known: dict[str, _Known] = {}

    def decide(self, snapshot: Snapshot, now: float) -> Plan:
        """As `engine.decide`: the first holds are explained, but for those on which that fails."""
        skipped: set[str] = set()
        while True:
            plan, advisor, _ = self.decide_without_explanations(snapshot, now)
            if advisor is None:
                return plan
            holds = list(plan.holds)
            for index, hold in enumerate(holds[: self._config.max_explained_holds or 0]):
                if hold.workload in skipped:
                    continue
                try:
                    holds[index] = advisor.explain_hold(hold)
                except Exception:  # the decision stands; what explains the others may be half changed
                    skipped.add(hold.workload)
                    self.reset_cache()
                    break
            else:
                return msgspec.structs.replace(plan, holds=tuple(holds))

    def decide_without_explanations(self, snapshot: Snapshot, now: float) -> IsolatedDecision:
        aside = self._still_aside(snapshot, int(now)) if self._known else []
        try:
            return self._decide(set_aside(snapshot, aside), now)
        except Exception:  # whatever it is: what earlier decisions have left may be the cause
            self.reset_cache()
        try:
            return self._decide(set_aside(snapshot, aside), now)
        except Exception as error:  # so it concerns some unit, and must not concern the others
            self.reset_cache()
            failed = error
        for unit, found in find_failing(snapshot, aside, self._probe(snapshot, now), failed):
            fault = Fault(unit.key, bug_of(found), found, unit.is_pending)
            self._known[unit.key] = _Known(fault, unit, int(now))
            aside.append(unit)
        return self._decide(set_aside(snapshot, aside), now)

    def reset_cache(self) -> None:
        """Forgets what earlier decisions have left for later ones."""
        self._cache = EngineCache()

    def _decide(self, snapshot: Snapshot, now: float) -> IsolatedDecision:
        plan, advisor = decide_without_explanations(snapshot, self._config, now, self._cache)
        faults = tuple(known.fault for known in self._known.values())
        if self._config.reports_holds and faults:
            holds = (_hold(fault, snapshot) for fault in faults if fault.is_pending)
            plan = msgspec.structs.replace(plan, holds=(*plan.holds, *holds))
        return IsolatedDecision(plan, advisor, faults)

    def _still_aside(self, snapshot: Snapshot, now: int) -> list[DecisionUnit]:
        """What is set aside, has not changed, and is not due for another try."""
        units = {unit.key: unit for unit in decision_units(snapshot)}
        before = len(self._known)
        self._known = {
            key: known
            for key, known in self._known.items()
            if key in units
            and units[key].subject == known.unit.subject
            and known.since <= now < known.since + RETRY_SECONDS
        }
        if len(self._known) != before:
            self.reset_cache()
        return [units[key] for key in self._known]

    def _probe(self, snapshot: Snapshot, now: float) -> Probe:
        def probe(without: Sequence[DecisionUnit]) -> Exception | None:
            try:
                decide_without_explanations(set_aside(snapshot, without), self._config, now)
            except Exception as error:  # this is what is asked for
                return error
            return None

        return probe


def find_failing(
    snapshot: Snapshot, aside: Sequence[DecisionUnit], probe: Probe, failed: Exception
) -> list[tuple[DecisionUnit, Exception]]:
    """Units without which the decision succeeds, each with its error; raises `failed` where there are no such units."""
    out = {unit.key for unit in aside}
    # What waits comes last: then it is what is suspected first, since a decision is about that.
    units = sorted((unit for unit in decision_units(snapshot) if unit.key not in out), key=lambda unit: unit.is_pending)
    search = _Search(probe, aside, units)
    found: list[tuple[DecisionUnit, Exception]] = []
    by_namespace: Counter[str] = Counter()
    error: Exception | None = failed
    if search.fails([]) is not None:
        raise failed
    while error is not None:
        culprit, error = search.find_culprit(error)
        by_namespace[culprit.namespace] += 1
        is_flood = by_namespace[culprit.namespace] > MAX_BUGS_PER_NAMESPACE
        with_it = search.pending_in(culprit.namespace) if is_flood and culprit.is_pending else [culprit]
        found += [(unit, error) for unit in with_it]
        search.remove(with_it)
        error = search.fails(search.units)
    return found


class _Search:
    """Decides on some of the units at a time; raises the last error where that takes too many decisions."""

    def __init__(self, probe: Probe, aside: Sequence[DecisionUnit], units: list[DecisionUnit]) -> None:
        self._probe, self._all, self.units = probe, [*aside, *units], units
        self._probes = 0

    def fails(self, present: Sequence[DecisionUnit]) -> Exception | None:
        """The error of a decision on these units only."""
        keys = {unit.key for unit in present}
        error = self._probe([unit for unit in self._all if unit.key not in keys])
        self._probes += 1
        if error is not None and self._probes > MAX_PROBES:
            raise error
        return error

    def remove(self, units: Sequence[DecisionUnit]) -> None:
        gone = {unit.key for unit in units}
        self.units = [unit for unit in self.units if unit.key not in gone]

    def pending_in(self, namespace: str) -> list[DecisionUnit]:
        return [unit for unit in self.units if unit.is_pending and unit.namespace == namespace]

    def find_culprit(self, error: Exception) -> tuple[DecisionUnit, Exception]:
        """Of units with which alone a decision fails: the one without which everything else succeeds."""
        suspects, error = self._failing_together(error)
        if len(suspects) == 1:
            return suspects[0], error
        alone = [unit for unit in suspects if self.fails([other for other in self.units if other is not unit]) is None]
        if alone:
            key = first_named(error, [unit.key for unit in alone])
            return next((unit for unit in alone if unit.key == key), alone[0]), error
        # There are several like it: it is one of the smallest group of units without which everything else succeeds.
        for suspect in sorted(suspects, key=lambda unit: len(self.pending_in(unit.namespace))):
            like_it = {unit.key for unit in self.pending_in(suspect.namespace)}
            if self.fails([unit for unit in self.units if unit.key not in like_it]) is None:
                return suspect, error
        return suspects[0], error

    def _failing_together(self, error: Exception) -> tuple[list[DecisionUnit], Exception]:
        """As few units as possible with which alone a decision fails."""
        needed: list[DecisionUnit] = []
        pool, found = self.units, error
        while True:
            attempt = functools.partial(self._fails_with, needed, pool)
            index, found = first_failing(len(pool), found, attempt)
            needed, pool = [*needed, pool[index]], pool[:index]
            again = self.fails(needed) if pool else found
            if again is not None:
                return needed, again

    def _fails_with(self, needed: Sequence[DecisionUnit], pool: Sequence[DecisionUnit], count: int) -> Exception | None:
        return self.fails([*needed, *pool[:count]])


def _hold(fault: Fault, snapshot: Snapshot) -> Hold:
    return Hold(fault.key, Verdict(INTERNAL_ERROR, snapshot.nodes.size, detail=fault.bug.message))
