"""`--shadow`: decides on everything, writes nothing, and says beside each decision what really happened.

Takes the place of `apply.executor` as the loop's sink, and listens to the same pods. Each pod's decision is logged
when it is new, and again with its outcome when somebody else has bound the pod.
"""

from __future__ import annotations

import logging

from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import Evict
from windlass.model.plan import Plan
from windlass.scheduler.cache import SchedulerCache

log = logging.getLogger(__name__)


class ShadowSink:
    def __init__(self, cache: SchedulerCache) -> None:
        self._world = cache
        self._binds: dict[str, str] = {}
        """Pod → node that was decided last, while it waits."""
        self._holds: dict[str, str] = {}
        self._evicts: set[Evict] = set()
        self.matched = self.mismatched = 0
        """Pods that went where we would have put them, and those that didn't."""

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        self._compare()
        binds = {bind.pod: bind.node for bind in plan.binds}
        for pod, node in binds.items():
            if self._binds.get(pod) != node:
                log.info("shadow: would bind %s to %s", pod, node)
        holds = {hold.workload: hold.verdict.code for hold in plan.holds}
        for workload, code in holds.items():
            if self._holds.get(workload) != code:
                log.info("shadow: would hold %s (%s)", workload, code)
        for evict in plan.evicts:
            if evict not in self._evicts:
                log.info(
                    "shadow: would evict %s for %s (%s)", evict.workload, evict.for_workload, evict.reason
                )
        self._binds, self._holds, self._evicts = binds, holds, set(plan.evicts)

    def _compare(self) -> None:
        """What became of the pods that were to be bound."""
        for pod, node in self._binds.items():
            found = self._world.pods.get(pod)
            if found is None or not found.is_bound:
                continue
            actual = found.spec.node_name
            self.matched += actual == node
            self.mismatched += actual != node
            log.info("shadow: %s was bound to %s; decided: %s", pod, actual, node)
