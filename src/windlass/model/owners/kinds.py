"""The kinds that own pods, with their API versions and structs: the one table that `model.codec` decodes by."""

from __future__ import annotations

from windlass.model.names.kubernetes import APPS_API_VERSION, BATCH_API_VERSION
from windlass.model.names.others import (
    APP_WRAPPER_API_VERSION,
    JOBSET_API_VERSION,
    KUBEFLOW_API_VERSION,
    LEADER_WORKER_SET_API_VERSION,
    MPI_JOB_API_VERSION,
    RAY_API_VERSION,
    SPARK_API_VERSION,
    TRAINER_API_VERSION,
)
from windlass.model.names.volcano import VOLCANO_JOB_API_VERSION
from windlass.model.owners import wire
from windlass.model.owners.app_wrapper import AppWrapperObject
from windlass.model.owners.spark import SparkApplicationObject
from windlass.model.owners.volcano import VolcanoJobObject

OWNER_KINDS: dict[str, tuple[tuple[str, type[wire.OwnerObject]], ...]] = {
    "Job": ((BATCH_API_VERSION, wire.JobObject), (VOLCANO_JOB_API_VERSION, VolcanoJobObject)),
    "CronJob": ((BATCH_API_VERSION, wire.CronJobObject),),
    "JobSet": ((JOBSET_API_VERSION, wire.JobSetObject),),
    "PyTorchJob": ((KUBEFLOW_API_VERSION, wire.PyTorchJobObject),),
    "TFJob": ((KUBEFLOW_API_VERSION, wire.TFJobObject),),
    "MPIJob": ((MPI_JOB_API_VERSION, wire.MPIJobObject),),
    "XGBoostJob": ((KUBEFLOW_API_VERSION, wire.XGBoostJobObject),),
    "PaddleJob": ((KUBEFLOW_API_VERSION, wire.PaddleJobObject),),
    "JAXJob": ((KUBEFLOW_API_VERSION, wire.JAXJobObject),),
    "TrainJob": ((TRAINER_API_VERSION, wire.TrainJobObject),),
    "TrainingRuntime": ((TRAINER_API_VERSION, wire.TrainingRuntimeObject),),
    "ClusterTrainingRuntime": ((TRAINER_API_VERSION, wire.ClusterTrainingRuntimeObject),),
    "RayCluster": ((RAY_API_VERSION, wire.RayClusterObject),),
    "RayJob": ((RAY_API_VERSION, wire.RayJobObject),),
    "RayService": ((RAY_API_VERSION, wire.RayServiceObject),),
    "LeaderWorkerSet": ((LEADER_WORKER_SET_API_VERSION, wire.LeaderWorkerSetObject),),
    "AppWrapper": ((APP_WRAPPER_API_VERSION, AppWrapperObject),),
    "SparkApplication": ((SPARK_API_VERSION, SparkApplicationObject),),
    "Deployment": ((APPS_API_VERSION, wire.DeploymentObject),),
    "ReplicaSet": ((APPS_API_VERSION, wire.ReplicaSetObject),),
    "ReplicationController": (("v1", wire.ReplicationControllerObject),),
    "StatefulSet": ((APPS_API_VERSION, wire.StatefulSetObject),),
}
"""Kind → its API versions, one per group, each with its struct."""


def struct_of_owner(kind: str, version: str) -> type[wire.OwnerObject] | None:
    group = version.rpartition("/")[0]
    known = OWNER_KINDS.get(kind, ())
    return next((struct for api_version, struct in known if api_version.rpartition("/")[0] == group), None)
