"""The kinds that the operator watches, and where they are found."""

from __future__ import annotations

from windlass.kube.resources import WATCHED_KINDS, Kind, Resource

GROUP, VERSION = "windlass.dev", "v1alpha1"
STATEFUL_SETS = Resource("StatefulSet", "statefulsets", "apps", "v1")
JOBS = Resource("Job", "jobs", "batch", "v1")
DAEMON_SETS = Resource("DaemonSet", "daemonsets", "apps", "v1")
CLUSTER_POLICIES = Resource("ClusterPolicy", "clusterpolicies", "nvidia.com", "v1", namespaced=False)
NVIDIA_DRIVERS = Resource("NVIDIADriver", "nvidiadrivers", "nvidia.com", "v1alpha1", namespaced=False)
"""Both of NVIDIA's operator; there only where that is installed."""
PLURALS = {"GPUStack": "gpustacks", "GPUNode": "gpunodes", "FleetChange": "fleetchanges", "GPURepair": "gpurepairs"}
OPERATOR_RESOURCES = {
    kind: Resource(kind, plural, GROUP, VERSION, namespaced=False) for kind, plural in PLURALS.items()
}
OPERATOR_KINDS = tuple(
    Kind(kind, plural, GROUP, (VERSION,), namespaced=False, required=True) for kind, plural in PLURALS.items()
)
OWNER_KINDS = ("Job", "JobSet", "RayCluster")
"""Owners that have owners: through them a pod belongs to the Workload of a JobSet, TrainJob or RayJob."""
WATCHED_BY_OPERATOR: tuple[Kind, ...] = (
    Kind("Node", "nodes", "", ("v1",), False, True),
    Kind("Pod", "pods", "", ("v1",), True, True),
    Kind("DaemonSet", "daemonsets", "apps", ("v1",), True, True),
    Kind("NVIDIADriver", "nvidiadrivers", "nvidia.com", ("v1alpha1",), namespaced=False),
    *(kind for kind in WATCHED_KINDS if kind.kind in ("StatefulSet", "Workload", *OWNER_KINDS)),
    *OPERATOR_KINDS,
)
SCHEDULER = "windlass-scheduler"
"""Its Lease; it publishes how it decides in a ConfigMap beside it."""
CANARY_NAMESPACE = "windlass-canary"
"""Where canary work runs."""
