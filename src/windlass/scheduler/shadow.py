"""The sink of `--shadow`: logs each decision and what another scheduler did instead, and writes nothing.

`scheduler.scheduler` calls it instead of `apply.executor`. A pod's decision is logged when it is new, and compared
with the actual node once another scheduler has bound the pod.
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
        self._cache = cache
        self._binds: dict[str, str] = {}
        """Pending pod → node of the last decision."""
        self._holds: dict[str, str] = {}
        """Workload → code of the cause."""
        self._evicts: set[Evict] = set()
        self._asks: set[str] = set()
        self.matched = self.mismatched = 0
        """Pods that another scheduler bound to the node of our decision, and to another node."""

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
        for ask in plan.asks:
            if ask.id not in self._asks:
                log.info("shadow: would ask %s for a checkpoint until %d", ask.workload, ask.until)
        self._asks = {ask.id for ask in plan.asks}
        for evict in plan.evicts:
            if evict not in self._evicts:
                log.info("shadow: would evict %s for %s (%s)", evict.workload, evict.for_workload, evict.reason)
        self._binds, self._holds, self._evicts = binds, holds, set(plan.evicts)

    def _compare(self) -> None:
        for key, node in self._binds.items():
            pod = self._cache.pods.get(key)
            if pod is None or not pod.is_bound:
                continue
            actual = pod.spec.node_name
            self.matched += actual == node
            self.mismatched += actual != node
            log.info("shadow: %s was bound to %s; decided: %s", key, actual, node)
