"""The kinds that Windlass reads from an API server, and where they are found there.

`kube.discovery` asks which of them the server has, and in which version; `kube.informer` lists and watches them.
"""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """A kind that Windlass reads, with the versions that it can read, best first."""

    kind: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool = True
    required: bool = False
    """Part of Kubernetes itself: the scheduler does not start without it."""

    def resource_at(self, version: str) -> Resource:
        return Resource(self.kind, self.plural, self.group, version, self.namespaced)


class Resource(msgspec.Struct, frozen=True):
    """A kind in the version that the server has."""

    kind: str
    plural: str
    group: str
    version: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def collection(self) -> str:
        return f"{self.root}/{self.plural}"

    def path(self, key: str, subresource: str = "") -> str:
        """Of one object, by `namespace/name` or name."""
        namespace, _, name = key.rpartition("/")
        inside = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.root}{inside}/{self.plural}/{name}" + (f"/{subresource}" if subresource else "")

    def namespace_collection(self, namespace: str) -> str:
        """The collection in one namespace, to create in."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced else self.collection


NAMESPACES = Resource("Namespace", "namespaces", "", "v1", namespaced=False)
PODS = Resource("Pod", "pods", "", "v1")
NODES = Resource("Node", "nodes", "", "v1", namespaced=False)
PERSISTENT_VOLUMES = Resource("PersistentVolume", "persistentvolumes", "", "v1", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("PersistentVolumeClaim", "persistentvolumeclaims", "", "v1")
EVENTS = Resource("Event", "events", "events.k8s.io", "v1")
LEASES = Resource("Lease", "leases", "coordination.k8s.io", "v1")
CONFIG_MAPS = Resource("ConfigMap", "configmaps", "", "v1")

KUEUE_API_GROUP = "kueue.x-k8s.io"
_KUEUE = ("v1beta2", "v1beta1")
_KUBEFLOW = "kubeflow.org"

WATCHED_KINDS: tuple[Kind, ...] = (
    Kind("Namespace", "namespaces", "", ("v1",), False, True),
    Kind("StorageClass", "storageclasses", "storage.k8s.io", ("v1",), False, True),
    Kind("CSINode", "csinodes", "storage.k8s.io", ("v1",), False, True),
    Kind("VolumeAttachment", "volumeattachments", "storage.k8s.io", ("v1",), False, True),
    Kind("PersistentVolume", "persistentvolumes", "", ("v1",), False, True),
    Kind("PersistentVolumeClaim", "persistentvolumeclaims", "", ("v1",), True, True),
    Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", ("v1",), False, True),
    Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy", ("v1",), True, True),
    Kind("ResourceQuota", "resourcequotas", "", ("v1",)),
    Kind("LimitRange", "limitranges", "", ("v1",)),
    Kind("RuntimeClass", "runtimeclasses", "node.k8s.io", ("v1",), False),
    Kind("Node", "nodes", "", ("v1",), False, True),
    Kind("Pod", "pods", "", ("v1",), True, True),
    Kind("Job", "jobs", "batch", ("v1",), True, True),
    Kind("Deployment", "deployments", "apps", ("v1",)),
    Kind("StatefulSet", "statefulsets", "apps", ("v1",)),
    Kind("ClusterQueue", "clusterqueues", KUEUE_API_GROUP, _KUEUE, False),
    Kind("LocalQueue", "localqueues", KUEUE_API_GROUP, _KUEUE),
    Kind("Cohort", "cohorts", KUEUE_API_GROUP, _KUEUE, False),
    Kind("ResourceFlavor", "resourceflavors", KUEUE_API_GROUP, _KUEUE, False),
    Kind("Topology", "topologies", KUEUE_API_GROUP, _KUEUE, False),
    Kind("Workload", "workloads", KUEUE_API_GROUP, _KUEUE),
    Kind("WorkloadPriorityClass", "workloadpriorityclasses", KUEUE_API_GROUP, _KUEUE, False),
    Kind("Reservation", "reservations", "windlass.dev", ("v1",), False),
    Kind("RunTimeHistory", "runtimehistories", "windlass.dev", ("v1",)),
    Kind("PodGroup", "podgroups", "scheduling.x-k8s.io", ("v1alpha1",)),
    Kind("PodGroup", "podgroups", "scheduling.volcano.sh", ("v1beta1",)),
    Kind("PodGroup", "podgroups", "scheduling.k8s.io", ("v1beta1", "v1alpha2")),
    Kind("PodGroup", "podgroups", "scheduling.run.ai", ("v2alpha2",)),
    Kind("Queue", "queues", "scheduling.run.ai", ("v2",), False),
    Kind("Queue", "queues", "scheduling.volcano.sh", ("v1beta1",), False),
    Kind("JobSet", "jobsets", "jobset.x-k8s.io", ("v1alpha2",)),
    Kind("PyTorchJob", "pytorchjobs", _KUBEFLOW, ("v1",)),
    Kind("TFJob", "tfjobs", _KUBEFLOW, ("v1",)),
    Kind("XGBoostJob", "xgboostjobs", _KUBEFLOW, ("v1",)),
    Kind("PaddleJob", "paddlejobs", _KUBEFLOW, ("v1",)),
    Kind("JAXJob", "jaxjobs", _KUBEFLOW, ("v1",)),
    Kind("MPIJob", "mpijobs", _KUBEFLOW, ("v2beta1",)),
    Kind("TrainJob", "trainjobs", "trainer.kubeflow.org", ("v1alpha1",)),
    Kind("RayCluster", "rayclusters", "ray.io", ("v1",)),
    Kind("RayJob", "rayjobs", "ray.io", ("v1",)),
    Kind("AppWrapper", "appwrappers", "workload.codeflare.dev", ("v1beta2",)),
    Kind("SparkApplication", "sparkapplications", "sparkoperator.k8s.io", ("v1beta2",)),
    Kind("LeaderWorkerSet", "leaderworkersets", "leaderworkerset.x-k8s.io", ("v1",)),
)
"""The kinds that the engine reads, in the order of the first list: objects that pods refer to come before pods."""
