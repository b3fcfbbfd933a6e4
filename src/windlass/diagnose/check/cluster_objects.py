"""Rules about ResourceQuotas and the device plugin's DaemonSet."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.quotas import is_ineffective_key
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.names.nvidia import GPU_RESOURCE, SHARED_GPU_RESOURCE
from windlass.model.names.others import AMD_GPU_RESOURCE

DEVICE_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
RESOURCE_NAMES = (GPU_RESOURCE, SHARED_GPU_RESOURCE, AMD_GPU_RESOURCE)


@rule("quota-key", ERROR, "A GPU quota is written as requests.<resource>")
def quota_key(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if manifest.kind != "ResourceQuota":
        return
    for key in nested_map(manifest.data, "spec", "hard"):
        bare = key.removeprefix("limits.")
        if is_ineffective_key(key):
            yield RuleFinding(
                f"{key} is not a valid quota key for a device and limits nothing",
                f"spec.hard.{key}",
                f"write requests.{bare}",
            )


@rule("plugin-daemonset", ERROR, "A device plugin's DaemonSet reaches GPU nodes and the kubelet")
def plugin_daemonset(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if manifest.kind != "DaemonSet" or "device-plugin" not in manifest.name:
        return
    for view in manifest.pods:
        mounted = [
            nested_string(volume, "hostPath", "path").rstrip("/") for volume in nested_maps(view.spec, "volumes")
        ]
        if not any(path and DEVICE_PLUGIN_FOLDER.startswith(path) for path in mounted):
            yield RuleFinding(
                f"does not mount the kubelet's socket folder {DEVICE_PLUGIN_FOLDER}, so it can't register",
                view.field_path("spec.volumes"),
                f"mount hostPath {DEVICE_PLUGIN_FOLDER} at the same path",
            )
        yield from _reaches(view, context)


def _reaches(view: PodView, context: CheckContext) -> Iterator[RuleFinding]:
    if view.pod is None:
        return
    if not context.nodes:
        yield from _resource_name_as_label(view)
        if not view.pod.spec.tolerations:
            yield RuleFinding(
                "tolerates no taint, and GPU nodes are usually tainted nvidia.com/gpu",
                view.field_path("spec.tolerations"),
                "tolerate {key: nvidia.com/gpu, operator: Exists}",
                WARNING,
            )
        return
    gpus = [node for node in context.nodes if nodes.looks_like_gpu_node(node)]
    reached = [
        node
        for node in gpus
        if not nodes.selector_mismatches(node, view.pod) and not nodes.blocking_taints(node, view.pod)
    ]
    if gpus and not reached:
        miss = nodes.selector_mismatches(gpus[0], view.pod)
        taints = [nodes.format_taint(taint) for taint in nodes.blocking_taints(gpus[0], view.pod)]
        why = miss[0] if miss else f"taint {taints[0]} is not tolerated"
        yield RuleFinding(
            f"matches none of {len(gpus)} GPU node(s): on {gpus[0].name}, {why}",
            view.field_path("spec"),
            "add the toleration or correct the nodeSelector",
        )


def _resource_name_as_label(view: PodView) -> Iterator[RuleFinding]:
    """A resource name used as a label; feature discovery sets `nvidia.com/gpu.present`."""
    for key in nested_map(view.spec, "nodeSelector"):
        if key in RESOURCE_NAMES:
            yield RuleFinding(
                f"selects nodes by the label {key}, which is a resource name and not set by feature discovery",
                view.field_path(f"spec.nodeSelector.{key}"),
                "select by nvidia.com/gpu.present=true (feature discovery sets it), or label the nodes",
                WARNING,
            )
