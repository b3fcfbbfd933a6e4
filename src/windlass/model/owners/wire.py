"""The kinds that own pods, with the fields that a workload needs: sizes, templates, whether they are suspended.

Decoded by `model.codec`; `model.owners.normalise` turns each into an `Owner`. Field names are the interfaces of
Kubernetes, JobSet, Kubeflow, Ray and LeaderWorkerSet (all Apache-2.0).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from windlass.model.kueue.workload_wire import Condition, PodTemplate
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import ResourceRequirements

_FINISHED_CONDITIONS = ("Complete", "Completed", "Succeeded", "Failed")
_RAY_OUTCOMES = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "STOPPED": "Failed"}


class OwnerStatus(KubeStruct, frozen=True):
    """What is read of any owner's status."""

    succeeded: int = 0
    failed_indexes: str = ""
    """Only in Jobs with `backoffLimitPerIndex`: indexes that are not tried again, such as `1,3-5`."""
    conditions: tuple[Condition, ...] = ()
    job_status: str = ""
    """Only in RayJob; finished with SUCCEEDED, FAILED or STOPPED."""

    @property
    def outcome(self) -> str:
        """Succeeded or Failed; empty while it has not ended."""
        for condition in self.conditions:
            if condition.status == "True" and condition.type in _FINISHED_CONDITIONS:
                return "Failed" if condition.type == "Failed" else "Succeeded"
        return _RAY_OUTCOMES.get(self.job_status, "")


class OwnerObject(KubeStruct, frozen=True):
    """Base of all kinds of owners."""

    KIND: ClassVar[str] = ""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    status: OwnerStatus = OwnerStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class JobSpec(KubeStruct, frozen=True):
    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    template: PodTemplate = PodTemplate()


class JobObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "Job"
    spec: JobSpec = JobSpec()


class JobTemplate(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class CronJobSpec(KubeStruct, frozen=True):
    suspend: bool = False
    job_template: JobTemplate = JobTemplate()


class CronJobObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "CronJob"
    spec: CronJobSpec = CronJobSpec()


class ReplicatedJob(KubeStruct, frozen=True):
    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()


class JobSetSpec(KubeStruct, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    suspend: bool = False


class JobSetObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "JobSet"
    spec: JobSetSpec = JobSetSpec()


class ReplicaSpec(KubeStruct, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class KubeflowScheduling(KubeStruct, frozen=True):
    min_available: int | None = None
    priority_class: str = ""


class RunPolicy(KubeStruct, frozen=True):
    suspend: bool = False
    active_deadline_seconds: int | None = None
    scheduling_policy: KubeflowScheduling | None = None


class ElasticPolicy(KubeStruct, frozen=True):
    min_replicas: int | None = None


Replicas = dict[str, ReplicaSpec]


class KubeflowSpec(KubeStruct, frozen=True):
    """Every kind has its own name for the map of replica types; the rest is the same."""

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: Replicas = msgspec.field(default_factory=dict)
    tf_replica_specs: Replicas = msgspec.field(default_factory=dict)
    mpi_replica_specs: Replicas = msgspec.field(default_factory=dict)
    xgb_replica_specs: Replicas = msgspec.field(default_factory=dict)
    paddle_replica_specs: Replicas = msgspec.field(default_factory=dict)
    jax_replica_specs: Replicas = msgspec.field(default_factory=dict)

    @property
    def replicas(self) -> tuple[str, Replicas]:
        """The map that is filled, and the field's name."""
        maps = {
            "pytorchReplicaSpecs": self.pytorch_replica_specs,
            "tfReplicaSpecs": self.tf_replica_specs,
            "mpiReplicaSpecs": self.mpi_replica_specs,
            "xgbReplicaSpecs": self.xgb_replica_specs,
            "paddleReplicaSpecs": self.paddle_replica_specs,
            "jaxReplicaSpecs": self.jax_replica_specs,
        }
        return next((entry for entry in maps.items() if entry[1]), ("", {}))


class KubeflowJob(OwnerObject, frozen=True):
    spec: KubeflowSpec = KubeflowSpec()


class PyTorchJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "PyTorchJob"


class TFJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "TFJob"


class MPIJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "MPIJob"


class XGBoostJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "XGBoostJob"


class PaddleJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "PaddleJob"


class JAXJobObject(KubeflowJob, frozen=True):
    KIND: ClassVar[str] = "JAXJob"


class RuntimeReference(KubeStruct, frozen=True):
    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(KubeStruct, frozen=True):
    num_nodes: int | None = None
    resources_per_node: ResourceRequirements = ResourceRequirements()


class TrainJobSpec(KubeStruct, frozen=True):
    suspend: bool = False
    runtime_ref: RuntimeReference = RuntimeReference()
    trainer: Trainer = Trainer()


class TrainJobObject(OwnerObject, frozen=True):
    """Its pod templates are in a training runtime; the JobSet that the trainer creates has them."""

    KIND: ClassVar[str] = "TrainJob"
    spec: TrainJobSpec = TrainJobSpec()


class MlPolicy(KubeStruct, frozen=True):
    num_nodes: int | None = None


class RuntimeTemplate(KubeStruct, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class TrainingRuntimeSpec(KubeStruct, frozen=True):
    ml_policy: MlPolicy = MlPolicy()
    template: RuntimeTemplate = RuntimeTemplate()


class TrainingRuntimeObject(OwnerObject, frozen=True):
    """What TrainJobs of a namespace are made of."""

    KIND: ClassVar[str] = "TrainingRuntime"
    spec: TrainingRuntimeSpec = TrainingRuntimeSpec()


class ClusterTrainingRuntimeObject(TrainingRuntimeObject, frozen=True):
    KIND: ClassVar[str] = "ClusterTrainingRuntime"


class RayHeadGroup(KubeStruct, frozen=True):
    template: PodTemplate = PodTemplate()


class RayWorkerGroup(KubeStruct, frozen=True):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int | None = None
    suspend: bool = False
    num_of_hosts: int = 1
    template: PodTemplate = PodTemplate()


class AutoscalerOptions(KubeStruct, frozen=True):
    resources: ResourceRequirements | None = None


class RayClusterSpec(KubeStruct, frozen=True):
    suspend: bool = False
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions | None = None
    head_group_spec: RayHeadGroup = RayHeadGroup()
    worker_group_specs: tuple[RayWorkerGroup, ...] = ()


class RayClusterObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "RayCluster"
    spec: RayClusterSpec = RayClusterSpec()


class RayServiceSpec(KubeStruct, frozen=True):
    ray_cluster_config: RayClusterSpec = RayClusterSpec()


class RayServiceObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "RayService"
    spec: RayServiceSpec = RayServiceSpec()


class RayJobSpec(KubeStruct, frozen=True):
    suspend: bool = False
    submission_mode: str = ""
    cluster_selector: dict[str, str] = msgspec.field(default_factory=dict)
    active_deadline_seconds: int | None = None
    ray_cluster_spec: RayClusterSpec = RayClusterSpec()
    submitter_pod_template: PodTemplate | None = None


class RayJobObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "RayJob"
    spec: RayJobSpec = RayJobSpec()


class LeaderWorkerTemplate(KubeStruct, frozen=True):
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    size: int = 1


class LeaderWorkerSetSpec(KubeStruct, frozen=True):
    replicas: int = 1
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSetObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "LeaderWorkerSet"
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class ControllerSpec(KubeStruct, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class Controller(OwnerObject, frozen=True):
    """A controller of independent pods."""

    spec: ControllerSpec = ControllerSpec()


class DeploymentObject(Controller, frozen=True):
    KIND: ClassVar[str] = "Deployment"


class ReplicaSetObject(Controller, frozen=True):
    KIND: ClassVar[str] = "ReplicaSet"


class ReplicationControllerObject(Controller, frozen=True):
    KIND: ClassVar[str] = "ReplicationController"


class StatefulSetObject(Controller, frozen=True):
    KIND: ClassVar[str] = "StatefulSet"


class UnknownOwnerObject(OwnerObject, frozen=True):
    """A manifest of a kind that makes pods and that Windlass doesn't read: it is held by name, never passed over."""

    kind: str = ""
