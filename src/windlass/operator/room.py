"""Whether work that a drain would stop starts elsewhere: the engine is asked, on the cluster as it would be then.

The node is closed, its pods wait, and what they belong to waits for quota; the plan of the engine says what of that
starts without evicting others. `decide.room` asks and heeds the answer; `operator.room_readings` reads the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.model.configuration import Settings
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import WorkloadStatus
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod, PodStatus
from windlass.operator.observed import RoomQuestion
from windlass.planner import plan_objects

replace = msgspec.structs.replace
_DEVICES = (ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION)


def work_without_room(
    objects: Sequence[object], settings: Settings, question: RoomQuestion, now: int
) -> tuple[str, ...]:
    """Workloads, and pods that belong to none, that would wait after the drain."""
    after = [moved for obj in objects if (moved := _after_drain(obj, question, settings)) is not None]
    plan, _ = plan_objects(after, settings, now)
    starts = {bind.pod for bind in plan.binds if not bind.after}
    starts |= {admit.workload for admit in plan.admits if not admit.after}
    return tuple(name for name in (*question.works, *question.pods) if name not in starts)


def _after_drain(obj: object, question: RoomQuestion, settings: Settings) -> object | None:
    """None for a pod that its owner would make again once its Workload is admitted."""
    if isinstance(obj, Node) and obj.name == question.node:
        return replace(obj, spec=replace(obj.spec, unschedulable=True))
    if isinstance(obj, WorkloadObject) and obj.key in question.works:
        return replace(obj, status=WorkloadStatus(), spec=replace(obj.spec, active=True))
    if isinstance(obj, Pod) and obj.key in question.pods_of_works:
        return None
    if isinstance(obj, Pod) and obj.key in question.pods:
        return _as_waiting(obj, settings)
    return obj


def _as_waiting(pod: Pod, settings: Settings) -> Pod:
    """Whoever schedules it: the question is whether there is room."""
    kept: dict[str, Any] = {key: text for key, text in pod.metadata.annotations.items() if key not in _DEVICES}
    return replace(
        pod,
        metadata=replace(pod.metadata, annotations=kept, deletion_timestamp=""),
        spec=replace(pod.spec, node_name="", scheduler_name=settings.scheduler_names[0]),
        status=PodStatus(phase="Pending"),
    )
