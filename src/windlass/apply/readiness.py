"""Writes Kueue's condition PodsReady, and ends the waiting time of Workloads that were requeued.

`apply.admission` calls it with every plan. Decisions depend on both (`placement.stop_conditions`, `queueing.admit`);
they are facts in the cluster, so that a new leader counts on where the last one stopped.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from windlass.apply import kueue
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.snapshot import Snapshot
from windlass.model.kueue import WorkloadObject
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload


class ReadinessReporter:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter) -> None:
        self._cache, self._writer = cache, writer

    def report(self, snapshot: Snapshot) -> None:
        """PodsReady only where the configuration says how soon pods have to be ready. The end of a waiting time always:
        Kueue, or a replica with another configuration, may have begun it."""
        only_backoff = self._cache.settings.ready_seconds is None
        for workload in snapshot.workloads:
            if only_backoff and workload.hold_code != "REQUEUE_BACKOFF":
                continue
            with self._writer.guard.step(f"the readiness of {workload.key}"):
                self._report(workload)

    def _report(self, workload: Workload) -> None:
        known = self._writer.workload(workload.key) if workload.kind == "Workload" else None
        if known is None or self._writer.is_behind(known) or not self._writer.manages_workload(workload.key):
            return
        status = self._status(known, workload, int(time.time()))
        if status is not None:
            version = known.metadata.resource_version
            write = functools.partial(self._writer.patch_workload_status, known.key, status, version)
            self._writer.start_once(known.key, write)

    def _status(self, known: WorkloadObject, workload: Workload, now: int) -> dict[str, Any] | None:
        """What has to be written; None: nothing."""
        if known.status.admission is not None and known.condition("Admitted") is not None:
            if known.condition("Evicted") is not None:
                return None
            was_ready = known.condition("PodsReady") is not None
            return kueue.pods_ready_status(known, self._are_ready(workload, was_ready), now)
        state = known.status.requeue_state
        requeue_at = parse_timestamp(state.requeue_at) if state is not None else 0
        if not kueue.waits_to_be_requeued(known) or not known.spec.active or now < requeue_at:
            return None
        return kueue.backoff_finished_status(known, now)

    def _are_ready(self, workload: Workload, were_ready: bool) -> bool:
        """All admitted pods are there and ready. Once they were, only a pod that is not ready counts against it: those
        that have succeeded are not there any more."""
        pods = [self._cache.pods.get(key) for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        if not all(pod is not None and _is_ready(pod) for pod in pods):
            return False
        admitted = sum(part.count for part in workload.admission.assignments) if workload.admission else 0
        return were_ready or len(pods) >= admitted


def _is_ready(pod: Pod) -> bool:
    # Without a condition its kubelet has not looked at it yet.
    return pod.is_bound and bool(pod.status.conditions) and pod.is_ready
