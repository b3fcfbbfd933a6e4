"""Which pods, owners and queues this scheduler decides on: by the scheduler's name, and by queue beside a live Kueue.

`scheduler.cache` has one, and asks it which objects the store has to see; `apply` asks it before it writes.
`scheduler.kueue_watch` says whether Kueue is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.cluster.workloads.workload_attributes import declares_eviction_cost
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.codec import Unreadable
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ClusterQueueObject, LocalQueueObject
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.pod import Pod
from windlass.model.queue_names import named_queue
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.take_over import STOP_POLICY_HOLD, TakeOver

Queue = ClusterQueueObject | LocalQueueObject


class Responsibility:
    def __init__(self, options: SchedulerOptions, objects: Mapping[tuple[str, str, str], Any]) -> None:
        self._options = options
        self._objects = objects
        self.kueue_is_live = False
        self.take_over = TakeOver(options.take_over)

    def covers(self, pod: Pod) -> bool:
        return self._covers_name(pod.spec.scheduler_name)

    def covers_unreadable(self, unreadable: Unreadable) -> bool:
        """Whether a pod that could not be decoded names one of our schedulers."""
        return self._covers_name(unreadable.scheduler_name or DEFAULT_SCHEDULER_NAME)

    def covers_owner(self, owner: Owner) -> bool:
        names = {pod_set.template.spec.scheduler_name for pod_set in owner.pod_sets}
        return self._options.shadow or not names.isdisjoint(self._options.settings.scheduler_names)

    def _covers_name(self, scheduler: str) -> bool:
        return self._options.shadow or scheduler in self._options.settings.scheduler_names

    def admits_to(self, namespace: str, queue: str) -> bool:
        """Whether we decide on the quota of a LocalQueue, and not a live Kueue."""
        return not self.kueue_is_live or self.is_taken_over(namespace, queue)

    def is_taken_over(self, namespace: str, queue: str) -> bool:
        return f"{namespace}/{queue}" in self.take_over.local_queues

    def without_takeover_hold(self, queue: Queue) -> Queue:
        """A queue that was taken over admits although its stopPolicy is Hold: the hold keeps Kueue off it."""
        if queue.spec.stop_policy != STOP_POLICY_HOLD or not self._is_queue_taken_over(queue):
            return queue
        return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, stop_policy="None"))

    def _is_queue_taken_over(self, queue: Queue) -> bool:
        names = self.take_over.names
        if isinstance(queue, LocalQueueObject):
            return f"{queue.metadata.namespace}/{queue.metadata.name}" in names
        name = queue.metadata.name
        local_queues = (self._objects.get((KUEUE_API_GROUP, "LocalQueue", key)) for key in names if "/" in key)
        return name in names or any(local is not None and local.spec.cluster_queue == name for local in local_queues)

    def concerns_engine(self, obj: Any) -> bool:
        """Whether the engine has to see it. A live Kueue decides on Workloads until it has admitted them."""
        if isinstance(obj, WorkloadObject):
            namespace = obj.metadata.namespace or "default"
            return self.admits_to(namespace, obj.spec.queue_name) or obj.status.admission is not None
        return self.owner_concerns_engine(obj) if isinstance(obj, OwnerObject) else True

    def owner_concerns_engine(self, obj: OwnerObject) -> bool:
        """False for gangs of other schedulers, owners in queues that Kueue decides on, and owners of independent
        pods that they neither queue nor protect from preemption. A Deployment's pods are in the Deployment's queue:
        without it, they would pass the queue by."""
        owner = owner_from_object(obj)
        queue = owner.metadata.labels.get(QUEUE_NAME_LABEL, "")
        if queue and not self.admits_to(owner.metadata.namespace or "default", queue):
            return False
        if not owner.is_gang and declares_eviction_cost(owner.metadata):
            return True
        if owner.pod_sets and not self.covers_owner(owner):
            return False
        if owner.is_gang or named_queue(owner.metadata.labels, owner.metadata.annotations):
            return True
        return any(reference.controller for reference in owner.metadata.owner_references)
