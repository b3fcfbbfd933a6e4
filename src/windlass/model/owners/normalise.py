"""Turns every kind of owner into one `Owner`: its pod sets, and the pod label that names the set of a pod.

Called by `model.codec` (as a check) and by `cluster.workloads`. The names of pod sets and the labels are those of the
projects' own controllers and of Kueue's integrations.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import (
    ELASTIC_JOB_ANNOTATION,
    MIN_PARALLELISM_ANNOTATION,
    QUEUE_NAME_LABEL,
    STOPPING_ANNOTATION,
)
from windlass.model.names.others import KUBEFLOW_REPLICA_TYPE_LABEL
from windlass.model.owners.wire import (
    Controller,
    JobObject,
    JobSetObject,
    KubeflowJob,
    LeaderWorkerSetObject,
    OwnerObject,
    RayClusterObject,
    RayClusterSpec,
    RayJobObject,
    TrainJobObject,
)
from windlass.model.pod import Pod
from windlass.model.topology_request import MAX_PODS
from windlass.model.validation import check_pod

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
_FINISHED_CONDITIONS = ("Complete", "Completed", "Succeeded", "Failed")
_SUCCEEDED_CONDITIONS = ("Complete", "Completed", "Succeeded")
_RAY_FINISHED = ("SUCCEEDED", "FAILED", "STOPPED")


class OwnerPodSet(msgspec.Struct, frozen=True):
    """Pods of one template."""

    name: str
    count: int
    """Pods that it runs at a time, as far as they have not ended for good."""
    template: PodTemplate
    min_count: int | None = None
    ended: int = 0
    """Pods by which `count` is smaller since they have ended for good (a Job's completions)."""


class Owner(msgspec.Struct, frozen=True):
    """The object that makes the pods, and how many pods of which template it makes."""

    kind: str
    metadata: ObjectMeta
    pod_sets: tuple[OwnerPodSet, ...] = ()
    """Of one gang, if the owner makes several."""
    gang_count: int = 1
    """Number of gangs with these sets, each a workload of its own (LeaderWorkerSet)."""
    is_gang: bool = True
    """Its pods start together or not at all."""
    min_pods: int | None = None
    suspended: bool = False
    """False as long as Kueue's annotation says that it is being stopped: its template is not restored yet."""
    finished: bool = False
    succeeded: bool = False
    """Finished successfully."""
    deadline: int | None = None
    pod_set_label: str = ""
    """Pod label whose value is the name of the pod's set."""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def is_elastic(self) -> bool:
        """A Job that may grow while it runs: Kueue's workload slices."""
        return self.kind == "Job" and self.metadata.annotations.get(ELASTIC_JOB_ANNOTATION) == "true"


def owner_from_object(wire: OwnerObject) -> Owner:
    """The owner of the object. Raises an `InputError` with the field's path."""
    if not wire.metadata.name and not wire.metadata.generate_name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    match wire:
        case JobObject():
            owner = _job(wire)
        case JobSetObject():
            owner = _job_set(wire)
        case KubeflowJob():
            owner = _kubeflow(wire)
        case RayClusterObject():
            owner = _ray_cluster(wire)
        case RayJobObject():
            owner = _ray_job(wire)
        case LeaderWorkerSetObject():
            owner = _leader_worker_set(wire)
        case TrainJobObject():
            owner = Owner(wire.KIND, wire.metadata, suspended=wire.spec.suspend)
        case Controller():
            owner = _controller(wire)
        case _:
            raise AssertionError(f"no rule for {type(wire).__name__}")
    finished = _is_finished(wire)
    return msgspec.structs.replace(owner, finished=finished, succeeded=finished and _has_succeeded(wire))


def template_pod(owner: Owner, pod_set: OwnerPodSet) -> Pod:
    """A pod of the set as the controller would create it."""
    name = f"{owner.metadata.name or owner.metadata.generate_name}-{pod_set.name}"
    metadata = msgspec.structs.replace(
        pod_set.template.metadata, name=name, namespace=owner.metadata.namespace or "default"
    )
    return Pod(metadata=metadata, spec=pod_set.template.spec)


def _job(wire: JobObject) -> Owner:
    spec = wire.spec
    declared = count = _count(spec.parallelism, "spec.parallelism")
    if spec.completions is not None:
        declared = min(count, _count(spec.completions, "spec.completions"))
        left = spec.completions - wire.status.succeeded - _count_indexes(wire.status.failed_indexes, spec.completions)
        count = min(count, max(0, left))
    template = _template(spec.template, "spec.template")
    pod_set = OwnerPodSet("main", count, template, _min_parallelism(wire, count), declared - count)
    return Owner(
        wire.KIND,
        wire.metadata,
        (pod_set,),
        is_gang=QUEUE_NAME_LABEL in wire.metadata.labels,
        suspended=spec.suspend and wire.metadata.annotations.get(STOPPING_ANNOTATION) != "true",
        deadline=spec.active_deadline_seconds,
    )


def _count_indexes(text: str, completions: int) -> int:
    """How many indexes a text such as `1,3-5` names, below `completions`; what can't be read names none."""
    named = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if is_digits(first) and is_digits(last or first):
            named += max(0, min(int(last or first), completions - 1) - int(first) + 1)
    return named


def _min_parallelism(wire: JobObject, count: int) -> int | None:
    """Kueue's partial admission of a Job."""
    text = wire.metadata.annotations.get(MIN_PARALLELISM_ANNOTATION, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise InputError(
            f"{text[:64]!r} is not a number of pods",
            path=f"metadata.annotations.{MIN_PARALLELISM_ANNOTATION}",
            remedy='use digits only, such as "2"',
        )
    return max(1, min(int(text), count))


def _job_set(wire: JobSetObject) -> Owner:
    sets = []
    for index, job in enumerate(wire.spec.replicated_jobs):
        path = f"spec.replicatedJobs[{index}]"
        spec = job.template.spec
        pods_per_job = _count(spec.parallelism, f"{path}.template.spec.parallelism")
        if spec.completions is not None:
            pods_per_job = min(pods_per_job, _count(spec.completions, f"{path}.template.spec.completions"))
        count = _count(pods_per_job * _count(job.replicas, f"{path}.replicas"), f"{path}.replicas")
        sets.append(OwnerPodSet(job.name, count, _template(spec.template, f"{path}.template.spec.template")))
    limits = [job.template.spec.active_deadline_seconds for job in wire.spec.replicated_jobs]
    return Owner(
        wire.KIND,
        wire.metadata,
        _distinct(sets, "spec.replicatedJobs"),
        is_gang=QUEUE_NAME_LABEL in wire.metadata.labels,
        suspended=wire.spec.suspend,
        deadline=_longest(limits),
        pod_set_label="jobset.sigs.k8s.io/replicatedjob-name",
    )


def _kubeflow(wire: KubeflowJob) -> Owner:
    spec = wire.spec
    field, replicas = spec.replicas
    sets = [
        OwnerPodSet(
            role.lower(),
            _count(replica.replicas, f"spec.{field}.{role}.replicas"),
            _template(replica.template, f"spec.{field}.{role}.template"),
        )
        for role, replica in replicas.items()
    ]
    # Launcher or master first, whatever the order in the object: Kueue orders its pod sets so.
    sets.sort(key=lambda pod_set: pod_set.name not in ("launcher", "master", "chief", "scheduler"))
    minimum = spec.run_policy.scheduling_policy.min_available if spec.run_policy.scheduling_policy else None
    if minimum is None and spec.elastic_policy is not None and spec.elastic_policy.min_replicas is not None:
        minimum = spec.elastic_policy.min_replicas + sum(pod_set.count for pod_set in sets if pod_set.name != "worker")
    total = sum(pod_set.count for pod_set in sets)
    return Owner(
        wire.KIND,
        wire.metadata,
        tuple(sets),
        min_pods=None if minimum is None else max(0, min(minimum, total)),
        suspended=spec.run_policy.suspend,
        deadline=spec.run_policy.active_deadline_seconds,
        pod_set_label=KUBEFLOW_REPLICA_TYPE_LABEL,
    )


def _ray_cluster(wire: RayClusterObject) -> Owner:
    return Owner(
        wire.KIND,
        wire.metadata,
        _ray_sets(wire.spec, "spec"),
        suspended=wire.spec.suspend,
        pod_set_label="ray.io/group",
    )


def _ray_job(wire: RayJobObject) -> Owner:
    submitter = wire.spec.submitter_pod_template
    sets = _ray_sets(wire.spec.ray_cluster_spec, "spec.rayClusterSpec")
    if submitter is not None:
        sets = (*sets, OwnerPodSet("submitter", 1, _template(submitter, "spec.submitterPodTemplate")))
    return Owner(
        wire.KIND,
        wire.metadata,
        sets,
        suspended=wire.spec.suspend,
        deadline=wire.spec.active_deadline_seconds,
        pod_set_label="ray.io/group",
    )


def _ray_sets(spec: RayClusterSpec, path: str) -> tuple[OwnerPodSet, ...]:
    sets = [OwnerPodSet("headgroup", 1, _template(spec.head_group_spec.template, f"{path}.headGroupSpec.template"))]
    for index, group in enumerate(spec.worker_group_specs):
        where = f"{path}.workerGroupSpecs[{index}]"
        hosts = _count(group.num_of_hosts, f"{where}.numOfHosts")
        count = _count(_count(group.replicas, f"{where}.replicas") * hosts, f"{where}.replicas")
        sets.append(OwnerPodSet(group.group_name, count, _template(group.template, f"{where}.template")))
    return _distinct(sets, f"{path}.workerGroupSpecs")


def _leader_worker_set(wire: LeaderWorkerSetObject) -> Owner:
    spec = wire.spec.leader_worker_template
    path = "spec.leaderWorkerTemplate"
    size = _count(spec.size, f"{path}.size")
    workers = _template(spec.worker_template, f"{path}.workerTemplate")
    if spec.leader_template is None:
        sets: tuple[OwnerPodSet, ...] = (OwnerPodSet("main", size, workers),)
    else:
        leader = _template(spec.leader_template, f"{path}.leaderTemplate")
        sets = (OwnerPodSet("leader", 1, leader), OwnerPodSet("worker", max(0, size - 1), workers))
    groups = _count(wire.spec.replicas, "spec.replicas")
    _count(groups * size, "spec.replicas")
    return Owner(wire.KIND, wire.metadata, sets, gang_count=groups)


def _controller(wire: Controller) -> Owner:
    count = _count(wire.spec.replicas, "spec.replicas")
    pod_set = OwnerPodSet("main", count, _template(wire.spec.template, "spec.template"))
    return Owner(wire.KIND, wire.metadata, (pod_set,), is_gang=False)


def _template(template: PodTemplate, path: str) -> PodTemplate:
    """The template, checked like a pod; paths of errors are relative to the owner."""
    named = msgspec.structs.replace(template.metadata, name="template")
    try:
        check_pod(Pod(metadata=named, spec=template.spec))
    except InputError as error:
        raise InputError(error.message, path=f"{path}.{error.path}", remedy=error.remedy, code=error.code) from None
    return template


def _distinct(sets: Iterable[OwnerPodSet], path: str) -> tuple[OwnerPodSet, ...]:
    made = tuple(sets)
    names = [pod_set.name for pod_set in made]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise InputError(
                f"name {name!r} is empty or used twice", path=f"{path}[{index}]", remedy="use unique names"
            )
    return made


def _count(value: int, path: str) -> int:
    if not 0 <= value <= MAX_PODS:
        raise InputError(f"{value} is out of range", path=path, remedy=f"use 0 to {MAX_PODS}")
    return value


def _longest(limits: list[int | None]) -> int | None:
    """The longest limit, if every part has one."""
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _is_finished(wire: OwnerObject) -> bool:
    if isinstance(wire, Controller):
        return False
    ended = any(
        condition.type in _FINISHED_CONDITIONS and condition.status == "True" for condition in wire.status.conditions
    )
    return ended or wire.status.job_status in _RAY_FINISHED


def _has_succeeded(wire: OwnerObject) -> bool:
    """Of a finished owner."""
    succeeded = any(
        condition.type in _SUCCEEDED_CONDITIONS and condition.status == "True" for condition in wire.status.conditions
    )
    return succeeded or wire.status.job_status == _RAY_FINISHED[0]
