"""Rules about resource requests: whole numbers, equal requests and limits, resources that exist, sizes that fit."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.rule import ERROR, INFO, WARNING, CheckContext, Fix, RuleFinding, rule
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.diagnose.unstructured import nested, nested_map, nested_string
from windlass.model.errors import InputError
from windlass.model.group_membership import group_reference
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, NVIDIA_PREFIX
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import format_amount, node_quantities, pod_requests
from windlass.model.verdict import join_sentences


def pod_and_requests(view: PodView) -> tuple[Pod, dict[str, int]] | None:
    """(pod, requests); None for an invalid pod, which the rule `readable` reports."""
    if view.pod is None:
        return None
    try:
        return view.pod, pod_requests(view.pod)
    except InputError:
        return None


def requests_gpus(view: PodView) -> bool:
    read = pod_and_requests(view)
    return read is not None and bool(nodes.device_requests(read[1]))


@rule("gpu-whole-number", ERROR, "GPUs are requested in whole numbers")
def gpu_whole_number(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        fault = view.validation_error
        if fault is not None and fault.code == "FRACTIONAL_GPU_REQUEST":
            yield RuleFinding(fault.message, view.field_path(fault.path), fault.remedy)


@rule("gpu-request-equals-limit", ERROR, "A device's request equals its limit")
def gpu_request_equals_limit(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        fault = view.validation_error
        if fault is None or fault.code != "REQUESTS_NE_LIMITS":
            continue
        name = fault.path.partition(".requests.")[2]
        limit = _limit(view, fault.path, name)
        change = Fix(view.field_path(fault.path), limit) if limit is not None else None
        yield RuleFinding(fault.message, view.field_path(fault.path), fault.remedy, change=change)


def _limit(view: PodView, path: str, name: str) -> object:
    for place, container in view.containers():
        if view.field_path(path).startswith(f"{place}."):
            return nested(container, "resources", "limits", name)
    return None


@rule("readable", ERROR, "The object can be read: fields have their types, quantities their grammar")
def is_readable(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if manifest.file_error is not None:
        yield RuleFinding(f"the file can't be read: {manifest.file_error.message}", fix=manifest.file_error.remedy)
    elif not manifest.data:
        yield RuleFinding("is not a Kubernetes object", fix="an object has apiVersion, kind and metadata")
    for view in manifest.pods:
        fault = view.validation_error
        if fault is not None and fault.code not in ("FRACTIONAL_GPU_REQUEST", "REQUESTS_NE_LIMITS"):
            yield RuleFinding(fault.message, view.field_path(fault.path) if fault.path else view.path, fault.remedy)


@rule("mig-and-whole-gpu", WARNING, "A container requests a MIG slice and a whole GPU at once")
def mig_and_whole_gpu(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        for path, container in view.containers():
            limits = nested_map(container, "resources", "limits")
            slices = [name for name in limits if name.startswith(MIG_RESOURCE_PREFIX)]
            if GPU_RESOURCE not in limits or not slices:
                continue
            both = [node for node in context.nodes if {GPU_RESOURCE, *slices} <= set(node.status.allocatable)]
            none = bool(context.nodes) and not both
            message = f"requests {GPU_RESOURCE} and {slices[0]}: only nodes with MIG strategy mixed have both"
            more = ", and no node of the cluster does" if none else ", and one of the two is probably unused"
            yield RuleFinding(message + more, f"{path}.resources.limits", "keep one of the two", ERROR if none else "")


@rule("resource-advertised", ERROR, "Some node advertises the resource")
def resource_advertised(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not context.nodes:
            continue
        known = {name for node in context.nodes for name in node.status.capacity}
        for name in nodes.device_requests(read[1]):
            if name not in known:
                gpus = sorted(name for name in known if name.startswith(NVIDIA_PREFIX))
                yield RuleFinding(
                    f"no node advertises {name}",
                    view.field_path("spec"),
                    f"the cluster has {', '.join(gpus) or 'no GPU resource'}",
                )


@rule("fits-a-node", ERROR, "The pod fits the largest node if that is empty")
def fits_a_node(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not context.nodes:
            continue
        known = {name for node in context.nodes for name in node.status.capacity}
        if not known.issuperset(nodes.device_requests(read[1])):
            continue  # `resource-advertised` says that
        misses = [_missing(node, read[1]) for node in context.nodes]
        if all(misses) and not any("*" in miss for miss in misses):
            nearest = min(misses, key=lambda miss: (len(miss), sum(miss.values())))
            lacks = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in nearest.items())
            yield RuleFinding(
                f"no node is large enough even when empty; the nearest lacks {lacks}",
                view.field_path("spec"),
                "ask for less",
            )


def _missing(node: Node, requests: dict[str, int]) -> dict[str, int]:
    """What the empty node lacks; `*` for an invalid node."""
    try:
        _, allocatable = node_quantities(node)
    except InputError:
        return {"*": 1}
    absent = [name for name in nodes.device_requests(requests) if name not in allocatable]
    if absent:
        return {absent[0]: requests[absent[0]]}
    return {
        name: amount - allocatable.get(name, 0)
        for name, amount in requests.items()
        if amount > allocatable.get(name, 0)
    }


@rule("fits-now", INFO, "The scheduler would start it now")
def fits_now(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    """The engine's decision if it decides on such objects, else whether a node passes the filters."""
    key = _workload_key(manifest)
    if next((one for one in context.manifests if one.pods and _workload_key(one) == key), manifest) is not manifest:
        return  # the first pod of a group speaks for all
    if manifest.pods and key in context.engine_starts:
        started, pods = context.engine_starts[key]
        if started < pods:
            yield RuleFinding(
                f"{started} of {pods} pods would start; the others would wait",
                "",
                "run windlass plan schedule -f FILE for the reasons",
            )
        return
    verdict = context.engine_holds.get(key) if manifest.pods else None
    if verdict is not None:
        reasons = join_sentences(verdict.sentences[:2])
        level = ERROR if verdict.is_infeasible else INFO
        yield RuleFinding(
            f"would wait ({verdict.code}): {reasons}", "", "run windlass plan schedule -f FILE for the reasons", level
        )
        return
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or context.fit is None:
            continue
        try:
            free = context.fit.feasible_nodes(read[0])
        except InputError:
            continue
        if not free:
            yield RuleFinding(
                "no node takes it now; it would wait",
                view.field_path("spec"),
                "run windlass plan schedule -f FILE for the reasons",
            )


def _workload_key(manifest: Manifest) -> str:
    """What the engine decides on: a pod's group, else the object itself."""
    view = manifest.pods[0] if manifest.kind == "Pod" and manifest.pods else None
    if view is None:
        return f"{manifest.namespace}/{manifest.name}"
    labels, annotations = (nested_map(view.template, "metadata", part) for part in ("labels", "annotations"))
    group = group_reference(labels, annotations, nested_string(view.spec, "schedulingGroup", "podGroupName"))
    return f"{manifest.namespace}/{group.name if group is not None else manifest.name}"


@rule("cpu-and-memory-in-proportion", WARNING, "CPU and memory don't exceed the node's share per GPU")
def in_proportion(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        gpus = nodes.device_requests(read[1]) if read is not None else {}
        if read is None or not gpus or not context.nodes:
            continue
        name, asked = next(iter(gpus.items()))
        shares = [_share(node, name, asked) for node in context.nodes]
        fitting = [share for share in shares if share]
        for resource in ("cpu", "memory"):
            most = max((share.get(resource, 0) for share in fitting), default=0)
            if fitting and read[1].get(resource, 0) > most:
                yield RuleFinding(
                    f"requests {format_amount(resource, read[1][resource])} {resource} with {asked} {name}, more than "
                    f"any node has for them ({format_amount(resource, most)}): the node's other GPUs are stranded",
                    view.field_path("spec"),
                    f"ask for at most {format_amount(resource, most)} {resource}",
                )


def _share(node: Node, name: str, requested: int) -> dict[str, int]:
    _, allocatable = capacity_and_allocatable(node)
    total = allocatable.get(name, 0)
    if total < requested:
        return {}
    return {resource: allocatable.get(resource, 0) * requested // total for resource in ("cpu", "memory")}
