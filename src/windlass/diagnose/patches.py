"""The smallest change that would make it run, as a patch, and whether it would run at once.

Fed by `why` with the cause. A patch is made from the cause and tried on the engine's own filters before it is offered;
what would not run with it is still shown, and said to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from windlass.diagnose import nodes, tree
from windlass.diagnose.evidence import Item
from windlass.diagnose.finding import Finding, Patch, Target
from windlass.diagnose.queue import suspended_item
from windlass.diagnose.schedule import Candidate, Scheduling
from windlass.diagnose.subject import templates_of
from windlass.model.errors import InputError
from windlass.model.objects import decode_object
from windlass.model.pod import Pod
from windlass.model.requests import format_amount

if TYPE_CHECKING:
    from windlass.diagnose.why import Inquiry

Change = dict[str, Any]
"""Changes to a pod's spec, as a strategic merge patch writes them."""


def patches_for(inquiry: Inquiry, finding: Finding, seen: Scheduling | None) -> tuple[Patch, ...]:
    """At most a few, the smallest first; none where no change of this object would help."""
    if finding.code == "JOB_SUSPENDED":
        return (_unsuspend(inquiry),)
    if seen is None:
        return ()
    changes = _changes(finding.code, seen)
    found = [patch for what, change in changes if (patch := _try(inquiry, seen, what, change)) is not None]
    return tuple(sorted(found, key=lambda patch: not patch.runs_after)[:3])


def _unsuspend(inquiry: Inquiry) -> Patch:
    item = suspended_item(inquiry.subject)
    assert item is not None, "only what is suspended is resumed"
    change: Change = {"suspend": False}
    spec = change if tree.flag(item.data, "spec", "suspend") else {"runPolicy": change}
    return Patch(_target(item), "merge", {"spec": spec}, False, "resume it")


def _changes(code: str, seen: Scheduling) -> list[tuple[str, Change]]:
    """(in words, the change) for each candidate that differs."""
    found: list[tuple[str, Change]] = []
    if code == "WRONG_SCHEDULER":
        return [("use the default scheduler", {"schedulerName": "default-scheduler"})]
    if code == "RESOURCE_NAME_MISMATCH":
        return []
    for candidate in _nearest(code, seen):
        change = _change(code, candidate, seen)
        if change is not None and change not in found:
            found.append(change)
    return found


def _nearest(code: str, seen: Scheduling) -> list[Candidate]:
    near = [one for one in seen.candidates if code in one.fixed or code in one.room or not one.fixed]
    return sorted(near or seen.candidates, key=lambda one: (len(one.fixed) + len(one.room), one.node.name))[
        :8
    ]


def _change(code: str, one: Candidate, seen: Scheduling) -> tuple[str, Change] | None:
    """What the pod would have to say to fit this node, for causes that the pod can answer for."""
    change: Change = {}
    words: list[str] = []
    if "TAINT_NOT_TOLERATED" in one.fixed:
        taints = [
            taint
            for taint in nodes.blocking_taints(one.node, seen.pod)
            if taint.key not in nodes.LIFECYCLE_TAINTS
        ]
        change["tolerations"] = [*_tolerations(seen.pod), *(_toleration(taint) for taint in taints)]
        words.append("tolerate " + ", ".join(nodes.taint_words(taint) for taint in taints))
    if "SELECTOR_MISMATCH" in one.fixed:
        keys = [
            key for key, value in seen.pod.spec.node_selector.items() if one.node.labels.get(key) != value
        ]
        if not keys:
            return None
        change["nodeSelector"] = {key: one.node.labels.get(key) for key in keys}
        words.append("select " + ", ".join(f"{key}={one.node.labels.get(key, '(nothing)')}" for key in keys))
    smaller = _smaller(code, one, seen)
    if smaller is not None:
        words.append(smaller[0])
        change["containers"] = smaller[1]
    unknown = {*one.fixed, *one.room} - {"TAINT_NOT_TOLERATED", "SELECTOR_MISMATCH"} - RESIZED
    if unknown or not change:
        return None
    return "; ".join(words), change


RESIZED = {"CPU_MEM_INSUFFICIENT", "REQUEST_EXCEEDS_CLUSTER", "GPU_FULL", "GPU_FRAGMENTED", "GPU_STRANDED"}


def _smaller(code: str, one: Candidate, seen: Scheduling) -> tuple[str, list[dict[str, Any]]] | None:
    """The first container with as much as the node has: free now, or in all where even that is too little."""
    containers = seen.pod.spec.containers
    if not one.fit.short or len(containers) != 1:
        return None
    amounts: dict[str, str] = {}
    for name, lacking in one.fit.short.items():
        left = seen.requests[name] - lacking
        if left <= 0:
            return None
        amounts[name] = format_amount(name, left)
    resources = containers[0].resources
    change: dict[str, Any] = {"name": containers[0].name, "resources": {}}
    for side, given in (("requests", resources.requests), ("limits", resources.limits)):
        new = {name: amount for name, amount in amounts.items() if name in given}
        if new:
            change["resources"][side] = new
    said = ", ".join(f"{amount} {name}" for name, amount in amounts.items())
    return f"ask for {said}", [change]


def _tolerations(pod: Pod) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) for one in pod.spec.tolerations]


def _toleration(taint: Any) -> dict[str, str]:
    if taint.value:
        return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}


def _try(inquiry: Inquiry, seen: Scheduling, what: str, change: Change) -> Patch | None:
    """The change made, and the engine asked."""
    try:
        runs = bool(inquiry.fit.feasible(changed(seen.pod, change)))
    except InputError:
        return None
    item, path = _owner_of_template(inquiry)
    patch: Any = change
    for step in reversed(path):
        patch = {step: patch}
    return Patch(_target(item), "strategic", patch, runs, what)


def changed(pod: Pod, change: Change) -> Pod:
    """The pod with a strategic merge patch of its spec applied, as far as patches here go."""
    data = msgspec.to_builtins(pod)
    spec = data.setdefault("spec", {})
    for key, value in change.items():
        if key == "nodeSelector":
            merged = {**spec.get(key, {}), **value}
            spec[key] = {name: label for name, label in merged.items() if label is not None}
        elif key == "containers":
            _merge_containers(spec.get("containers", []), value)
        else:
            spec[key] = value
    decoded = decode_object({"apiVersion": "v1", "kind": "Pod", **data})
    assert isinstance(decoded, Pod), decoded
    return decoded


def _merge_containers(have: list[dict[str, Any]], change: list[dict[str, Any]]) -> None:
    for one in change:
        target = next((container for container in have if container.get("name", "") == one["name"]), None)
        if target is not None:
            resources = target.setdefault("resources", {})
            for side, amounts in one["resources"].items():
                resources[side] = {**resources.get(side, {}), **amounts}


def _owner_of_template(inquiry: Inquiry) -> tuple[Item, list[str]]:
    """The object to patch: the topmost with one pod template, since a pod itself can hardly be changed."""
    for item in reversed((inquiry.subject.item, *inquiry.subject.owners)):
        if item.kind == "Pod":
            continue
        found = templates_of(item.data)
        if len(found) == 1 and "[" not in found[0][0]:
            return item, [*found[0][0].split("."), "spec"]
    pod = next((one for one in inquiry.subject.pods), inquiry.subject.item)
    return pod, ["spec"]


def _target(item: Item) -> Target:
    return Target(item.api_version or "v1", item.kind, item.namespace, item.name)
