"""Rules about objects around pods: queues, quotas and the device plugin's DaemonSet."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes, tree
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.requests import readable
from windlass.diagnose.check.rule import ERROR, WARNING, Around, Fix, Said, rule
from windlass.diagnose.queue import QUEUE_LABEL
from windlass.model.requests import is_extended

SOCKETS = "/var/lib/kubelet/device-plugins"


@rule("cluster-queue-admits-namespaces", ERROR, "A ClusterQueue has a namespaceSelector")
def cluster_queue_admits(manifest: Manifest, around: Around) -> Iterator[Said]:
    if manifest.kind == "ClusterQueue" and tree.at(manifest.data, "spec", "namespaceSelector") is None:
        yield Said(
            "has no namespaceSelector, and so admits nothing",
            "spec",
            "write namespaceSelector: {} to admit every namespace",
            change=Fix("spec.namespaceSelector", {}),
        )


@rule("cluster-queue-covers-requests", ERROR, "A ClusterQueue covers what its jobs ask for")
def cluster_queue_covers(manifest: Manifest, around: Around) -> Iterator[Said]:
    queue = tree.text(manifest.data, "metadata", "labels", QUEUE_LABEL)
    if not queue:
        return
    covered = _covered(manifest.namespace, queue, around)
    if covered is None:
        return
    name, resources = covered
    for view in manifest.pods:
        read = readable(view)
        for resource in sorted(set(read[1] if read is not None else ()) - resources - {"pods"}):
            yield Said(
                f"asks for {resource}, which ClusterQueue {name} doesn't cover, so it would never be admitted",
                view.at("spec"),
                f"add {resource} to the queue's coveredResources",
            )


def _covered(namespace: str, queue: str, around: Around) -> tuple[str, set[str]] | None:
    """The ClusterQueue behind a LocalQueue and the resources that it covers, among the manifests or in the cluster."""
    locals_ = [
        one.data for one in around.of_kind("LocalQueue") if (one.namespace, one.name) == (namespace, queue)
    ]
    if around.evidence is not None and not locals_:
        item = around.evidence.get("LocalQueue", namespace, queue)
        locals_ = [item.data] if item is not None else []
    if not locals_:
        return None
    name = tree.text(locals_[0], "spec", "clusterQueue")
    queues = [one.data for one in around.of_kind("ClusterQueue") if one.name == name]
    if around.evidence is not None and not queues:
        item = around.evidence.get("ClusterQueue", "", name)
        queues = [item.data] if item is not None else []
    if not queues:
        return None
    groups = tree.rows(queues[0], "spec", "resourceGroups")
    return name, {resource for group in groups for resource in tree.words(group, "coveredResources")}


@rule("queue-exists", ERROR, "The queue that work is submitted to exists")
def queue_exists(manifest: Manifest, around: Around) -> Iterator[Said]:
    queue = tree.text(manifest.data, "metadata", "labels", QUEUE_LABEL)
    if not queue or around.evidence is None or not around.evidence.knows("LocalQueue"):
        return
    mine = [
        one
        for one in around.of_kind("LocalQueue")
        if (one.namespace, one.name) == (manifest.namespace, queue)
    ]
    if not mine and around.evidence.get("LocalQueue", manifest.namespace, queue) is None:
        there = sorted(
            one.name for one in around.evidence.of_kind("LocalQueue") if one.namespace == manifest.namespace
        )
        yield Said(
            f"there is no LocalQueue {queue} in namespace {manifest.namespace}",
            f"metadata.labels.{QUEUE_LABEL}",
            f"there are: {', '.join(there) or 'none'}",
        )


@rule("quota-key", ERROR, "A GPU quota is written as requests.<resource>")
def quota_key(manifest: Manifest, around: Around) -> Iterator[Said]:
    if manifest.kind != "ResourceQuota":
        return
    for key in tree.table(manifest.data, "spec", "hard"):
        bare = key.removeprefix("limits.")
        if is_extended(bare) and "/" in bare and not key.startswith("requests."):
            yield Said(
                f"{key} is no valid quota key for a device, and limits nothing",
                f"spec.hard.{key}",
                f"write requests.{bare}",
            )


@rule("plugin-daemonset", ERROR, "A device plugin's DaemonSet reaches GPU nodes and the kubelet")
def plugin_daemonset(manifest: Manifest, around: Around) -> Iterator[Said]:
    if manifest.kind != "DaemonSet" or "device-plugin" not in manifest.name:
        return
    for view in manifest.pods:
        mounted = [
            tree.text(volume, "hostPath", "path").rstrip("/") for volume in tree.rows(view.spec, "volumes")
        ]
        if not any(path and SOCKETS.startswith(path) for path in mounted):
            yield Said(
                f"does not mount the kubelet's socket folder {SOCKETS}, so it can't register",
                view.at("spec.volumes"),
                f"mount hostPath {SOCKETS} at the same path",
            )
        yield from _reaches(view, around)


def _reaches(view: PodView, around: Around) -> Iterator[Said]:
    if view.pod is None:
        return
    if not around.nodes:
        if not view.pod.spec.tolerations:
            yield Said(
                "tolerates no taint, and GPU nodes are usually tainted nvidia.com/gpu",
                view.at("spec.tolerations"),
                "tolerate {key: nvidia.com/gpu, operator: Exists}",
                WARNING,
            )
        return
    gpus = [node for node in around.nodes if nodes.looks_like_gpu_node(node)]
    reached = [
        node
        for node in gpus
        if not nodes.selector_misses(node, view.pod) and not nodes.blocking_taints(node, view.pod)
    ]
    if gpus and not reached:
        miss = nodes.selector_misses(gpus[0], view.pod)
        taints = [nodes.taint_words(taint) for taint in nodes.blocking_taints(gpus[0], view.pod)]
        why = miss[0] if miss else f"taint {taints[0]} is not tolerated"
        yield Said(
            f"matches none of {len(gpus)} GPU node(s): on {gpus[0].name}, {why}",
            view.at("spec"),
            "match them",
        )
