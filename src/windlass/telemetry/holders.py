"""Who holds a GPU: the team, queue, user and job of a bound pod.

`ledger` asks for every bound pod with GPUs, `demand` for every workload that waits. A team is a namespace unless a
label names it; Kubernetes keeps no user with a pod, so one that no label names is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.cluster.snapshot import Snapshot
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import TEAM_LABEL, USER_LABEL
from windlass.model.pod import Pod
from windlass.model.workload import Workload

UNKNOWN_USER = "unknown"
NO_QUEUE = "(none)"
MAX_USER_LETTERS = 128


class Holder(msgspec.Struct, frozen=True, gc=False):
    team: str
    queue: str
    """ClusterQueue; the LocalQueue's `namespace/name` where its ClusterQueue is not known; `(none)`."""
    user: str
    job: str
    """`Kind namespace/name` of what was submitted."""


class HolderIndex:
    """The holders of a snapshot's pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._workload_of: dict[str, Workload] = {
            key: workload for workload in snapshot.workloads for part in workload.pod_sets for key in part.pod_keys
        }

    def of_pod(self, pod: Pod) -> Holder:
        workload = self._workload_of.get(pod.key)
        if workload is not None:
            return self.of_workload(workload, pod)
        return Holder(
            _team(pod.metadata), self._queue(pod, None), _user(pod.metadata), _job_of_owner(pod) or f"Pod {pod.key}"
        )

    def of_workload(self, workload: Workload, pod: Pod | None = None) -> Holder:
        templates = [part.template for part in workload.pod_sets]
        meta = (pod or next(iter(templates), Pod())).metadata
        job = workload.owner or (pod and _job_of_owner(pod)) or f"{workload.kind} {workload.key}"
        team = meta.labels.get(TEAM_LABEL) or workload.namespace
        return Holder(team, self._queue(pod, workload), _user(meta), job)

    def _queue(self, pod: Pod | None, workload: Workload | None) -> str:
        if workload is not None and workload.admission is not None and workload.admission.cluster_queue:
            return workload.admission.cluster_queue
        labels: Mapping[str, str] = pod.metadata.labels if pod is not None else {}
        name = (workload.queue_name if workload is not None else "") or labels.get(QUEUE_NAME_LABEL, "")
        if not name:
            return NO_QUEUE
        namespace = workload.namespace if workload is not None else _namespace(pod.metadata if pod else ObjectMeta())
        local = self._snapshot.queue_system.local_queue(namespace, name)
        return local.cluster_queue if local is not None else f"{namespace}/{name}"


def _namespace(meta: ObjectMeta) -> str:
    return meta.namespace or "default"


def _team(meta: ObjectMeta) -> str:
    return meta.labels.get(TEAM_LABEL) or _namespace(meta)


def _user(meta: ObjectMeta) -> str:
    return meta.labels.get(USER_LABEL) or _plain(meta.annotations.get(USER_LABEL, "")) or UNKNOWN_USER


def _plain(text: str) -> str:
    """An annotation as a name: any text can stand there, and it ends up in tables, CSV and names of series."""
    return "".join(letter for letter in text if letter.isprintable())[:MAX_USER_LETTERS].strip(" =+-@")


def _job_of_owner(pod: Pod) -> str:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return f"{owner.kind} {_namespace(pod.metadata)}/{owner.name}"
    return ""
