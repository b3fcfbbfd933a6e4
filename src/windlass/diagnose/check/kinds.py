"""Rules about kinds and fields that Windlass doesn't read: what the scheduler would hold, said beforehand."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.rule import ERROR, INFO, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.dump.nim_manifests import nim_objects
from windlass.model.codec import PartialObject
from windlass.model.errors import InputError
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.owners.unknown_kinds import makes_pods, not_implemented
from windlass.model.pod_group import PodGroupObject, pod_group_from_object
from windlass.model.queue_names import describe_queue, is_shared_queue, named_queue

ALREADY_SAID = ("FRACTIONAL_GPU_REQUEST", "REQUESTS_NE_LIMITS")
"""Codes of errors that have rules of their own."""


@rule("understood", ERROR, "Windlass reads the kind and all that it asks for, so that its pods can start")
def is_understood(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if not manifest.kind:
        return
    decoded = manifest.decoded
    if isinstance(decoded, InputError):
        if decoded.code not in ALREADY_SAID and all(view.validation_error is None for view in manifest.pods):
            yield RuleFinding(decoded.message, decoded.path, decoded.remedy)
        return
    if isinstance(decoded, PartialObject):
        yield from _unknown_kind(manifest)
    elif isinstance(decoded, OwnerObject):
        hold = owner_from_object(decoded).hold
        if hold:
            path, _, problem = hold.partition(": ")
            yield RuleFinding(f"{problem}, so it is held", path, f"remove {path}, or use another scheduler")
    elif isinstance(decoded, PodGroupObject):
        hold = pod_group_from_object(decoded).hold
        if hold:
            path, _, problem = hold.partition(": ")
            yield RuleFinding(f"{problem}, so its pods are held", path, f"remove {path}, or use another scheduler")
    yield from _claims(manifest)


def _unknown_kind(manifest: Manifest) -> Iterator[RuleFinding]:
    why_not = not_implemented(manifest.api_version, manifest.kind)
    if why_not:
        yield RuleFinding(why_not, "kind", level=INFO if manifest.kind == "Workload" else WARNING)
    if nim_objects(manifest.data):
        return  # planned as what its operator makes of it
    if makes_pods(manifest.api_version, manifest.kind) or (manifest.pods and manifest.kind != "PodTemplate"):
        if manifest.kind == "DaemonSet":
            return  # its pods are made for nodes, and placed by Kubernetes itself
        yield RuleFinding(
            f"is of a kind that Windlass doesn't know ({manifest.api_version}): nothing is decided on its pods",
            "kind",
            "check the pods that it makes, with a queue's label if they are queued",
        )


def _claims(manifest: Manifest) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        claims = nested_maps(view.spec, "resourceClaims")
        if claims:
            names = ", ".join(nested_string(claim, "name") for claim in claims)
            yield RuleFinding(
                f"asks for resource claims ({names}), which Windlass doesn't allocate: its pods are held",
                view.field_path("spec.resourceClaims"),
                "leave its pods to kube-scheduler, or ask for the device plugin's resource",
            )
        if nested_map(view.spec, "workloadRef"):
            yield RuleFinding(
                "spec.workloadRef is Kubernetes 1.35's way to name a group, and not implemented: its pods are held",
                view.field_path("spec.workloadRef"),
                "name a PodGroup in spec.schedulingGroup",
            )


@rule("shared-queue-exists", ERROR, "The queue of KAI or Volcano that work is submitted to exists")
def shared_queue_exists(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    metadata = nested_map(manifest.data, "metadata")
    queue = named_queue(nested_map(metadata, "labels"), nested_map(metadata, "annotations"))
    if not is_shared_queue(queue) or context.evidence is None or not context.evidence.has_kind("Queue"):
        return
    name = queue.partition("/")[2]
    known = {manifest.name for manifest in context.of_kind("Queue")}
    known |= {item.name for item in context.evidence.of_kind("Queue")}
    if name not in known:
        there = ", ".join(sorted(known))
        yield RuleFinding(f"{describe_queue(queue)} doesn't exist", "metadata.labels", f"there are: {there or 'none'}")
