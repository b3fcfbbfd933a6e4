"""Judges limits that end a run: maximum execution time, declared durations, and how soon pods have to be ready.

Computed from the owner, the Workload and its pods. `Judge` calls `check` every few seconds while nothing is disturbed.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.worlds.judges.trees import (
    admission,
    annotations_of,
    condition,
    condition_time,
    is_deleted,
    node_of,
    seconds,
)
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured

PATIENCE_SECONDS = 30.0
"""Decisions are due every ten seconds, and answers may be lost."""


class LimitJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], ready_seconds: float | None = None) -> None:
        self._state, self._wrong = state, wrong
        self.ready_seconds = ready_seconds
        """`waitForPodsReady.timeout`; None: there is none."""
        self._calm_since = 0.0
        self._was_ready: dict[str, float] = {}
        """Workload → the admission with which its pods were ready."""
        self._said: set[tuple[str, str]] = set()

    def disturb(self) -> None:
        """The scheduler may be late for other reasons. Pods that are ready now count all the same."""
        self._calm_since = self._state.clock()
        for key, tree in self._state.workloads.items():
            if admission(tree):
                pods = [pod for pod in self._state.pods_of(tree) if not is_deleted(pod)]
                self._is_ready(key, pods, condition_time(tree, "Admitted"))

    def check(self) -> None:
        now = self._state.clock()
        for key, tree in self._state.workloads.items():
            if not admission(tree) or is_finished(tree) or condition(tree, "Admitted") != "True":
                continue
            for what, ends_at in self._limits(key, tree):
                late = now - max(ends_at, self._calm_since)
                if late > PATIENCE_SECONDS and (key, what) not in self._said:
                    self._said.add((key, what))
                    self._wrong(f"{key} goes on {late:.0f} s after {what}")

    def _limits(self, key: str, tree: Unstructured) -> list[tuple[str, float]]:
        """What should have ended it, and when."""
        admitted_at, found = condition_time(tree, "Admitted"), []
        most = tree["spec"].get("maximumExecutionTimeSeconds")
        if most is not None:
            spent = (tree.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0
            found.append(("its maximum execution time", admitted_at + most - spent))
        pods = [pod for pod in self._state.pods_of(tree) if not is_deleted(pod)]
        owner = self._state.owner_of(tree)
        declared = annotations_of(owner).get(DECLARED_DURATION_ANNOTATION) if owner is not None else None
        starts = [seconds(pod["status"]["startTime"]) for pod in pods if pod["status"].get("startTime")]
        if declared and starts:
            found.append(("its declared duration", min(starts) + float(parse_duration(declared))))
        if self.ready_seconds is not None and not self._is_ready(key, pods, admitted_at):
            found.append(("the time for its pods to be ready", admitted_at + self.ready_seconds))
        return found

    def _is_ready(self, key: str, pods: list[Unstructured], admitted_at: float) -> bool:
        """Once all were ready, other limits count."""
        if pods and all(node_of(pod) and condition(pod, "Ready") == "True" for pod in pods):
            self._was_ready[key] = admitted_at
        return self._was_ready.get(key) == admitted_at
