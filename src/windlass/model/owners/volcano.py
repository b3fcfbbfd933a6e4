"""Reads Volcano's Job. Called by `model.owners.normalise`; its controller makes a PodGroup and the pods of it."""

from __future__ import annotations

from typing import ClassVar

from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.meta import KubeStruct
from windlass.model.names.volcano import VOLCANO_DEFAULT_QUEUE, VOLCANO_JOB_KIND, VOLCANO_TASK_LABEL
from windlass.model.owners.owner import Owner, OwnerPodSet, checked_count, checked_template, distinct_sets
from windlass.model.owners.wire import OwnerObject, OwnerStatus
from windlass.model.pod_group import VolcanoNetworkTopology
from windlass.model.queue_names import VOLCANO_PREFIX

_OUTCOMES = {"Completed": "Succeeded", "Failed": "Failed", "Aborted": "Failed", "Terminated": "Failed"}


class VolcanoTask(KubeStruct, frozen=True):
    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: PodTemplate = PodTemplate()


class VolcanoJobSpec(KubeStruct, frozen=True):
    min_available: int | None = None
    queue: str = VOLCANO_DEFAULT_QUEUE
    priority_class_name: str = ""
    network_topology: VolcanoNetworkTopology | None = None
    tasks: tuple[VolcanoTask, ...] = ()


class VolcanoJobState(KubeStruct, frozen=True):
    phase: str = ""


class VolcanoJobStatus(OwnerStatus, frozen=True):
    state: VolcanoJobState = VolcanoJobState()

    @property
    def outcome(self) -> str:
        return _OUTCOMES.get(self.state.phase, "")


class VolcanoJobObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = VOLCANO_JOB_KIND
    status: VolcanoJobStatus = VolcanoJobStatus()
    spec: VolcanoJobSpec = VolcanoJobSpec()


def read_volcano_job(wire: VolcanoJobObject) -> Owner:
    spec = wire.spec
    sets = [
        OwnerPodSet(
            task.name or f"default{index}",
            checked_count(task.replicas, f"spec.tasks[{index}].replicas"),
            checked_template(task.template, f"spec.tasks[{index}].template"),
        )
        for index, task in enumerate(spec.tasks)
    ]
    total = sum(pod_set.count for pod_set in sets)
    minimum = total if spec.min_available is None else checked_count(spec.min_available, "spec.minAvailable")
    return Owner(
        wire.KIND,
        wire.metadata,
        distinct_sets(sets, "spec.tasks"),
        min_pods=min(minimum, total),
        pod_set_label=VOLCANO_TASK_LABEL,
        queue=f"{VOLCANO_PREFIX}{spec.queue}",
        hold=_hold(spec, minimum, total),
    )


def _hold(spec: VolcanoJobSpec, minimum: int, total: int) -> str:
    if spec.network_topology is not None and spec.network_topology.mode == "hard":
        return "spec.networkTopology: tiers of HyperNodes are not implemented"
    for index, task in enumerate(spec.tasks):
        if task.min_available is not None and task.min_available < task.replicas and minimum < total:
            return (
                f"spec.tasks[{index}].minAvailable: a minimum of a task is implemented only if it covers all its pods"
            )
    return ""
