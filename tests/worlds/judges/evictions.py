"""Judges evictions: what was evicted for another workload makes that one run, and nothing is evicted in circles.

Who an eviction is for stands in the plan (`Evict.for_workload`). A happening after the eviction, such as a node that
fails or work of higher priority that comes, may cancel the gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.worlds.judges.gangs import group_of
from tests.worlds.judges.trees import admission, is_deleted, node_of, seconds
from tests.worlds.judges.world_state import WorldState, is_finished, is_guarded

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.placement.stop_conditions import DURATION_EXCEEDED
from windlass.queueing.outcome import MAXIMUM_EXECUTION_TIME_EXCEEDED

REGRET_SECONDS = 30.0
STUCK_SECONDS = 120.0
"""So long after the end of its grace period nothing waits for a victim any more."""
TIME_IS_OVER = (DURATION_EXCEEDED, MAXIMUM_EXECUTION_TIME_EXCEEDED)
MOST_AT_REST = 2
"""Evictions of one workload while nothing happens: once for the last happening, once for what followed."""


class EvictionJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], patience: float) -> None:
        self._state, self._wrong, self._patience = state, wrong, patience
        self._decided: dict[str, tuple[float, str]] = {}
        """Victim, a workload or a pod → when it was decided, and for which workload."""
        self._expected: dict[str, tuple[float, str]] = {}
        """Workload that others were evicted for → since when, and the victim."""
        self._at_rest: Counter[str] = Counter()
        self._stopped: dict[str, float] = {}
        """Gang → when it was stopped for being below its minimum."""
        self._regretted: set[str] = set()
        self._waited_for: set[str] = set()
        self.reasons: dict[str, str] = {}
        """Workload → why it was evicted last, in the word of the plan."""
        self._said: dict[str, str] = {}

    def on_plan(self, plan: Plan) -> None:
        now = self._state.clock()
        for evict in plan.evicts:
            stopped = self._stopped.get(evict.for_workload, -1e9) if evict.for_workload else -1e9
            if now - stopped < REGRET_SECONDS and self._could_stay(evict.for_workload):
                self._regretted.add(evict.for_workload)
                self._wrong(
                    f"{evict.for_workload} was stopped below its minimum, and {evict.workload} is evicted for it "
                    f"{now - stopped:.0f} s later: it could have been evicted for the member that was lost"
                )
            if evict.reason == "GangBelowMinimum":
                self._stopped[evict.workload] = now
            self.reasons[evict.workload] = evict.reason
            for key in (evict.workload, *evict.pods):
                self._decided[key] = (now, evict.for_workload)
        waiting = [*((bind.pod, bind.after) for bind in plan.binds)]
        waiting += [(admit.workload, admit.after) for admit in plan.admits]
        for preemptor, victims in waiting:
            for victim in victims:
                self._check_stuck(preemptor, victim)

    def _could_stay(self, gang: str) -> bool:
        """Whether one victim could have been enough for the lost member: a gang with a topology may have to move whole
        to another domain. Each gang is named once."""
        return gang not in self._regretted and "topology" not in self._said.get(gang, "")

    def _check_stuck(self, preemptor: str, victim: str) -> None:
        pods = self._members(victim)
        ends = [seconds(pod["metadata"]["deletionTimestamp"]) for pod in pods if is_deleted(pod)]
        late = self._state.clock() - min(ends, default=self._state.clock())
        if late > STUCK_SECONDS and victim not in self._waited_for:
            self._waited_for.add(victim)
            self._wrong(f"{preemptor} waits for {victim}, which should have ended {late:.0f} s ago")

    def on_evicted(self, key: str, said: str) -> None:
        """`said`: why, in the words of the object."""
        self._said[key] = said
        if self.reasons.get(key) in TIME_IS_OVER:
            self._expected.pop(key, None)  # it ran, and had what others were evicted for
        decided, preemptor = self._decided.get(key, (0.0, "unknown"))
        # What ends by a limit, again and again, takes from nobody: a queue that waits for ready pods goes on trying.
        self._at_rest[key] += bool(preemptor)
        if preemptor and self._state.clock() - decided < self._state.lag_seconds:
            self._expected[preemptor] = (self._state.clock(), key)
            tree = self._state.workloads.get(key) or self._state.pods.get(key)
            if tree is not None and is_guarded(self._state, tree):
                self._wrong(f"{key} must not be preempted, and was evicted for {preemptor}")

    def on_happening(self) -> None:
        self._expected.clear()
        self._at_rest.clear()
        self._stopped.clear()

    def check(self) -> None:
        for preemptor, (since, victim) in list(self._expected.items()):
            late = self._state.clock() - since
            if self._runs(preemptor) is not False:
                del self._expected[preemptor]
            elif late > self._patience and not self._victims_linger():
                del self._expected[preemptor]
                evicted_at, successor = self._decided.get(preemptor, (0.0, ""))
                if successor and evicted_at >= since:  # it had to leave to a third one, which gains in its place
                    self._expected[successor] = (evicted_at, victim)
                    continue
                self._wrong(f"{victim} was evicted for {preemptor}, which does not run {late:.0f} s later")

    def check_at_rest(self) -> None:
        for key, count in self._at_rest.items():
            if count > MOST_AT_REST:
                self._wrong(f"{key} was evicted {count} times while nothing happened: {self._said[key]}")

    def _victims_linger(self) -> bool:
        return any("deletionTimestamp" in pod["metadata"] for pod in self._state.placed_pods())

    def _runs(self, key: str) -> bool | None:
        """None where it is gone or has ended."""
        tree = self._state.workloads.get(key)
        if tree is not None:
            return None if is_finished(tree) else admission(tree) is not None
        pod = self._state.pods.get(key)
        if pod is not None:
            return bool(node_of(pod))
        members = self._members(key)
        return any(node_of(pod) for pod in members) if members else None

    def _members(self, key: str) -> list[Unstructured]:
        """The pods of a Workload, a group or an owner, or the pod itself, that have not ended."""
        tree, pod = self._state.workloads.get(key), self._state.pods.get(key)
        if tree is not None:
            return self._state.pods_of(tree)
        if pod is not None:
            return [pod]
        namespace, _, name = key.partition("/")
        return [
            pod
            for pod in self._state.alive_pods()
            if pod["metadata"]["namespace"] == namespace
            and (
                group_of(pod) == name
                or any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences", ()))
            )
        ]
