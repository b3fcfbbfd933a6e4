"""Rules about topology: levels exist, a domain is large enough, pod affinity has a matching pod."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.pod_counts import pod_count
from windlass.diagnose.check.requests import pod_and_requests
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.names.kueue import PREFERRED_TOPOLOGY_ANNOTATION, REQUIRED_TOPOLOGY_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod


@rule("topology-satisfiable", ERROR, "The requested topology level exists, and a domain is large enough")
def topology_satisfiable(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        annotations = nested_map(view.template, "metadata", "annotations")
        required, preferred = (
            annotations.get(REQUIRED_TOPOLOGY_ANNOTATION),
            annotations.get(PREFERRED_TOPOLOGY_ANNOTATION),
        )
        if required and preferred:
            yield RuleFinding(
                "requests a required and a preferred topology, of which only one is allowed",
                view.field_path(f"metadata.annotations.{PREFERRED_TOPOLOGY_ANNOTATION}"),
                "keep one of the two",
            )
        for key, level in (
            (REQUIRED_TOPOLOGY_ANNOTATION, required),
            (PREFERRED_TOPOLOGY_ANNOTATION, preferred),
        ):
            if isinstance(level, str) and level:
                where = view.field_path(f"metadata.annotations.{key}")
                yield from _level(
                    view,
                    level,
                    where,
                    key == REQUIRED_TOPOLOGY_ANNOTATION,
                    pod_count(manifest, view),
                    context,
                )
        yield from _spread(view, context)


def _level(
    view: PodView, level: str, where: str, is_required: bool, count: int, context: CheckContext
) -> Iterator[RuleFinding]:
    if not context.nodes:
        return
    levels = _known_levels(context)
    if levels and level not in levels:
        yield RuleFinding(f"no Topology has the level {level}", where, f"there are {', '.join(sorted(levels))}")
        return
    having = [node for node in context.nodes if level in node.labels]
    if not having:
        yield RuleFinding(f"no node has the label {level}", where, "label the nodes, or ask for a level they have")
        return
    read = pod_and_requests(view)
    if not is_required or read is None:
        return
    domains: dict[str, int] = {}
    for node in having:
        if not nodes.selector_mismatches(node, read[0]):
            name = node.labels[level]
            domains[name] = domains.get(name, 0) + _pods_that_fit(node, read[1])
    most = max(domains.values(), default=0)
    if most < count:
        yield RuleFinding(
            f"no domain of {level} fits its {count} pods even when empty: the largest fits {most}",
            where,
            "ask for a wider level, for a preferred one, or for fewer pods",
        )


def _known_levels(context: CheckContext) -> set[str]:
    trees = [topology.data for topology in context.of_kind("Topology")]
    if context.evidence is not None:
        trees += [item.data for item in context.evidence.of_kind("Topology")]
    return {
        nested_string(level, "nodeLabel") for topology in trees for level in nested_maps(topology, "spec", "levels")
    }


def _pods_that_fit(node: Node, requests: dict[str, int]) -> int:
    """How many such pods fit on the empty node."""
    _, allocatable = capacity_and_allocatable(node)
    return min((allocatable.get(name, 0) // amount for name, amount in requests.items() if amount), default=0)


def _spread(view: PodView, context: CheckContext) -> Iterator[RuleFinding]:
    for place, constraint in enumerate(nested_maps(view.spec, "topologySpreadConstraints")):
        key = nested_string(constraint, "topologyKey")
        hard = nested_string(constraint, "whenUnsatisfiable") in ("", "DoNotSchedule")
        if context.nodes and key and hard and not any(key in node.labels for node in context.nodes):
            where = view.field_path(f"spec.topologySpreadConstraints[{place}].topologyKey")
            yield RuleFinding(f"no node has the label {key} to spread over", where, "use a label that nodes have")


@rule("affinity-satisfiable", ERROR, "Required pod affinity has a matching pod")
def affinity_satisfiable(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        terms = nested_maps(view.spec, "affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        for place, term in enumerate(terms):
            at = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            where = view.field_path(f"{at}[{place}]")
            key = nested_string(term, "topologyKey")
            if context.nodes and key and not any(key in node.labels for node in context.nodes):
                yield RuleFinding(f"no node has the label {key}", f"{where}.topologyKey", "use a label that nodes have")
            yield from _affinity_target(view, term, where, context)


def _affinity_target(
    view: PodView, term: dict[str, object], where: str, context: CheckContext
) -> Iterator[RuleFinding]:
    wanted = nested_map(term, "labelSelector", "matchLabels")
    if not wanted or nested_maps(term, "labelSelector", "matchExpressions"):
        return  # matchExpressions are checked by `fits-now`
    if _has(nested_map(view.template, "metadata", "labels"), wanted):
        return  # the pods match one another: the first one may start
    others = [nested_map(other_view.template, "metadata", "labels") for m in context.manifests for other_view in m.pods]
    if context.evidence is not None:
        others += [item.labels for item in context.evidence.of_kind("Pod") if isinstance(item.decoded, Pod)]
    if not any(_has(labels, wanted) for labels in others):
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        yield RuleFinding(
            f"requires a pod with {labels} nearby, but neither it nor any other known pod has these labels",
            f"{where}.labelSelector",
            "give the pods that label themselves, so that the first one may start",
            "" if context.evidence is not None else WARNING,
        )


def _has(labels: dict[str, str], wanted: dict[str, object]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
