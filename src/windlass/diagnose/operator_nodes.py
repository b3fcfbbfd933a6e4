"""What the operator says of a node in its GPUNode: GPUs in repair, a change under way, a step that is not done.

`why` adds it to the answer about a waiting pod and about a node, `doctor` to its checks. It is the operator's own
account: where it explains why capacity is missing, it also says until when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.nodes import gpu_resources
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.names.nvidia import GPU_COUNT_LABEL
from windlass.model.node import Node
from windlass.model.repair_state import ENDS_BY_ITSELF, NEEDS_PERSON, WHOLE_NODE, end_words, repair_words
from windlass.model.times import parse_timestamp

CAPACITY_CODES = frozenset(
    {
        *("GPU_FULL", "GPU_FRAGMENTED", "DEVICE_UNHEALTHY", "NODE_UNSCHEDULABLE", "REQUEST_EXCEEDS_CLUSTER"),
        *("DEVICE_PLUGIN_ABSENT", "DEVICE_PLUGIN_FAILING", "GPU_NOT_YET_ADVERTISED", "DRIVER_MISSING"),
    }
)
"""Answers to which it matters that the operator has GPUs out of service."""
SHOWN_NODES = 3


def with_operator_notes(evidence: Evidence, finding: Finding, names: Iterable[str]) -> Finding:
    """The finding, with what the operator says of these nodes."""
    finding = _without_stack(evidence, finding)
    if finding.code not in CAPACITY_CODES or not evidence.has_kind("GPUNode"):
        return finding
    notes = [note for name in names for note in node_notes(evidence, name)]
    more = f"and the operator has something to say of {len(notes) - SHOWN_NODES} more (windlass stack status)"
    shown = (*notes[:SHOWN_NODES], *((more,) if len(notes) > SHOWN_NODES else ()))
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, *shown))


def _without_stack(evidence: Evidence, finding: Finding) -> Finding:
    """Nobody waits for the operator at a node that no GPUStack selects."""
    named = WAITS_FOR_OPERATOR.search(finding.remedy)
    if named is None or not _is_left_alone(evidence, named[1]):
        return finding
    instead = f"no GPUStack selects node {named[1]}, so the operator does nothing there: create one, or add it to one"
    return msgspec.structs.replace(finding, remedy=finding.remedy.replace(named[0], instead))


def _is_left_alone(evidence: Evidence, name: str) -> bool:
    """Whether no GPUStack exists, or the operator has said that none selects the node."""
    item = evidence.get("GPUNode", "", name)
    reason = nested_string(item.data, "status", "reason") if item is not None else ""
    return reason == "StackMissing" or ("GPUStack" in evidence.complete_kinds and not evidence.of_kind("GPUStack"))


WAITS_FOR_OPERATOR = re.compile(r"wait for the operator \(windlass stack explain (\S+)\)")
"""The remedy of `nodes.down_remedy` and `podless_objects`."""


def node_notes(evidence: Evidence, name: str) -> Iterator[str]:
    """Sentences; none for a node that is in service, or that the operator does not look after."""
    item = evidence.get("GPUNode", "", name)
    if item is None:
        return
    status = nested_map(item.data, "status")
    change = nested_map(status, "change")
    if change and not nested_string(change, "result"):
        words = _state(nested_string(change, "reason"), nested_string(change, "message"))
        yield f"{name} is being changed by {nested_string(change, 'change')}{_until(change)}: {words}"
    elif nested_string(status, "phase") == "NotReady":
        words = _state(nested_string(status, "reason"), nested_string(status, "message"))
        yield f"{name} is not ready for GPU work{_until(status)}: {words}"
    devices = [device for device in nested_maps(status, "devices") if nested_string(device, "state") == "HeldBack"]
    if devices:
        yield _repair_note(evidence, name, devices)
    for repair in evidence.of_kind("GPURepair"):
        spec, state = nested_map(repair.data, "spec"), nested_map(repair.data, "status")
        is_whole = nested_string(spec, "node") == name and spec.get("device", WHOLE_NODE) == WHOLE_NODE
        if is_whole and nested_string(state, "phase") not in ("", "Suspected", "Returned"):
            yield f"{name} is in repair{end_words(_repair_end(evidence, [repair.name]))} (repair {repair.name})"


def _repair_note(evidence: Evidence, name: str, devices: list[dict[str, object]]) -> str:
    node = evidence.nodes.get(name)
    whole = _gpu_count(node) if node is not None else 0
    repairs = sorted({nested_string(device, "repair") for device in devices} - {""})
    faults = sorted({nested_string(device, "fault") for device in devices} - {""})
    said = f": {', '.join(faults)}" if faults else ""
    names = f" (repair {', '.join(repairs)})" if repairs else ""
    return f"{repair_words(name, len(devices), whole, _repair_end(evidence, repairs))}{said}{names}"


def with_repair(evidence: Evidence, finding: Finding, node: str, device: int = WHOLE_NODE) -> Finding:
    """The finding about a node or one of its GPUs, with the repairs that are open, and what ends the first of them."""
    repairs = [item for item in evidence.of_kind("GPURepair") if _is_open_for(item, node, device)]
    if not repairs:
        return finding
    first = repairs[0]
    command = f"windlass repair show {first.name}"
    remedy = f"see what repair {first.name} needs ({command})"
    if nested_string(first.data, "spec", "requestedBy"):
        remedy = f"windlass repair return {first.name} brings it back, once it is validated"
    elif _phase(first) in ENDS_BY_ITSELF:
        remedy = f"leave it to repair {first.name} ({command})"
    notes = tuple(_repair_line(repair) for repair in repairs[:SHOWN_NODES])
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, *notes), remedy=remedy)


def _is_open_for(repair: ClusterObject, node: str, device: int) -> bool:
    """Of a node, all of its repairs count; of a GPU, its own and those of the whole node."""
    spec = nested_map(repair.data, "spec")
    is_there = nested_string(spec, "node") == node and _phase(repair) != "Returned"
    return is_there and (device == WHOLE_NODE or spec.get("device", WHOLE_NODE) in (device, WHOLE_NODE))


def _phase(repair: ClusterObject) -> str:
    return nested_string(repair.data, "status", "phase") or "Suspected"


def _repair_line(repair: ClusterObject) -> str:
    spec = nested_map(repair.data, "spec")
    device = spec.get("device", WHOLE_NODE)
    what = nested_string(spec, "node") if device == WHOLE_NODE else f"GPU {device} of {nested_string(spec, 'node')}"
    fault, by = nested_string(spec, "fault"), nested_string(spec, "requestedBy")
    asked = f", asked for by {by}" if by else ""
    return f"repair {repair.name} of {what} is {_phase(repair)}{asked}" + (f": {fault}" if fault else "")


def _gpu_count(node: Node) -> int:
    count = node.labels.get(GPU_COUNT_LABEL, "")
    return int(count) if count.isdecimal() else sum(gpu_resources(node).values())


def _repair_end(evidence: Evidence, repairs: Iterable[str]) -> int | str:
    """When the last of them is over, if each goes on by itself; else that it needs a person."""
    ends = []
    for name in repairs:
        item = evidence.get("GPURepair", "", name)
        status = nested_map(item.data, "status") if item is not None else {}
        if status and nested_string(status, "phase") not in ENDS_BY_ITSELF:
            return NEEDS_PERSON
        ends.append(parse_timestamp(nested_string(status, "deadline") or ""))
    return max(ends) if ends and all(ends) else 0


def _until(state: dict[str, object]) -> str:
    deadline = parse_timestamp(nested_string(state, "deadline"))
    return end_words(deadline)


def _state(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason
