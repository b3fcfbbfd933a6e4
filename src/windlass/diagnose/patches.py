"""The smallest change that would let the subject run, as a patch.

`why` calls `patches_for` with the cause. `patch_proposals` proposes changes, and every proposal is tried on the engine;
`runs_after` says whether it would then run. `PATCHABLE_CODES` lists the causes with patches: each has a test that
applies its patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.cluster.workloads.pod_sets import placement_marks
from windlass.diagnose import patch_proposals
from windlass.diagnose.evidence import ClusterObject
from windlass.diagnose.finding import Finding, Patch, PatchTarget
from windlass.diagnose.immutability import recreated, refused_fields
from windlass.diagnose.patch_proposals import Proposer
from windlass.diagnose.strategic_merge import SpecPatch, strategic_merge, to_merge_patch
from windlass.diagnose.subject import templates_of
from windlass.diagnose.suspended import manager_config, suspended_object
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.diagnose.unstructured import nested_bool, nested_map, nested_maps, nested_string
from windlass.diagnose.what_if import WhatIf
from windlass.model.codec import decode_object
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import APPS_API_VERSION, BATCH_API_VERSION, UNSCHEDULABLE_TAINT
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod

MAX_PATCHES = 3
"""Most patches that one diagnosis shows."""
MAX_PROPOSED = 6
"""Most patches that are proposed: an API server may refuse some."""
MANY_NODES = 500
"""Above this number of nodes, uncordoning is tried only where it is the cause itself."""
BUILT_IN = ("v1", APPS_API_VERSION, BATCH_API_VERSION)
"""API versions whose kinds support strategic merge patches; custom resources only support merge patches."""

PROPOSERS_BY_CODE: dict[str, Proposer] = {
    **dict.fromkeys(sorted(patch_proposals.FIT_A_NODE_CODES), patch_proposals.fit_a_node),
    "POD_SPREAD_CONFLICT": patch_proposals.loosen_spread,
    "POD_AFFINITY_CONFLICT": patch_proposals.loosen_affinity,
    "HOST_PORT_CONFLICT": patch_proposals.drop_host_ports,
    "WRONG_SCHEDULER": patch_proposals.use_other_scheduler,
    "RESOURCE_NAME_MISMATCH": patch_proposals.rename_resource,
}
"""Cause shown by nodes → changes of the pod."""
SPEC_FIXES_BY_CODE: dict[str, tuple[str, Callable[[dict[str, Any]], SpecPatch]]] = {
    "FRACTIONAL_GPU_REQUEST": ("ask for whole GPUs", patch_proposals.round_up_requests),
    "REQUESTS_NE_LIMITS": ("make request and limit equal", patch_proposals.equalize_limits),
    "SHM_TOO_SMALL": ("mount memory at /dev/shm", patch_proposals.mount_shared_memory),
    "GPU_VISIBLE_UNREQUESTED": ("show it no GPU", patch_proposals.hide_devices),
}
"""Cause shown by the spec itself → description and changed spec."""

PatchMaker = Callable[[WhatIf, Finding], list[Patch]]


def patches_for(what_if: WhatIf, finding: Finding, analysis: SchedulingAnalysis | None) -> tuple[Patch, ...]:
    """At most `MAX_PROPOSED`, those that let it run first; empty where no change of this object would help.

    Each has its manifest, where its object may be created anew; `shown` takes those that are to be printed.
    """
    code = finding.code
    found: list[Patch] = []
    if not what_if.tries_patches:
        return ()
    if code in OTHER_OBJECT_MAKERS:
        found = OTHER_OBJECT_MAKERS[code](what_if, finding)
    elif code in SPEC_FIXES_BY_CODE:
        found = _by_spec(what_if, *SPEC_FIXES_BY_CODE[code])
    elif code in PROPOSERS_BY_CODE and analysis is not None:
        tried: list[SpecPatch] = []
        for what, change in PROPOSERS_BY_CODE[code](finding, analysis):
            if change not in tried:
                tried.append(change)
                found += _try(what_if, analysis, what, change)
        if "NODE_UNSCHEDULABLE" in finding.contributing and len(what_if.evidence.nodes) <= MANY_NODES:
            found += _uncordon(what_if, finding)
    return tuple(sorted(found, key=lambda patch: not patch.runs_after)[:MAX_PROPOSED])


def shown(patches: Sequence[Patch]) -> tuple[Patch, ...]:
    """The first, with manifests only where the patch itself is not accepted."""
    return tuple(
        msgspec.structs.replace(patch, manifest=None) if patch.accepted else patch for patch in patches[:MAX_PATCHES]
    )


# Changes of the pod


def _try(what_if: WhatIf, analysis: SchedulingAnalysis, what: str, change: SpecPatch) -> list[Patch]:
    """The patch with the engine's answer for all pods of the kind; empty if the changed pod is invalid."""
    try:
        pod = patched_pod(analysis.pod, change)
        runs = what_if.fit.count_placeable([pod] * analysis.count) == analysis.count
        if runs and what_if.decided_hold is not None and len(what_if.evidence.nodes) <= MANY_NODES:
            runs = what_if.would_start_as(_patched_pods(what_if, analysis.pod, change))
    except InputError:
        return []
    return [_pod_patch(what_if, what, change, runs)]


def _patched_pods(what_if: WhatIf, like: Pod, change: SpecPatch) -> dict[int, Pod]:
    """The subject's waiting pods like this one, changed; by the identity of the unchanged ones."""
    waiting = [item.decoded for item in what_if.subject.pending if isinstance(item.decoded, Pod)]
    alike = [pod for pod in waiting if pod.spec == like.spec and placement_marks(pod) == placement_marks(like)]
    return {id(pod): patched_pod(pod, change) for pod in alike}


def _by_spec(what_if: WhatIf, what: str, better: Callable[[dict[str, Any]], SpecPatch]) -> list[Patch]:
    item, path = _owner_of_template(what_if)
    spec = _at(item.data, path)
    change = better(spec)
    if not change:
        return []
    metadata = {"name": item.name, "namespace": item.namespace}
    data = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": strategic_merge(spec, change)}
    data["spec"].pop("nodeName", None)
    try:
        pod = decode_object(data)
        assert isinstance(pod, Pod), data
        runs = bool(what_if.fit_without_subject.feasible_nodes(pod)) if what_if.evidence.nodes else False
    except InputError:
        return []
    return [_pod_patch(what_if, what, change, runs)]


def patched_pod(pod: Pod, change: SpecPatch) -> Pod:
    """The pod with its spec changed. Raises `InputError` if the result is invalid."""
    data = msgspec.to_builtins(pod)
    data["spec"] = strategic_merge(data.get("spec", {}), change)
    decoded = decode_object({"apiVersion": "v1", "kind": "Pod", **data})
    assert isinstance(decoded, Pod), decoded
    return decoded


def _pod_patch(what_if: WhatIf, what: str, change: SpecPatch, runs: bool) -> Patch:
    item, path = _owner_of_template(what_if)
    spec = _at(item.data, path)
    new = _with_spec(item.data, path, strategic_merge(spec, change))
    if any(isinstance(step, int) for step in path):
        return _checked(Patch(_target(item), "json", _json_patch(path, spec, change), runs, what), item, new)
    kind = "strategic" if (item.api_version or "v1") in BUILT_IN else "merge"
    patch: Any = change if kind == "strategic" else to_merge_patch(spec, change)
    for step in reversed(path):
        patch = {step: patch}
    return _checked(Patch(_target(item), kind, patch, runs, what), item, new)


def _checked(patch: Patch, item: ClusterObject, new: dict[str, Any]) -> Patch:
    """The patch with what our rules say about it, and the whole object, for a server that refuses the patch."""
    refused = tuple(refused_fields(item.kind, item.data, new))
    manifest = recreated({"apiVersion": patch.target.api_version, "kind": item.kind, **new})
    return msgspec.structs.replace(patch, accepted=not refused, refused=refused, manifest=manifest)


def _json_patch(path: list[str | int], spec: dict[str, Any], change: SpecPatch) -> list[dict[str, Any]]:
    """The change as JSON patch: merge patches can't address an item of a list."""
    after, where = strategic_merge(spec, change), "".join(f"/{step}" for step in path)
    return [
        {"op": "add", "path": f"{where}/{name}", "value": after[name]}
        if name in after
        else {"op": "remove", "path": f"{where}/{name}"}
        for name in change
        if name in after or name in spec
    ]


def _at(data: Any, path: list[str | int]) -> dict[str, Any]:
    for step in path:
        data = data[step] if isinstance(step, int) else nested_map(data, step) or data.get(step, {})
    return data if isinstance(data, dict) else {}


def _with_spec(data: Any, path: list[str | int], spec: dict[str, Any]) -> Any:
    """A copy of the data with another pod spec at the path."""
    if not path:
        return spec
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        return [_with_spec(value, rest, spec) if at == first else value for at, value in enumerate(data)]
    return {**data, first: _with_spec(data.get(first, {}), rest, spec)}


def _owner_of_template(what_if: WhatIf) -> tuple[ClusterObject, list[str | int]]:
    """The object to patch and the path to its pod spec: the topmost owner that has the pod's template."""
    pod = next((pod for pod in what_if.subject.pods), what_if.subject.item)
    for item in reversed((what_if.subject.item, *what_if.subject.owners)):
        if item.kind == "Pod":
            continue
        found = templates_of(item.data)
        fitting = [path for path, template in found if len(found) == 1 or _is_made_from(pod, template)]
        if len(fitting) == 1:
            return item, [*_steps(fitting[0]), "spec"]
    return pod, ["spec"]


def _steps(path: str) -> list[str | int]:
    """`spec.tasks[0].template` as spec, tasks, 0, template."""
    return [int(step) if is_digits(step) else step for step in path.replace("[", ".").replace("]", "").split(".")]


def _is_made_from(pod: ClusterObject, template: dict[str, object]) -> bool:
    """Whether the pod's containers are those of the template, with its images and resources."""

    def containers(data: object) -> list[tuple[str, str, str]]:
        return [
            (nested_string(row, "name"), nested_string(row, "image"), str(nested_map(row, "resources", "limits")))
            for row in nested_maps(data, "spec", "containers")
        ]

    return pod.kind == "Pod" and containers(pod.data) == containers(template)


# Changes of other objects, tried on the whole cluster


def _unsuspend(what_if: WhatIf, finding: Finding) -> list[Patch]:
    item = suspended_object(what_if.subject)
    if item is None or manager_config(what_if.evidence, item) is not None:
        return []
    change: SpecPatch = {"suspend": False}
    spec = change if nested_bool(item.data, "spec", "suspend") else {"runPolicy": change}
    runs = what_if.evidence.nodes and what_if.fit.count_placeable(what_if.templates) == len(what_if.templates)
    return [Patch(_target(item), "merge", {"spec": spec}, bool(runs), "resume it")]


def _uncordon(what_if: WhatIf, finding: Finding) -> list[Patch]:
    """Cordoned nodes that would take the pod if they were uncordoned."""
    pods = [item.decoded for item in what_if.subject.pending if isinstance(item.decoded, Pod)] or what_if.templates
    found: list[Patch] = []
    cordoned = [
        (item, item.decoded)
        for item in what_if.evidence.of_kind("Node")
        if isinstance(item.decoded, Node) and item.decoded.spec.unschedulable
    ]
    for item, node in cordoned[:MAX_PATCHES] if pods else ():
        left = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE_TAINT)
        spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=left)
        fit = what_if.fit_with({item.name: msgspec.structs.replace(node, spec=spec)})
        if item.name in fit.feasible_nodes(pods[0]):
            patch = {"spec": {"unschedulable": False}}
            found.append(Patch(_target(item), "merge", patch, True, f"uncordon {item.name}"))
    return found


def _other_queue(what_if: WhatIf, finding: Finding) -> list[Patch]:
    """Replaces a LocalQueue that does not exist by one of the namespace that does."""
    item = what_if.subject.item
    name = item.labels.get(QUEUE_NAME_LABEL, "")
    if not name or what_if.evidence.get("LocalQueue", item.namespace, name) is not None:
        return []
    existing = [
        local_queue for local_queue in what_if.evidence.of_kind("LocalQueue") if local_queue.namespace == item.namespace
    ]
    found = []
    for local_queue in existing[:MAX_PATCHES]:
        patch = {"metadata": {"labels": {QUEUE_NAME_LABEL: local_queue.name}}}
        new = strategic_merge(item.data, patch)
        runs = what_if.would_start_with(item, new)
        found.append(_checked(Patch(_target(item), "merge", patch, runs, f"use queue {local_queue.name}"), item, new))
    return found


def _tolerate_flavor(what_if: WhatIf, finding: Finding) -> list[Patch]:
    """Tolerates the taints of a flavor."""
    item, path = _owner_of_template(what_if)
    found = []
    for flavor in what_if.evidence.of_kind("ResourceFlavor"):
        taints = nested_maps(flavor.data, "spec", "nodeTaints")
        if not taints or not what_if.templates:
            continue
        new = [{k: taint[k] for k in ("key", "value", "effect") if taint.get(k)} for taint in taints]
        spec = _at(item.data, path)
        change = {"tolerations": [*nested_maps(spec, "tolerations"), *new]}
        patch = _pod_patch(what_if, f"tolerate the taints of flavor {flavor.name}", change, False)
        runs = what_if.would_start_with(item, _with_spec(item.data, path, strategic_merge(spec, change)))
        found.append(msgspec.structs.replace(patch, runs_after=runs))
    return found


def _looser_topology(what_if: WhatIf, finding: Finding) -> list[Patch]:
    """Makes a required topology level preferred."""
    item = what_if.subject.item
    found = templates_of(item.data)
    required, preferred = (f"kueue.x-k8s.io/podset-{mode}-topology" for mode in ("required", "preferred"))
    if len(found) != 1 or "[" in found[0][0]:
        return []
    level = nested_string(found[0][1], "metadata", "annotations", required)
    if not level:
        return []
    patch: Any = {"metadata": {"annotations": {required: None, preferred: level}}}
    for step in reversed(found[0][0].split(".")):
        patch = {step: patch}
    new = strategic_merge(item.data, patch)
    runs = what_if.would_start_with(item, new)
    return [_checked(Patch(_target(item), "merge", patch, runs, f"prefer {level} instead of requiring it"), item, new)]


OTHER_OBJECT_MAKERS: dict[str, PatchMaker] = {
    "JOB_SUSPENDED": _unsuspend,
    "NODE_UNSCHEDULABLE": _uncordon,
    "KUEUE_QUEUE_MISSING": _other_queue,
    "KUEUE_FLAVOR_MISMATCH": _tolerate_flavor,
    "KUEUE_TOPOLOGY_NOFIT": _looser_topology,
}
"""Cause → changes outside the pod spec, or of another object."""
PATCHABLE_CODES = frozenset({*PROPOSERS_BY_CODE, *SPEC_FIXES_BY_CODE, *OTHER_OBJECT_MAKERS})
"""Causes for which a patch may be proposed."""


def _target(item: ClusterObject) -> PatchTarget:
    return PatchTarget(item.api_version or "v1", item.kind, item.namespace, item.name)
