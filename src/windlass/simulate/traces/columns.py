"""The columns of our own trace format: converts cells to pod templates and nodes, and back.

Used by `traces.trace_reader` and `traces.trace_writer`. A pod or node that the plain columns can't express is written
as Kubernetes JSON in the last column; the writer decides by building it again from its cells and comparing.
docs/reference/trace-format.md describes the format.
"""

from __future__ import annotations

import msgspec

from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request, node_devices
from windlass.model.meta import ObjectMeta
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.nvidia import GPU_MEMORY_LABEL, GPU_RESOURCE
from windlass.model.names.others import ALIBABA_COUNT, ALIBABA_MILLI, ALIBABA_MODEL
from windlass.model.node import Node, NodeStatus
from windlass.model.pod import Pod, PodSpec, RawQuantity
from windlass.model.requests import is_extended_resource, node_quantities, parse_amount, pod_requests
from windlass.model.validation import check_node, check_pod
from windlass.simulate.fleet import NO_POD_LIMIT, NodeSize, check_node_size, gpu_labels
from windlass.simulate.pod_templates import PodSize, PodTemplate, gpu_annotations, make_pod_spec

POD_COLUMNS = (
    *("cpu", "memory", "gpu", "gpu_milli", "models"),
    *("resources", "priority", "namespace", "labels", "node_selector", "template"),
)
JOB_COLUMNS = ("job", "arrival", "duration", "pods", *POD_COLUMNS)
NODE_COLUMNS = ("node", "count", "cpu", "memory", "pods", "gpu", "model", "gpu_memory", "labels", "object")

Cells = dict[str, str]
"""Column → text of the non-empty cells of a row."""


class BadCell(Exception):
    """A cell with an invalid value; the reader adds file and line."""

    def __init__(self, column: str, expected: str) -> None:
        super().__init__(column, expected)
        self.column, self.expected = column, expected


def template_of_cells(cells: Cells) -> PodTemplate:
    """The template of a row's pods. Raises `BadCell`, or `InputError` for what Kubernetes would refuse."""
    if "template" in cells:
        template = _json_template(cells)
    else:
        size = _gpu_size(cells)
        template = PodTemplate(
            spec=_spec(cells, size),
            annotations=gpu_annotations(size),
            labels=_pairs(cells, "labels"),
            namespace=cells.get("namespace", ""),
        )
    if "/" in template.namespace:
        raise BadCell("template" if "template" in cells else "namespace", "a namespace without slashes")
    pod = template.make_pod("row")
    try:
        check_pod(pod)
        gpu_request(pod, pod_requests(pod))
    except InputError as error:
        raise InputError(error.message, path=error.path, remedy=error.remedy) from None
    return template


def cells_of_pod(pod: Pod) -> Cells:
    """Cells from which `template_of_cells` builds the same pod, except for its name."""
    cells = _plain_cells(pod)
    if cells is not None:
        template, meta = template_of_cells(cells), pod.metadata
        rebuilt = (template.spec, template.annotations, template.labels, template.namespace)
        if rebuilt == (pod.spec, meta.annotations, meta.labels, meta.namespace):
            return cells
    kept = ObjectMeta(
        namespace=pod.metadata.namespace, labels=pod.metadata.labels, annotations=pod.metadata.annotations
    )
    return {"template": msgspec.json.encode(Pod(metadata=kept, spec=pod.spec)).decode()}


def node_of_cells(name: str, cells: Cells) -> Node:
    """A node. Raises `BadCell`, or `InputError` for an impossible machine."""
    if "object" not in cells:
        return _plain_node(name, cells)
    node = _json_node(name, cells)
    capacity, allocatable = node_quantities(node)
    node_devices(node, allocatable, capacity)
    # Without GPUs, whose number `node_devices` checks: MIG instances may be counted as GPUs.
    check_node_size(NodeSize(allocatable.get("cpu", 0), allocatable.get("memory", 0) >> 20), name)
    return node


def cells_of_node(node: Node) -> Cells:
    allocatable, labels = node.status.allocatable, node.labels
    sources: dict[str, RawQuantity | None] = {
        "cpu": allocatable.get("cpu"),
        "memory": allocatable.get("memory"),
        "pods": allocatable.get("pods"),
        "gpu": allocatable.get(GPU_RESOURCE),
        "model": labels.get(ALIBABA_MODEL),
        "gpu_memory": labels.get(GPU_MEMORY_LABEL),
    }
    cells = {column: str(value) for column, value in sources.items() if value is not None}
    try:
        implied = _plain_node(node.name, cells).labels
        extra = {key: value for key, value in labels.items() if implied.get(key) != value}
        cells |= {"labels": _text_of_pairs(extra)} if extra else {}
        if _plain_node(node.name, cells) == node:
            return cells
    except (BadCell, InputError):
        pass  # the plain columns can't express this node
    return {"object": msgspec.json.encode(node).decode()}


def _gpu_size(cells: Cells) -> PodSize:
    gpus = _integer(cells, "gpu", 0, 16)
    milli = _integer(cells, "gpu_milli", 1, 1000) if "gpu_milli" in cells else 0
    models = tuple(cells["models"].split("|")) if "models" in cells else ()
    if (milli or models) and not gpus:
        raise BadCell("gpu", "1 or more with gpu_milli or models")
    if "" in models:
        raise BadCell("models", "GPU models joined by |")
    return PodSize(gpus=gpus, gpu_milli=milli or (1000 if models else 0), models=models)


def _spec(cells: Cells, size: PodSize) -> PodSpec:
    requests: dict[str, RawQuantity] = {name: cells[name] for name in ("cpu", "memory") if name in cells}
    requests |= _pairs(cells, "resources")
    if size.gpus and not size.gpu_milli:
        requests[GPU_RESOURCE] = str(size.gpus)
    for name, raw in requests.items():
        _amount(name, raw, name if name in ("cpu", "memory") else "resources")
    limits = {name: raw for name, raw in requests.items() if is_extended_resource(name)}
    return msgspec.structs.replace(
        make_pod_spec(requests, limits),
        node_selector=_pairs(cells, "node_selector"),
        priority=_integer(cells, "priority", -(2**31), 2**31 - 1),
    )


def _plain_cells(pod: Pod) -> Cells | None:
    """The pod in plain columns, perhaps incompletely; None if they can't express it."""
    if len(pod.spec.containers) != 1:
        return None
    requests = dict(pod.spec.containers[0].resources.requests)
    annotations = pod.metadata.annotations
    maps = {"labels": pod.metadata.labels, "node_selector": pod.spec.node_selector}
    cells = {
        "cpu": str(requests.pop("cpu", "")),
        "memory": str(requests.pop("memory", "")),
        "gpu": str(requests.pop(GPU_RESOURCE, "")) or annotations.get(ALIBABA_COUNT, ""),
        "gpu_milli": annotations.get(ALIBABA_MILLI, ""),
        "models": annotations.get(ALIBABA_MODEL, ""),
        "priority": str(pod.spec.priority or ""),
        "namespace": pod.metadata.namespace,
    }
    try:
        cells["resources"] = _text_of_pairs({name: str(raw) for name, raw in requests.items()})
        cells |= {column: _text_of_pairs(pairs) for column, pairs in maps.items()}
        filled = {column: text for column, text in cells.items() if text}
        template_of_cells(filled)
    except (BadCell, InputError):
        return None
    return filled


def _plain_node(name: str, cells: Cells) -> Node:
    resources: dict[str, RawQuantity] = {
        "cpu": cells.get("cpu", ""),
        "memory": cells.get("memory", ""),
        "pods": cells.get("pods", str(NO_POD_LIMIT)),
    }
    amounts = {name: _amount(name, raw, name) for name, raw in resources.items()}
    size = NodeSize(
        cpu_milli=amounts["cpu"],
        memory_mib=amounts["memory"] >> 20,
        gpus=_integer(cells, "gpu", 0, 2**31),
        model=cells.get("model", ""),
        gpu_memory_mib=_integer(cells, "gpu_memory", 0, 2**31),
    )
    check_node_size(size, name)
    if size.gpus:
        resources[GPU_RESOURCE] = str(size.gpus)
    labels = {HOSTNAME_LABEL: name, **gpu_labels(size), **_pairs(cells, "labels")}
    status = NodeStatus(capacity=resources, allocatable=resources)
    return Node(metadata=ObjectMeta(name=name, labels=labels), status=status)


def _json_template(cells: Cells) -> PodTemplate:
    conflicting = [column for column in POD_COLUMNS if column in cells and column != "template"]
    if conflicting:
        raise BadCell(conflicting[0], "an empty cell, since there is a template")
    try:
        pod = msgspec.json.decode(cells["template"], type=Pod)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadCell("template", f"a pod's metadata and spec as JSON ({error})") from None
    if pod.is_bound:
        remedy = "leave it out, or choose the node with a nodeSelector"
        raise InputError("the pod of a trace can't be bound to a node", path="spec.nodeName", remedy=remedy)
    meta = pod.metadata
    return PodTemplate(pod.spec, meta.annotations, meta.labels, meta.namespace)


def _json_node(name: str, cells: Cells) -> Node:
    if len(cells) > 1:
        filled = next(column for column in cells if column != "object")
        raise BadCell(filled, "an empty cell, since there is an object")
    try:
        node = msgspec.json.decode(cells["object"], type=Node)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadCell("object", f"a Kubernetes Node as JSON ({error})") from None
    if node.name != name:
        raise BadCell("object", f"a Node named {name}")
    try:
        check_node(node)
    except InputError as error:
        raise error.with_context(object=f"Node {node.name}") from None
    return node


def _amount(resource: str, raw: RawQuantity, column: str) -> int:
    try:
        return parse_amount(resource, raw)
    except InputError as error:
        raise BadCell(column, f"a Kubernetes quantity ({error.message})") from None


def _integer(cells: Cells, column: str, minimum: int, maximum: int) -> int:
    text = cells.get(column, "0")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(text) < 20 and minimum <= int(text) <= maximum:
        return int(text)
    raise BadCell(column, f"a whole number, {minimum} to {maximum}")


def _pairs(cells: Cells, column: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in cells[column].split(";") if column in cells else ():
        key, equals, value = pair.partition("=")
        if not equals or not key or key in pairs:
            raise BadCell(column, "key=value;key=value, every key once")
        pairs[key] = value
    return pairs


def _text_of_pairs(pairs: dict[str, str]) -> str:
    if any(";" in key + value or "=" in key or not key for key, value in pairs.items()):
        raise BadCell("labels", "keys and values without ; and keys without =")
    return ";".join(f"{key}={value}" for key, value in pairs.items())
