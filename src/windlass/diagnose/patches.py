"""The smallest change that would let the subject run, as a patch.

`why` calls `patches_for` with the cause. `patch_proposals` proposes changes, and every proposal is tried on the engine;
`runs_after` says whether it would then run. `PATCHABLE_CODES` lists the causes with patches: each has a test that
applies its patch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.diagnose import patch_proposals, queue
from windlass.diagnose.evidence import ClusterObject
from windlass.diagnose.finding import Finding, Patch, PatchTarget
from windlass.diagnose.patch_proposals import Proposer
from windlass.diagnose.strategic_merge import SpecPatch, strategic_merge, to_merge_patch
from windlass.diagnose.subject import templates_of
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.diagnose.unstructured import nested_bool, nested_map, nested_maps, nested_string
from windlass.diagnose.what_if import WhatIf
from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import APPS_API_VERSION, BATCH_API_VERSION, UNSCHEDULABLE_TAINT
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod

MAX_PATCHES = 3
"""Most patches of one diagnosis."""
MANY_NODES = 500
"""Above this number of nodes, uncordoning is tried only where it is the cause itself."""
BUILT_IN = ("v1", APPS_API_VERSION, BATCH_API_VERSION)
"""API versions whose kinds support strategic merge patches; custom resources only support merge patches."""

PROPOSERS_BY_CODE: dict[str, Proposer] = {
    **dict.fromkeys(sorted(patch_proposals.FIT_A_NODE_CODES), patch_proposals.fit_a_node),
    "POD_SPREAD_CONFLICT": patch_proposals.loosen_spread,
    "POD_AFFINITY_CONFLICT": patch_proposals.loosen_affinity,
    "HOST_PORT_CONFLICT": patch_proposals.drop_host_ports,
    "WRONG_SCHEDULER": patch_proposals.use_default_scheduler,
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
    """At most `MAX_PATCHES`, those that let it run first; empty where no change of this object would help."""
    code = finding.code
    found: list[Patch] = []
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
    return tuple(sorted(found, key=lambda patch: not patch.runs_after)[:MAX_PATCHES])


# Changes of the pod


def _try(what_if: WhatIf, analysis: SchedulingAnalysis, what: str, change: SpecPatch) -> list[Patch]:
    """The patch with the engine's answer for all pods of the kind; empty if the changed pod is invalid."""
    try:
        pod = patched_pod(analysis.pod, change)
        runs = what_if.fit.count_placeable([pod] * analysis.count) == analysis.count
    except InputError:
        return []
    return [_pod_patch(what_if, what, change, runs)]


def _by_spec(what_if: WhatIf, what: str, better: Callable[[dict[str, Any]], SpecPatch]) -> list[Patch]:
    item, path = _owner_of_template(what_if)
    spec = nested_map(item.data, *path)
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
    kind = "strategic" if (item.api_version or "v1") in BUILT_IN else "merge"
    patch: Any = change if kind == "strategic" else to_merge_patch(nested_map(item.data, *path), change)
    for step in reversed(path):
        patch = {step: patch}
    return Patch(_target(item), kind, patch, runs, what)


def _owner_of_template(what_if: WhatIf) -> tuple[ClusterObject, list[str]]:
    """The object to patch: the topmost owner with one pod template, since most fields of a pod are immutable."""
    for item in reversed((what_if.subject.item, *what_if.subject.owners)):
        if item.kind == "Pod":
            continue
        found = templates_of(item.data)
        if len(found) == 1 and "[" not in found[0][0]:
            return item, [*found[0][0].split("."), "spec"]
    pod = next((pod for pod in what_if.subject.pods), what_if.subject.item)
    return pod, ["spec"]


# Changes of other objects, tried on the whole cluster


def _unsuspend(what_if: WhatIf, finding: Finding) -> list[Patch]:
    item = queue.suspended_object(what_if.subject)
    if item is None:
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
        runs = what_if.would_start_with(item, strategic_merge(item.data, patch))
        found.append(Patch(_target(item), "merge", patch, runs, f"use queue {local_queue.name}"))
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
        change = {"tolerations": [*nested_maps(item.data, *path, "tolerations"), *new]}
        patch = _pod_patch(what_if, f"tolerate the taints of flavor {flavor.name}", change, False)
        runs = what_if.would_start_with(item, strategic_merge(item.data, patch.patch))
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
    runs = what_if.would_start_with(item, strategic_merge(item.data, patch))
    return [Patch(_target(item), "merge", patch, runs, f"prefer {level} instead of requiring it")]


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
