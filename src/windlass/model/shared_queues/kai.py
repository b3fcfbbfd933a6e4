"""Reads KAI's Queue (`scheduling.run.ai/v2`). Field names are KAI's interface (Apache-2.0).

CPU is in millicores, memory in megabytes (10^6), GPUs in devices and parts of them; -1 means without limit. As in KAI,
a limit that is not given is 0, and so nothing may be used.
"""

from __future__ import annotations

from windlass.model.errors import InputError
from windlass.model.kueue.queue_wire import QueueObject
from windlass.model.kueue.queues import unimplemented_fields_message
from windlass.model.meta import KubeStruct
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue_names import KAI_PREFIX
from windlass.model.shared_queues.quota_tree import SharedQueue
from windlass.model.times import parse_duration

DEFAULT_PRIORITY = 100
NO_LIMIT = -1
_UNITS = {"cpu": 1, "memory": 1_000_000, GPU_RESOURCE: 1000}
"""Resource → units of quota in one unit of KAI's."""


class KaiQuota(KubeStruct, frozen=True):
    quota: float = 0
    limit: float = 0
    over_quota_weight: float = 0


class KaiResources(KubeStruct, frozen=True):
    gpu: KaiQuota = KaiQuota()
    cpu: KaiQuota = KaiQuota()
    memory: KaiQuota = KaiQuota()


class KaiQueueSpec(KubeStruct, frozen=True):
    display_name: str = ""
    parent_queue: str = ""
    priority: int = DEFAULT_PRIORITY
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""
    resources: KaiResources = KaiResources()


class KaiQueueObject(QueueObject, frozen=True):
    spec: KaiQueueSpec = KaiQueueSpec()


def kai_queue_from_object(wire: KaiQueueObject) -> SharedQueue:
    spec = wire.spec
    if not wire.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    given = {"cpu": spec.resources.cpu, "memory": spec.resources.memory, GPU_RESOURCE: spec.resources.gpu}
    limits = {resource: _amount(resource, given[resource].limit, "limit") for resource in given}
    return SharedQueue(
        f"{KAI_PREFIX}{wire.name}",
        f"{KAI_PREFIX}{spec.parent_queue}" if spec.parent_queue else "",
        {resource: _amount(resource, given[resource].quota, "quota") for resource in given},
        {resource: limit for resource, limit in limits.items() if limit is not None},
        weight_milli=max(0, round(spec.resources.gpu.over_quota_weight * 1000)),
        priority=spec.priority,
        preempt_min_run_seconds=_seconds(spec.preempt_min_runtime, "spec.preemptMinRuntime"),
        reclaim_min_run_seconds=_seconds(spec.reclaim_min_runtime, "spec.reclaimMinRuntime"),
        inactive_reason=unimplemented_fields_message(wire.unread_fields),
    )


def _amount(resource: str, value: float, field: str) -> int | None:
    """In units of quota; None: no limit."""
    if value == NO_LIMIT:
        return None
    if value < 0:
        name = "gpu" if resource == GPU_RESOURCE else resource
        raise InputError(
            f"{value:g} is negative", path=f"spec.resources.{name}.{field}", remedy="use -1 for no limit, or 0 or more"
        )
    return round(value * _UNITS[resource])


def _seconds(text: str, path: str) -> int | None:
    if not text:
        return None
    try:
        return parse_duration(text)
    except InputError as error:
        raise InputError(error.message, path=path, remedy=error.remedy) from None
