"""Rules about where a pod may go: taints, selectors, runtime classes."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.requests import pod_and_requests, requests_gpus
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, Fix, RuleFinding, rule
from windlass.diagnose.unstructured import nested_maps, nested_string
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.node import Taint
from windlass.model.taints import tolerates

GPU_TAINT = Taint(key=GPU_RESOURCE, effect="NoSchedule")


@rule("tolerates-gpu-taints", WARNING, "The pod tolerates the taints of the GPU nodes that it needs")
def tolerates_gpu_taints(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not requests_gpus(view):
            continue
        tolerations = read[0].spec.tolerations
        if not context.nodes:
            if not tolerates(tolerations, GPU_TAINT) and not any(
                toleration.key == GPU_TAINT.key for toleration in tolerations
            ):
                yield RuleFinding(
                    "requests GPUs without tolerating nvidia.com/gpu, the usual taint of GPU nodes (an "
                    "admission plugin may add the toleration)",
                    view.field_path("spec.tolerations"),
                    "add {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}",
                    change=_tolerate(view, GPU_TAINT),
                )
            continue
        devices = set(nodes.device_requests(read[1]))
        having = [node for node in context.nodes if devices <= set(node.status.capacity)]
        having = [node for node in having if not nodes.selector_mismatches(node, read[0])] or having
        blocked = [node for node in having if nodes.blocking_taints(node, read[0])]
        if having and len(blocked) == len(having):
            taint = nodes.blocking_taints(blocked[0], read[0])[0]
            yield RuleFinding(
                f"no node with {', '.join(sorted(devices))} takes it: taint {nodes.format_taint(taint)} of "
                f"{blocked[0].name} is not tolerated",
                view.field_path("spec.tolerations"),
                f"tolerate {nodes.format_taint(taint)}",
                ERROR,
                _tolerate(view, taint),
            )


def _tolerate(view: PodView, taint: Taint) -> Fix:
    new = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    if taint.value:
        new = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    return Fix(view.field_path("spec.tolerations"), [*nested_maps(view.spec, "tolerations"), new])


@rule("selector-matches", ERROR, "Labels that the pod selects by exist on some node")
def selector_matches(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not context.nodes:
            continue
        wishes: list[tuple[str, tuple[str, ...]]] = [
            (key, (value,)) for key, value in read[0].spec.node_selector.items()
        ]
        wishes += [(key, values) for key, values, operator in nodes.required_labels(read[0]) if operator == "In"]
        for key, values in wishes:
            label_values = sorted({node.labels[key] for node in context.nodes if key in node.labels})
            if not set(values) & set(label_values):
                where = view.field_path(
                    f"spec.nodeSelector.{key}" if key in read[0].spec.node_selector else "spec.affinity"
                )
                wanted = " or ".join(values)
                yield RuleFinding(f"no node has {key}={wanted}", where, _near(values, label_values, key))


def _near(values: tuple[str, ...], label_values: list[str], key: str) -> str:
    longer = [
        label_value
        for label_value in label_values
        for value in values
        if label_value.startswith((f"{value}-SHARED", f"{value}-MIG-"))
    ]
    if longer:
        return f"nodes have {longer[0]}: sharing and MIG lengthen the label; list that value too"
    return f"there are {', '.join(label_values[:6])}" if label_values else f"no node has the label {key}"


@rule("runtime-class-exists", ERROR, "The pod's runtime class exists")
def runtime_class_exists(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if context.evidence is None or not context.evidence.has_kind("RuntimeClass"):
        return
    known = {item.name for item in context.evidence.of_kind("RuntimeClass")}
    for view in manifest.pods:
        name = nested_string(view.spec, "runtimeClassName")
        if name and name not in known:
            existing = ", ".join(sorted(known)) or "none"
            yield RuleFinding(
                f"runtime class {name} does not exist",
                view.field_path("spec.runtimeClassName"),
                f"there are: {existing}",
            )
