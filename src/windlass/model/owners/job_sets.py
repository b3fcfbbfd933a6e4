"""Reads JobSets. Called by `model.owners.normalise`, and by `model.owners.kubeflow` for the runtimes of the trainer."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.others import JOBSET_EXCLUSIVE_ANNOTATION
from windlass.model.owners.owner import (
    Owner,
    OwnerPodSet,
    checked_count,
    checked_template,
    distinct_sets,
    longest_limit,
)
from windlass.model.owners.wire import JobSetObject, ReplicatedJob


def read_job_set(wire: JobSetObject) -> Owner:
    jobs = wire.spec.replicated_jobs
    return Owner(
        wire.KIND,
        wire.metadata,
        job_sets_pod_sets(jobs, "spec.replicatedJobs"),
        is_gang=QUEUE_NAME_LABEL in wire.metadata.labels,
        suspended=wire.spec.suspend,
        deadline=longest_limit([job.template.spec.active_deadline_seconds for job in jobs]),
        pod_set_label="jobset.sigs.k8s.io/replicatedjob-name",
        hold=_exclusive_hold(wire),
    )


def job_sets_pod_sets(jobs: tuple[ReplicatedJob, ...], path: str) -> tuple[OwnerPodSet, ...]:
    sets = []
    for index, job in enumerate(jobs):
        where = f"{path}[{index}]"
        spec = job.template.spec
        pods_per_job = checked_count(spec.parallelism, f"{where}.template.spec.parallelism")
        if spec.completions is not None:
            pods_per_job = min(pods_per_job, checked_count(spec.completions, f"{where}.template.spec.completions"))
        count = checked_count(pods_per_job * checked_count(job.replicas, f"{where}.replicas"), f"{where}.replicas")
        sets.append(OwnerPodSet(job.name, count, checked_template(spec.template, f"{where}.template.spec.template")))
    return distinct_sets(sets, path)


def _exclusive_hold(wire: JobSetObject) -> str:
    """Exclusive placement: every Job alone in a domain. Its webhook lets the other pods of a Job be created only when
    the first one has a node, which a gang never sees."""
    hold = exclusive_hold(wire.metadata.annotations, JOBSET_EXCLUSIVE_ANNOTATION, "metadata")
    for index, job in enumerate(wire.spec.replicated_jobs):
        path = f"spec.replicatedJobs[{index}].template.metadata"
        hold = hold or exclusive_hold(job.template.metadata.annotations, JOBSET_EXCLUSIVE_ANNOTATION, path)
    return hold


def exclusive_hold(annotations: Mapping[str, str], name: str, path: str) -> str:
    if name not in annotations:
        return ""
    return f"{path}.annotations.{name}: exclusive placement (a topology domain for each group) is not implemented"
