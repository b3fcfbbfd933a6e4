"""Rules about queues: they exist, admit namespaces, and cover the requested resources."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.requests import pod_and_requests
from windlass.diagnose.check.rule import ERROR, INFO, WARNING, CheckContext, Fix, RuleFinding, rule
from windlass.diagnose.unstructured import nested, nested_maps, nested_string, nested_strings
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.requests import is_extended_resource


@rule("cluster-queue-admits-namespaces", WARNING, "A ClusterQueue with LocalQueues has a namespaceSelector")
def cluster_queue_admits(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if manifest.kind != "ClusterQueue" or nested(manifest.data, "spec", "namespaceSelector") is not None:
        return
    if not _has_local_queues(manifest.name, context):
        yield RuleFinding(
            "has no namespaceSelector, so it admits nothing and only lends its quota",
            "spec",
            "write namespaceSelector: {} if work is to be submitted to it",
            INFO,
        )
        return
    yield RuleFinding(
        "has no namespaceSelector, so it admits nothing",
        "spec",
        "write namespaceSelector: {} to admit every namespace",
        change=Fix("spec.namespaceSelector", {}),
    )


def _has_local_queues(name: str, context: CheckContext) -> bool:
    known = [queue.data for queue in context.of_kind("LocalQueue")]
    known += [queue.data for queue in (context.evidence.of_kind("LocalQueue") if context.evidence is not None else ())]
    return any(nested_string(queue, "spec", "clusterQueue") == name for queue in known)


@rule("cluster-queue-covers-requests", ERROR, "A ClusterQueue covers what its jobs request")
def cluster_queue_covers(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if manifest.kind == "ClusterQueue":
        yield from _covers_devices_alone(manifest)
    found = cluster_queue_of(manifest, context)
    if found is None:
        return
    name, queue, _ = found
    covered = _covered(queue)
    for view in manifest.pods:
        read = pod_and_requests(view)
        for resource in sorted(set(read[1] if read is not None else ()) - covered - {"pods"}):
            yield RuleFinding(
                f"requests {resource}, which ClusterQueue {name} does not cover, so it is never admitted",
                view.field_path("spec"),
                f"add {resource} to the queue's coveredResources",
            )


def _covers_devices_alone(manifest: Manifest) -> Iterator[RuleFinding]:
    """Most jobs request CPU and memory too, and Kueue never admits a request that the queue does not cover."""
    covered = _covered(manifest.data)
    missing = [name for name in ("cpu", "memory") if name not in covered]
    if missing and any(is_extended_resource(name) for name in covered):
        yield RuleFinding(
            f"covers devices but not {' and '.join(missing)}: a job that requests those too is never admitted",
            "spec.resourceGroups",
            f"add {' and '.join(missing)} to coveredResources, or have Kueue ignore undeclared resources",
            WARNING,
        )


def _covered(queue: dict[str, object]) -> set[str]:
    groups = nested_maps(queue, "spec", "resourceGroups")
    return {resource for group in groups for resource in nested_strings(group, "coveredResources")}


def cluster_queue_of(manifest: Manifest, context: CheckContext) -> tuple[str, dict[str, object], str] | None:
    """(name, content, path of the field that names the queue) of the manifest's ClusterQueue; None if it is in no queue
    or the queue is not known."""
    queue = nested_string(manifest.data, "metadata", "labels", QUEUE_NAME_LABEL)
    path = f"metadata.labels.{QUEUE_NAME_LABEL}"
    if manifest.kind == "Workload":
        queue, path = nested_string(manifest.data, "spec", "queueName"), "spec.queueName"
    local = _known("LocalQueue", manifest.namespace, queue, context) if queue else None
    name = nested_string(local, "spec", "clusterQueue")
    found = _known("ClusterQueue", "default", name, context) if name else None
    return (name, found, path) if found is not None else None


def _known(kind: str, namespace: str, name: str, context: CheckContext) -> dict[str, object] | None:
    """The object's content from the manifests, else from the cluster."""
    for manifest in context.of_kind(kind):
        if (manifest.namespace, manifest.name) == (namespace, name):
            return manifest.data
    item = context.evidence.get(kind, namespace, name) if context.evidence is not None else None
    return item.data if item is not None else None


@rule("queue-exists", ERROR, "The queue that work is submitted to exists")
def queue_exists(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    queue = nested_string(manifest.data, "metadata", "labels", QUEUE_NAME_LABEL)
    if not queue or context.evidence is None or not context.evidence.has_kind("LocalQueue"):
        return
    if _known("LocalQueue", manifest.namespace, queue, context) is None:
        existing = sorted(
            queue.name for queue in context.evidence.of_kind("LocalQueue") if queue.namespace == manifest.namespace
        )
        yield RuleFinding(
            f"there is no LocalQueue {queue} in namespace {manifest.namespace}",
            f"metadata.labels.{QUEUE_NAME_LABEL}",
            f"there are: {', '.join(existing) or 'none'}",
        )
