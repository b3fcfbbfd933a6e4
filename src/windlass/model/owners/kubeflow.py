"""Reads the jobs of Kubeflow's training operator and the MPI operator, and the trainer's TrainJob with its runtimes.

Called by `model.owners.normalise`. A TrainJob has no pod templates: they are in the runtime that it names, until the
trainer has made a JobSet of both, under the TrainJob's name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.names.others import KUBEFLOW_REPLICA_TYPE_LABEL, TRAINJOB_STEP_LABEL
from windlass.model.owners.job_sets import job_sets_pod_sets
from windlass.model.owners.owner import Owner, OwnerPodSet, TrainingRuntimeUse, checked_count, checked_template
from windlass.model.owners.wire import KubeflowJob, TrainingRuntimeObject, TrainJobObject
from windlass.model.pod import Container, RawQuantity, ResourceRequirements

TRAINER_STEP = "trainer"
TRAINER_CONTAINER = "node"
CLUSTER_TRAINING_RUNTIME = "ClusterTrainingRuntime"
_LEADERS = ("launcher", "master", "chief", "scheduler")


def read_kubeflow_job(wire: KubeflowJob) -> Owner:
    spec = wire.spec
    field, replicas = spec.replicas
    sets = [
        OwnerPodSet(
            role.lower(),
            checked_count(replica.replicas, f"spec.{field}.{role}.replicas"),
            checked_template(replica.template, f"spec.{field}.{role}.template"),
        )
        for role, replica in replicas.items()
    ]
    # Launcher or master first, whatever the order in the object: Kueue orders its pod sets so.
    sets.sort(key=lambda pod_set: pod_set.name not in _LEADERS)
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


def read_train_job(wire: TrainJobObject) -> Owner:
    spec, reference = wire.spec, wire.spec.runtime_ref
    namespace = "" if reference.kind == CLUSTER_TRAINING_RUNTIME else wire.metadata.namespace
    trainer = spec.trainer
    nodes = None if trainer.num_nodes is None else checked_count(trainer.num_nodes, "spec.trainer.numNodes")
    resources = trainer.resources_per_node
    use = TrainingRuntimeUse(
        reference.kind, f"{namespace or 'default'}/{reference.name}", nodes, resources.requests, resources.limits
    )
    return Owner(wire.KIND, wire.metadata, suspended=spec.suspend, runtime=use if reference.name else None)


def read_training_runtime(wire: TrainingRuntimeObject) -> Owner:
    """The runtime's pod sets, with its own number of nodes."""
    path = "spec.template.spec.replicatedJobs"
    jobs = wire.spec.template.spec.replicated_jobs
    sets = job_sets_pod_sets(jobs, path)
    nodes = wire.spec.ml_policy.num_nodes
    if nodes is not None:
        count = checked_count(nodes, "spec.mlPolicy.numNodes")
        sets = tuple(
            msgspec.structs.replace(pod_set, count=count) if _is_trainer(job.template.metadata.labels) else pod_set
            for job, pod_set in zip(jobs, sets, strict=True)
        )
    trainers = tuple(
        pod_set.name for job, pod_set in zip(jobs, sets, strict=True) if _is_trainer(job.template.metadata.labels)
    )
    return Owner(
        wire.KIND,
        wire.metadata,
        sets,
        is_template=True,
        trainer_sets=trainers,
        pod_set_label="jobset.sigs.k8s.io/replicatedjob-name",
    )


def with_runtime(job: Owner, runtime: Owner) -> Owner:
    """The TrainJob with the pod sets of its runtime, and what it changes there."""
    use = job.runtime
    assert use is not None, job
    sets = tuple(
        _changed(pod_set, use) if pod_set.name in runtime.trainer_sets else pod_set for pod_set in runtime.pod_sets
    )
    return msgspec.structs.replace(job, pod_sets=sets, pod_set_label=runtime.pod_set_label)


def with_job_set(job: Owner, job_set: Owner) -> Owner | None:
    """The TrainJob with the pod sets of the JobSet that its controller has made; None if that is not its own.

    A TrainJob that is made anew under its old name meets the JobSet of its predecessor."""
    for reference in job_set.metadata.owner_references:
        if reference.controller and (reference.kind, reference.name) == (job.kind, job.metadata.name):
            if job.metadata.uid and reference.uid not in ("", job.metadata.uid):
                return None
            return msgspec.structs.replace(
                job, pod_sets=job_set.pod_sets, pod_set_label=job_set.pod_set_label, deadline=job_set.deadline
            )
    return None


def _is_trainer(labels: Mapping[str, str]) -> bool:
    return labels.get(TRAINJOB_STEP_LABEL) == TRAINER_STEP


def _changed(pod_set: OwnerPodSet, use: TrainingRuntimeUse) -> OwnerPodSet:
    count = pod_set.count if use.nodes is None else use.nodes
    if not use.requests and not use.limits:
        return msgspec.structs.replace(pod_set, count=count)
    spec = pod_set.template.spec
    names = [container.name for container in spec.containers]
    at = names.index(TRAINER_CONTAINER) if TRAINER_CONTAINER in names else 0
    containers = tuple(
        _with_resources(container, use.requests, use.limits) if place == at else container
        for place, container in enumerate(spec.containers)
    )
    template = PodTemplate(
        metadata=pod_set.template.metadata, spec=msgspec.structs.replace(spec, containers=containers)
    )
    return msgspec.structs.replace(pod_set, count=count, template=template)


def _with_resources(
    container: Container, requests: Mapping[str, RawQuantity], limits: Mapping[str, RawQuantity]
) -> Container:
    resources = ResourceRequirements(
        limits=dict(limits), requests=dict(requests) or dict(limits), claims=container.resources.claims
    )
    return msgspec.structs.replace(container, resources=resources)
