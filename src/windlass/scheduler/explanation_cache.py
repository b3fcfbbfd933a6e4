"""The explanation cache: holds with an explanation of what would help, valid while the verdict stays the same.

`scheduler.loop` computes explanations in the thread that decided, before the next decision; `apply.executor` writes
them to pods and Workloads. Explaining is expensive, so that only some holds are explained per decision. The cache
keeps a condition's message from changing back when its hold is not among them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS

MAX_CACHED_HOLDS = 1_000


class ExplanationCache:
    def __init__(self, must_stop: Callable[[], bool]) -> None:
        """`must_stop`: a change waits to be decided on, which is more urgent than explaining."""
        self._must_stop = must_stop
        self._explained: dict[str, tuple[Verdict, Hold]] = {}
        """Workload → the verdict as decided, and the hold with its explanation."""
        self._failed: dict[str, Verdict] = {}
        """Workload → its verdict, of which the explanation fails."""

    def compute(self, plan: Plan, explain: Callable[[Hold], Hold]) -> Exception | None:
        """Explains the first holds, as many as there is time for. If that fails for one, the others are explained by
        the next calls, since what explains them may be half changed; returns the error."""
        fresh: dict[str, tuple[Verdict, Hold]] = {}
        failure = None
        self._failed = {hold.workload: hold.verdict for hold in plan.holds if self._is_failed(hold)}
        for hold in plan.holds[:MAX_EXPLAINED_HOLDS]:
            if self._is_failed(hold):
                continue
            try:
                fresh[hold.workload] = hold.verdict, explain(hold)
            except Exception as error:  # whatever it is: it concerns this hold, and must not concern the others
                self._failed[hold.workload], failure = hold.verdict, error
                break
            if self._must_stop():
                break
        older = list(self._explained.items())[-MAX_CACHED_HOLDS:]
        # Fresh entries go last: the oldest ones are dropped first.
        self._explained = {**{key: entry for key, entry in older if key not in fresh}, **fresh}
        return failure

    def _is_failed(self, hold: Hold) -> bool:
        return self._failed.get(hold.workload) == hold.verdict

    def with_explanations(self, plan: Plan) -> Plan:
        if not self._explained or not plan.holds:
            return plan
        return msgspec.structs.replace(plan, holds=tuple(map(self._explain_from_cache, plan.holds)))

    def _explain_from_cache(self, hold: Hold) -> Hold:
        verdict, explained = self._explained.get(hold.workload, (None, hold))
        return explained if verdict == hold.verdict else hold
