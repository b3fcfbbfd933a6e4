"""Turns every kind of owner into one `Owner`: its pod sets, and the pod label that names the set of a pod.

Called by `model.codec` (as a check) and by `cluster.workloads`. The names of pod sets and the labels are those of the
projects' own controllers and of Kueue's integrations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.convert import convert
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.kai import KAI_BATCH_MIN_MEMBER_ANNOTATION
from windlass.model.names.kueue import MIN_PARALLELISM_ANNOTATION, QUEUE_NAME_LABEL, STOPPING_ANNOTATION
from windlass.model.names.others import LWS_EXCLUSIVE_ANNOTATION, LWS_SUBGROUP_EXCLUSIVE_ANNOTATION
from windlass.model.owners.app_wrapper import AppWrapperObject, read_app_wrapper
from windlass.model.owners.job_sets import exclusive_hold, read_job_set
from windlass.model.owners.kinds import struct_of_owner
from windlass.model.owners.kubeflow import read_kubeflow_job, read_train_job, read_training_runtime
from windlass.model.owners.owner import Owner, OwnerPodSet, checked_count, checked_template
from windlass.model.owners.ray import read_ray_cluster, read_ray_job, read_ray_service
from windlass.model.owners.spark import SparkApplicationObject, read_spark_application
from windlass.model.owners.volcano import VolcanoJobObject, read_volcano_job
from windlass.model.owners.wire import (
    Controller,
    CronJobObject,
    JobObject,
    JobSetObject,
    JobSpec,
    KubeflowJob,
    LeaderWorkerSetObject,
    OwnerObject,
    RayClusterObject,
    RayJobObject,
    RayServiceObject,
    TrainingRuntimeObject,
    TrainJobObject,
    UnknownOwnerObject,
)
from windlass.model.pod import Pod
from windlass.model.validation import check_pod

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"


def owner_from_object(wire: OwnerObject) -> Owner:
    """The owner of the object. Raises an `InputError` with the field's path."""
    if not wire.metadata.name and not wire.metadata.generate_name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    owner = _read(wire)
    outcome = wire.status.outcome
    if not outcome:
        return owner
    return msgspec.structs.replace(owner, finished=True, succeeded=outcome == "Succeeded")


def _read(wire: OwnerObject) -> Owner:
    match wire:
        case Controller():
            return _controller(wire)
        case JobObject() | CronJobObject():
            return _job(wire) if isinstance(wire, JobObject) else _cron_job(wire)
        case JobSetObject():
            return read_job_set(wire)
        case LeaderWorkerSetObject():
            return _leader_worker_set(wire)
        case KubeflowJob():
            return read_kubeflow_job(wire)
        case TrainJobObject():
            return read_train_job(wire)
        case TrainingRuntimeObject():
            return read_training_runtime(wire)
        case UnknownOwnerObject():
            return _unknown(wire)
        case _:
            return _read_other_projects(wire)


def _read_other_projects(wire: OwnerObject) -> Owner:
    match wire:
        case RayClusterObject():
            return read_ray_cluster(wire)
        case RayJobObject():
            return read_ray_job(wire)
        case RayServiceObject():
            return read_ray_service(wire)
        case VolcanoJobObject():
            return read_volcano_job(wire)
        case SparkApplicationObject():
            return read_spark_application(wire)
        case AppWrapperObject():
            return read_app_wrapper(wire, _read_wrapped)
        case _:
            raise AssertionError(f"no rule for {type(wire).__name__}")


def _read_wrapped(tree: Mapping[str, Any]) -> Owner | Pod | None:
    """What an AppWrapper has in it."""
    kind, version = str(tree.get("kind", "")), str(tree.get("apiVersion", ""))
    if (kind, version) == ("Pod", "v1"):
        pod = convert(tree, Pod)
        assert isinstance(pod, Pod), pod
        check_pod(pod)
        return pod
    struct = struct_of_owner(kind, version)
    if struct is None:
        return None
    wire = convert(tree, struct)
    assert isinstance(wire, OwnerObject), wire
    return owner_from_object(wire)


def _unknown(wire: UnknownOwnerObject) -> Owner:
    hold = f"{wire.kind} ({wire.api_version}) is of a kind that Windlass doesn't know: nothing is decided on its pods"
    return Owner(wire.kind, wire.metadata, hold=hold)


def _cron_job(wire: CronJobObject) -> Owner:
    """The Job that it makes at its times."""
    spec = wire.spec.job_template.spec
    pod_set = _job_pods(spec, "spec.jobTemplate.spec")
    sets = () if wire.spec.suspend else (pod_set,)
    is_gang = QUEUE_NAME_LABEL in wire.spec.job_template.metadata.labels
    return Owner(wire.KIND, wire.metadata, sets, is_gang=is_gang, makes_owners=True)


def _job_pods(spec: JobSpec, path: str) -> OwnerPodSet:
    count = checked_count(spec.parallelism, f"{path}.parallelism")
    if spec.completions is not None:
        count = min(count, checked_count(spec.completions, f"{path}.completions"))
    return OwnerPodSet("main", count, checked_template(spec.template, f"{path}.template"))


def _job(wire: JobObject) -> Owner:
    spec = wire.spec
    declared = count = checked_count(spec.parallelism, "spec.parallelism")
    if spec.completions is not None:
        declared = min(count, checked_count(spec.completions, "spec.completions"))
        left = spec.completions - wire.status.succeeded - _count_indexes(wire.status.failed_indexes, spec.completions)
        count = min(count, max(0, left))
    template = checked_template(spec.template, "spec.template")
    pod_set = OwnerPodSet("main", count, template, _min_parallelism(wire, count), declared - count)
    minimum = _batch_minimum(wire, count)
    return Owner(
        wire.KIND,
        wire.metadata,
        (pod_set,),
        is_gang=QUEUE_NAME_LABEL in wire.metadata.labels or minimum is not None,
        min_pods=minimum,
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
    return _number_of_pods(wire, MIN_PARALLELISM_ANNOTATION, count)


def _batch_minimum(wire: JobObject, count: int) -> int | None:
    """KAI's minimum of a Job: so many of its pods start together."""
    return _number_of_pods(wire, KAI_BATCH_MIN_MEMBER_ANNOTATION, count)


def _number_of_pods(wire: JobObject, annotation: str, count: int) -> int | None:
    text = wire.metadata.annotations.get(annotation, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise InputError(
            f"{text[:64]!r} is not a number of pods",
            path=f"metadata.annotations.{annotation}",
            remedy='use digits only, such as "2"',
        )
    return max(1, min(int(text), count))


def _leader_worker_set(wire: LeaderWorkerSetObject) -> Owner:
    spec = wire.spec.leader_worker_template
    path = "spec.leaderWorkerTemplate"
    size = checked_count(spec.size, f"{path}.size")
    workers = checked_template(spec.worker_template, f"{path}.workerTemplate")
    if spec.leader_template is None:
        sets: tuple[OwnerPodSet, ...] = (OwnerPodSet("main", size, workers),)
    else:
        leader = checked_template(spec.leader_template, f"{path}.leaderTemplate")
        sets = (OwnerPodSet("leader", 1, leader), OwnerPodSet("worker", max(0, size - 1), workers))
    groups = checked_count(wire.spec.replicas, "spec.replicas")
    checked_count(groups * size, "spec.replicas")
    hold = ""
    for name in (LWS_EXCLUSIVE_ANNOTATION, LWS_SUBGROUP_EXCLUSIVE_ANNOTATION):
        hold = hold or exclusive_hold(wire.metadata.annotations, name, "metadata")
    return Owner(wire.KIND, wire.metadata, sets, gang_count=groups, hold=hold)


def _controller(wire: Controller) -> Owner:
    count = checked_count(wire.spec.replicas, "spec.replicas")
    pod_set = OwnerPodSet("main", count, checked_template(wire.spec.template, "spec.template"))
    return Owner(wire.KIND, wire.metadata, (pod_set,), is_gang=False)
