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

    def compute(self, plan: Plan, explain: Callable[[Hold], Hold]) -> None:
        """Explains the first holds, as many as there is time for."""
        fresh: dict[str, tuple[Verdict, Hold]] = {}
        for hold in plan.holds[:MAX_EXPLAINED_HOLDS]:
            fresh[hold.workload] = hold.verdict, explain(hold)
            if self._must_stop():
                break
        older = list(self._explained.items())[-MAX_CACHED_HOLDS:]
        # Fresh entries go last: the oldest ones are dropped first.
        self._explained = {**{key: entry for key, entry in older if key not in fresh}, **fresh}

    def with_explanations(self, plan: Plan) -> Plan:
        if not self._explained or not plan.holds:
            return plan
        return msgspec.structs.replace(plan, holds=tuple(map(self._explain_from_cache, plan.holds)))

    def _explain_from_cache(self, hold: Hold) -> Hold:
        verdict, explained = self._explained.get(hold.workload, (None, hold))
        return explained if verdict == hold.verdict else hold
