"""The kinds that the operator watches, and where they are found."""

from __future__ import annotations

from windlass.kube.resources import Kind, Resource

GROUP, VERSION = "windlass.dev", "v1alpha1"
DAEMON_SETS = Resource("DaemonSet", "daemonsets", "apps", "v1")
PLURALS = {"GPUStack": "gpustacks", "GPUNode": "gpunodes", "FleetChange": "fleetchanges", "GPURepair": "gpurepairs"}
OPERATOR_RESOURCES = {
    kind: Resource(kind, plural, GROUP, VERSION, namespaced=False) for kind, plural in PLURALS.items()
}
OPERATOR_KINDS = tuple(
    Kind(kind, plural, GROUP, (VERSION,), namespaced=False, required=True) for kind, plural in PLURALS.items()
)
WATCHED_BY_OPERATOR: tuple[Kind, ...] = (
    Kind("Node", "nodes", "", ("v1",), False, True),
    Kind("Pod", "pods", "", ("v1",), True, True),
    Kind("DaemonSet", "daemonsets", "apps", ("v1",), True, True),
    *OPERATOR_KINDS,
)
