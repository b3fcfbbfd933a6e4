"""Builds pods from the templates of a Job, training job or Workload, as their controllers would create them.

`scenario.workload_shorthand` uses it for workloads that run at the start, `scenario.executor` for admitted ones.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from windlass.model.codec import decode_object
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.kueue.workloads import with_default_limits
from windlass.model.names.kueue import POD_SET_LABEL, WORKLOAD_ANNOTATION
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.owners.normalise import LWS_GROUP, LWS_WORKER
from windlass.model.queue import ResourceFlavor
from windlass.model.unstructured import Unstructured
from windlass.simulate.clock import virtual_timestamp


class PodSetTemplate(msgspec.Struct, frozen=True):
    """A pod set of an owner or Workload."""

    name: str
    count: int
    pod: Unstructured
    """metadata and spec."""
    set_label: str = ""
    is_only_set: bool = True
    """The object has no other pod set."""


def pod_templates_of(obj: Unstructured) -> list[PodSetTemplate]:
    """The pod sets of a Workload or an owner; none for any other kind."""
    decoded = decode_object(obj)
    if isinstance(decoded, WorkloadObject):
        pod_sets = decoded.spec.pod_sets
        sets = [(pod_set.name, pod_set.count, _with_default_limits(pod_set.template)) for pod_set in pod_sets]
        label = POD_SET_LABEL
    elif isinstance(decoded, OwnerObject):
        owner = owner_from_object(decoded)
        sets = [(pod_set.name, pod_set.count, pod_set.template) for pod_set in owner.pod_sets]
        label = owner.pod_set_label
    else:
        return []
    return [
        PodSetTemplate(name, count, msgspec.to_builtins(template), label, len(sets) == 1)
        for name, count, template in sets
    ]


def _with_default_limits(template: PodTemplate) -> PodTemplate:
    """A Workload's templates may lack limits that the API server requires of pods."""
    return msgspec.structs.replace(template, spec=with_default_limits(template.spec))


def member_pod(obj: Unstructured, template: PodSetTemplate, number: int, gang: int | None = None) -> Unstructured:
    """Pod `number` of the object, in the gang with this number if the object has several."""
    metadata = obj["metadata"]
    pod_meta: Unstructured = copy.deepcopy(template.pod.get("metadata", {}))
    pod_meta.setdefault("labels", {})
    pod_meta.setdefault("annotations", {})
    parts = [metadata["name"], gang, None if template.is_only_set else template.name, number]
    pod_meta["name"] = "-".join(str(part) for part in parts if part is not None)
    pod_meta["namespace"] = metadata.get("namespace", "default")
    if template.set_label:
        pod_meta["labels"][template.set_label] = template.name
    if obj["kind"] == "Workload":
        pod_meta["annotations"][WORKLOAD_ANNOTATION] = metadata["name"]
    else:
        owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"]}
        pod_meta["ownerReferences"] = [{**owner, "controller": True}]
    if gang is not None:
        worker = "0" if template.name == "leader" else str(number + 1)
        pod_meta["labels"] |= {LWS_GROUP: str(gang), LWS_WORKER: worker}
    spec = copy.deepcopy(template.pod.get("spec", {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec}


def running_pod(pod: Unstructured, node: str, at: int, flavors: Sequence[ResourceFlavor] = ()) -> Unstructured:
    """The pod, running on the node, with node selector and tolerations of its flavors."""
    spec = dict(pod["spec"])
    selector, tolerations = dict(spec.get("nodeSelector", {})), list(spec.get("tolerations", []))
    for flavor in flavors:
        selector |= flavor.node_labels
        tolerations += msgspec.to_builtins(flavor.tolerations)
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = tolerations
    status = {"phase": "Running", "startTime": virtual_timestamp(at)}
    return {**pod, "spec": {**spec, "nodeName": node}, "status": status}
