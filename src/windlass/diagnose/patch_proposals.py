"""Changes of a pod spec that might let it be placed, by cause.

`patches` calls these functions and tries every proposal on the engine. Causes without an entry need another change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import msgspec

from windlass.diagnose import nodes
from windlass.diagnose.explanations import USERS
from windlass.diagnose.finding import Finding
from windlass.diagnose.pod_status import mounted_memory
from windlass.diagnose.strategic_merge import SpecPatch
from windlass.diagnose.unschedulable import Candidate, SchedulingAnalysis
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX
from windlass.model.node import Taint
from windlass.model.quantity import parse_quantity
from windlass.model.requests import format_amount, is_extended_resource
from windlass.model.taints import is_lifecycle_taint

Proposal = tuple[str, SpecPatch]
"""Description and patch."""
Proposer = Callable[[Finding, SchedulingAnalysis], Iterator[Proposal]]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MAX_CANDIDATES = 8
"""Candidate nodes for which a proposal is made."""


def tolerations_for(pod: Any, taints: list[Taint]) -> list[dict[str, Any]]:
    """The pod's tolerations with those for the taints added: a patch replaces the whole list."""
    return [
        *(msgspec.to_builtins(toleration) for toleration in pod.spec.tolerations),
        *map(_toleration, taints),
    ]


def _toleration(taint: Taint) -> dict[str, str]:
    if taint.value:
        return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}


# Fitting a node: taints, labels and sizes together, since a node may lack several


def fit_a_node(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    code = finding.code
    fitting = [
        candidate for candidate in analysis.candidates if code in candidate.codes or not candidate.permanent_codes
    ]

    def rank(candidate: Candidate) -> tuple[int, int, str]:
        lacks = sum(candidate.fit.shortfall.get(name, 0) for name in analysis.devices)
        return len(candidate.codes), lacks, candidate.node.name

    ranked = sorted(fitting or analysis.candidates, key=rank)
    for candidate in ranked[:MAX_CANDIDATES]:
        proposal = _for_node(candidate, analysis)
        if proposal is not None:
            yield proposal


FIT_A_NODE_CODES = {
    "TAINT_NOT_TOLERATED",
    "SELECTOR_MISMATCH",
    "CPU_MEM_INSUFFICIENT",
    "REQUEST_EXCEEDS_CLUSTER",
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "GPU_STRANDED",
    "EPHEMERAL_STORAGE",
}
"""Causes that a change of the pod can remove, node by node."""


def _for_node(candidate: Candidate, analysis: SchedulingAnalysis) -> Proposal | None:
    if set(candidate.codes) - FIT_A_NODE_CODES:
        return None
    change: SpecPatch = {}
    descriptions: list[str] = []
    if "TAINT_NOT_TOLERATED" in candidate.permanent_codes:
        taints = [t for t in nodes.blocking_taints(candidate.node, analysis.pod) if not is_lifecycle_taint(t.key)]
        change["tolerations"] = tolerations_for(analysis.pod, taints)
        descriptions.append("tolerate " + ", ".join(nodes.format_taint(taint) for taint in taints))
    if "SELECTOR_MISMATCH" in candidate.permanent_codes:
        selects = [*_selector(candidate, analysis), *_affinity(candidate, analysis)]
        for what, part in selects:
            descriptions.append(what)
            change |= part
        if not selects:
            return None
    smaller = _smaller(candidate, analysis)
    if smaller is not None:
        descriptions.append(smaller[0])
        change |= smaller[1]
    return ("; ".join(descriptions), change) if change else None


def _selector(candidate: Candidate, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    wrong = {k: v for k, v in analysis.pod.spec.node_selector.items() if candidate.node.labels.get(k) != v}
    if wrong:
        labels = ", ".join(f"{key}={candidate.node.labels.get(key, '(nothing)')}" for key in wrong)
        yield f"select {labels}", {"nodeSelector": {key: candidate.node.labels.get(key) for key in wrong}}


def _affinity(candidate: Candidate, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    """Extends the only required node affinity term so that the node matches: adds values, drops absent labels."""
    affinity = analysis.pod.spec.affinity.node_affinity if analysis.pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or len(required.node_selector_terms) != 1:
        return
    expressions, descriptions = [], []
    for expression in required.node_selector_terms[0].match_expressions:
        has = candidate.node.labels.get(expression.key)
        row = msgspec.to_builtins(expression)
        if expression.operator == "In" and has not in expression.values:
            descriptions.append(f"{expression.key}={has}" if has is not None else f"no {expression.key}")
            row["values"] = [*expression.values, has]
        if has is not None or expression.operator not in ("In", "Exists"):
            expressions.append(row)
    if descriptions:
        terms = [{"matchExpressions": expressions}] if expressions else None
        part = {REQUIRED: {"nodeSelectorTerms": terms} if terms else None}
        yield f"allow {', '.join(descriptions)}", {"affinity": {"nodeAffinity": part}}


def _smaller(candidate: Candidate, analysis: SchedulingAnalysis) -> Proposal | None:
    """Lowers the requests of the only container to what the node has free."""
    containers = analysis.pod.spec.containers
    if not candidate.fit.shortfall or len(containers) != 1:
        return None
    amounts: dict[str, str] = {}
    for name, lacking in candidate.fit.shortfall.items():
        left = analysis.requests[name] - lacking
        if left <= 0:
            return None
        amounts[name] = format_amount(name, left)
    resources = containers[0].resources
    sides = (("requests", resources.requests), ("limits", resources.limits))
    change = {side: new for side, given in sides if (new := {n: a for n, a in amounts.items() if n in given})}
    amounts_text = ", ".join(f"{amount} {name}" for name, amount in amounts.items())
    return f"ask for {amounts_text}", {"containers": [{"name": containers[0].name, "resources": change}]}


# Rules between pods


def loosen_spread(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    for constraint in analysis.pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            change = {"topologyKey": constraint.topology_key, "whenUnsatisfiable": "ScheduleAnyway"}
            description = f"spread over {constraint.topology_key} only where that is possible (ScheduleAnyway)"
            yield description, {"topologySpreadConstraints": [change]}


def loosen_affinity(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    """Drops the required terms that the pod has; those of other pods are not its own to change."""
    affinity = analysis.pod.spec.affinity
    own = {
        "podAffinity": affinity.pod_affinity if affinity else None,
        "podAntiAffinity": affinity.pod_anti_affinity if affinity else None,
    }
    for kind, terms in own.items():
        if terms is not None and terms.required_during_scheduling_ignored_during_execution:
            yield f"remove the required {kind}", {"affinity": {kind: {REQUIRED: None}}}


def drop_host_ports(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    containers = [
        {
            "name": container.name,
            "ports": [{"containerPort": port.container_port, "hostPort": None} for port in taken],
        }
        for container in analysis.pod.spec.containers
        if (taken := [port for port in container.ports if port.host_port])
    ]
    if containers:
        yield "remove hostPort", {"containers": containers}


def use_other_scheduler(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    """The scheduler that the name is nearest to; none where the named one exists, and has to be repaired."""
    if finding.suggestion:
        yield f"use the scheduler {finding.suggestion}", {"schedulerName": finding.suggestion}
    elif finding.changed_by == USERS:
        yield "use the default scheduler", {"schedulerName": DEFAULT_SCHEDULER_NAME}


def rename_resource(finding: Finding, analysis: SchedulingAnalysis) -> Iterator[Proposal]:
    """The same number of another resource that nodes advertise, of the same vendor; a MIG profile for a MIG profile."""
    if len(analysis.devices) != 1 or len(analysis.pod.spec.containers) != 1:
        return
    (name, amount), container = next(iter(analysis.devices.items())), analysis.pod.spec.containers[0]
    vendor = name.partition("/")[0]
    offered = {
        resource
        for candidate in analysis.never_candidates
        for resource in nodes.gpu_resources(candidate.node)
        if resource.partition("/")[0] == vendor and resource != name
        if resource.startswith(MIG_RESOURCE_PREFIX) or not name.startswith(MIG_RESOURCE_PREFIX)
    }
    for resource in sorted(offered, key=lambda name: (len(name), name)):
        sides = (("requests", container.resources.requests), ("limits", container.resources.limits))
        change = {side: {name: None, resource: str(amount)} for side, given in sides if name in given}
        yield f"ask for {resource}", {"containers": [{"name": container.name, "resources": change}]}


# Specs that the API server refuses


def round_up_requests(spec: dict[str, Any]) -> SpecPatch:
    """Rounds fractions of extended resources up."""
    return _resources(spec, _rounded)


def equalize_limits(spec: dict[str, Any]) -> SpecPatch:
    """Sets requests of extended resources to their limits, and limits where only requests are given."""
    return _resources(spec, _equalled)


def _resources(spec: dict[str, Any], better: Callable[[dict[str, Any]], SpecPatch]) -> SpecPatch:
    containers = [
        {"name": nested_string(container, "name"), "resources": change}
        for container in nested_maps(spec, "containers")
        if (change := better(nested_map(container, "resources")))
    ]
    return {"containers": containers} if containers else {}


def _rounded(resources: dict[str, Any]) -> SpecPatch:
    change: SpecPatch = {}
    for side in ("requests", "limits"):
        for name, amount in nested_map(resources, side).items():
            value = _value(amount)
            if is_extended_resource(name) and value is not None and ceil(value) != value:
                change.setdefault(side, {})[name] = str(ceil(value))
    return change


def _equalled(resources: dict[str, Any]) -> SpecPatch:
    requests, limits = (nested_map(resources, "requests"), nested_map(resources, "limits"))
    change: SpecPatch = {}
    for name in (name for name in {**requests, **limits} if is_extended_resource(name)):
        if name in limits and name in requests and requests[name] != limits[name]:
            change.setdefault("requests", {})[name] = str(limits[name])
        elif name not in limits:
            change.setdefault("limits", {})[name] = str(requests[name])
    return change


def _value(amount: object) -> Any:
    try:
        return parse_quantity(amount if isinstance(amount, int | str) else str(amount))
    except InputError:
        return None


# Pods that start and fail


def mount_shared_memory(spec: dict[str, Any]) -> SpecPatch:
    """Empty if a volume is mounted there: how much larger it has to be is not known."""
    if mounted_memory({"spec": spec}) is not None:
        return {}
    first = next(iter(nested_maps(spec, "containers")), {})
    return {
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": nested_string(first, "name"),
                "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
            }
        ],
    }


def hide_devices(spec: dict[str, Any]) -> SpecPatch:
    """Hides GPUs from containers that do not request any."""
    hidden = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]
    containers = [
        {"name": nested_string(container, "name"), "env": hidden}
        for container in nested_maps(spec, "containers")
        if any(nested_string(variable, "name") == hidden[0]["name"] for variable in nested_maps(container, "env"))
    ]
    return {"containers": containers} if containers else {}
