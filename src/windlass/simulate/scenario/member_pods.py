"""The pods that controllers make: from the templates of a Job, a training job, a Workload, as they would make them.

`short_work` uses it for what runs at the start, `carry` for what is admitted and for what comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from windlass.model.codec import decode_object
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.kueue.workloads import with_default_limits
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.owners.normalise import LWS_GROUP, LWS_WORKER
from windlass.model.queue import ResourceFlavor
from windlass.model.unstructured import Unstructured
from windlass.simulate.clock import virtual_timestamp

PODSET = "kueue.x-k8s.io/podset"
WORKLOAD = "kueue.x-k8s.io/workload"


class PodSetTemplate(msgspec.Struct, frozen=True):
    """One set of pods that an object makes."""

    name: str
    count: int
    pod: Unstructured
    """metadata and spec."""
    set_label: str = ""
    is_only_set: bool = True
    """The object has no other set."""


def pod_templates_of(tree: Unstructured) -> list[PodSetTemplate]:
    """The sets of a Workload or an owner; nothing for any other kind."""
    thing = decode_object(tree)
    if isinstance(thing, WorkloadObject):
        sets = [(one.name, one.count, _limited(one.template)) for one in thing.spec.pod_sets]
        label = PODSET
    elif isinstance(thing, OwnerObject):
        owner = owner_from_object(thing)
        sets = [(one.name, one.count, one.template) for one in owner.pod_sets]
        label = owner.pod_set_label
    else:
        return []
    return [
        PodSetTemplate(name, count, msgspec.to_builtins(template), label, len(sets) == 1)
        for name, count, template in sets
    ]


def _limited(template: PodTemplate) -> PodTemplate:
    """A Workload's templates may leave out the limits without which no pod of theirs could be made."""
    return msgspec.structs.replace(template, spec=with_default_limits(template.spec))


def member_pod(
    tree: Unstructured, template: PodSetTemplate, number: int, gang: int | None = None
) -> Unstructured:
    """Pod `number` of the object that `tree` is, of its gang where it makes several."""
    metadata = tree["metadata"]
    made: Unstructured = copy.deepcopy(template.pod.get("metadata", {}))
    made.setdefault("labels", {})
    made.setdefault("annotations", {})
    parts = [
        metadata["name"],
        *([] if gang is None else [str(gang)]),
        *([] if template.is_only_set else [template.name]),
    ]
    made["name"] = "-".join([*parts, str(number)])
    made["namespace"] = metadata.get("namespace", "default")
    if template.set_label:
        made["labels"][template.set_label] = template.name
    if tree["kind"] == "Workload":
        made["annotations"][WORKLOAD] = metadata["name"]
    else:
        made["ownerReferences"] = [
            {
                "apiVersion": tree["apiVersion"],
                "kind": tree["kind"],
                "name": metadata["name"],
                "controller": True,
            }
        ]
    if gang is not None:
        made["labels"] |= {
            LWS_GROUP: str(gang),
            LWS_WORKER: "0" if template.name == "leader" else str(number + 1),
        }
    spec = copy.deepcopy(template.pod.get("spec", {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec}


def running_pod(
    pod: Unstructured, node: str, at: int, flavors: Sequence[ResourceFlavor] = ()
) -> Unstructured:
    """The pod on its node, with what its flavors put on it."""
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
