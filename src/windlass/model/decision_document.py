"""A decision as plain data, and read back: the same in `plan -o json`, in the scheduler's record and over the wire.

`cli.plan_document` puts decisions into the `Plan` document, `scheduler.decision_record` into its lines. The document
of a decision holds everything that the decision does. Fields are only added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.decision import (
    Admit,
    AdmittedPodSet,
    Ask,
    Bind,
    Decision,
    DeviceGrant,
    Evict,
    Hold,
    PodSetResize,
    Reserve,
    Resize,
    WithdrawAsk,
)
from windlass.model.errors import InputError
from windlass.model.hold_document import hold_document, parse_hold
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.model.workload import PodSetSize

MILLI_PER_GPU = 1000
_KINDS = ("withdrawAsk", "ask", "evict", "resize", "admit", "bind", "reserve", "hold")


def decision_document(decision: Decision) -> dict[str, Any]:
    match decision:
        case Admit():
            return {
                "decision": "admit",
                "workload": decision.workload,
                "kind": decision.kind,
                "queue": decision.queue,
                "podSets": [
                    {
                        "name": pod_set.name,
                        "count": pod_set.count,
                        "flavors": pod_set.flavors,
                        "nodes": pod_set.nodes,
                        **({"wanted": pod_set.wanted} if pod_set.wanted else {}),
                    }
                    for pod_set in decision.pod_sets
                ],
                "after": list(decision.after),
                **({"note": decision.note} if decision.note else {}),
            }
        case Bind():
            return {
                "decision": "bind",
                "pod": decision.pod,
                "node": decision.node,
                "devices": [device_document(device) for device in decision.devices],
                "after": list(decision.after),
            }
        case Evict():
            return {
                "decision": "evict",
                "workload": decision.workload,
                "pods": list(decision.pods),
                "for": decision.for_workload,
                "reason": decision.reason,
                "lostGpuSeconds": decision.lost_gpu_seconds,
                "leastGpuSeconds": decision.least_gpu_seconds,
                "message": decision.message,
                **({"after": list(decision.after)} if decision.after else {}),
            }
        case Ask():
            return {
                "decision": "ask",
                "workload": decision.workload,
                "pods": list(decision.pods),
                "for": decision.for_workload,
                "reason": decision.reason,
                "id": decision.id,
                "asked": format_timestamp(decision.asked_at),
                "until": format_timestamp(decision.until),
                "refusedAnswer": decision.refused_answer,
                **({"notice": decision.notice} if decision.notice else {}),
            }
        case WithdrawAsk():
            return {
                "decision": "withdrawAsk",
                "workload": decision.workload,
                "pods": list(decision.pods),
                "id": decision.id,
                "hasLeft": decision.has_left,
            }
        case Resize():
            return {
                "decision": "resize",
                "workload": decision.workload,
                "podSets": [_resize_document(one) for one in decision.pod_sets],
            }
        case Reserve():
            return {
                "decision": "reserve",
                "workload": decision.workload,
                "domain": decision.domain,
                "from": format_timestamp(decision.start),
                "until": None if decision.until is None else format_timestamp(decision.until),
                "nodes": decision.nodes,
            }
        case Hold():
            return hold_document(decision)


def parse_plan(document: Mapping[str, Any]) -> Plan:
    """The plan that was written."""
    kinds: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    for decision in document["decisions"]:
        kinds[decision["decision"]].append(parse_decision(decision))
    return Plan(
        binds=tuple(kinds["bind"]),
        holds=tuple(kinds["hold"]),
        admits=tuple(kinds["admit"]),
        evicts=tuple(kinds["evict"]),
        reserves=tuple(kinds["reserve"]),
        resizes=tuple(kinds["resize"]),
        asks=tuple(kinds["ask"]),
        withdrawals=tuple(kinds["withdrawAsk"]),
    )


def parse_decision(document: dict[str, Any]) -> Decision:
    """The decision that `decision_document` wrote."""
    match document:
        case {"decision": "admit", "workload": workload, "kind": kind, "queue": queue, "after": after}:
            pod_sets = msgspec.convert(document["podSets"], tuple[AdmittedPodSet, ...])
            return Admit(workload, kind, queue, pod_sets, tuple(after), document.get("note", ""))
        case {"decision": "bind", "pod": pod, "node": node, "after": after}:
            return Bind(pod, node, msgspec.convert(document["devices"], tuple[DeviceGrant, ...]), tuple(after))
        case {"decision": "evict", "workload": workload, "pods": pods, "reason": reason}:
            lost = (document.get("lostGpuSeconds", 0), document.get("leastGpuSeconds", 0))
            after = tuple(document.get("after", ()))
            return Evict(workload, tuple(pods), document["for"], reason, *lost, document.get("message", ""), after)
        case {"decision": "ask", "workload": workload, "pods": pods, "reason": reason, "id": identity}:
            asked, until = (parse_timestamp(document[name]) for name in ("asked", "until"))
            texts = document["refusedAnswer"], document.get("notice", "")
            return Ask(workload, tuple(pods), document["for"], reason, identity, asked, until, *texts)
        case {"decision": "withdrawAsk", "workload": workload, "pods": pods, "id": identity, "hasLeft": has_left}:
            return WithdrawAsk(workload, tuple(pods), identity, has_left)
        case {"decision": "resize", "workload": workload, "podSets": pod_sets}:
            return Resize(workload, tuple(map(_parse_resize, pod_sets)))
        case {"decision": "reserve", "workload": workload, "domain": domain, "until": until, "nodes": nodes}:
            end = None if until is None else parse_timestamp(until)
            return Reserve(workload, domain, parse_timestamp(document["from"]), end, nodes)
        case {"decision": "hold"}:
            return parse_hold(document)
    raise InputError(f"{document.get('decision')!r} is not a decision", path="decisions")


def _resize_document(resize: PodSetResize) -> dict[str, Any]:
    """`before` and `after` also say how many pods hold quota, which follows from the rest."""
    sizes = {
        name: {**msgspec.structs.asdict(size), "held": size.held}
        for name, size in (("before", resize.before), ("after", resize.after))
    }
    return {"name": resize.name, "ownerCount": resize.owner_count, **sizes}


def _parse_resize(document: dict[str, Any]) -> PodSetResize:
    before, after = (msgspec.convert(document[name], PodSetSize) for name in ("before", "after"))
    return PodSetResize(document["name"], document["ownerCount"], before, after)


def device_document(grant: DeviceGrant) -> dict[str, Any]:
    document: dict[str, Any] = {"index": grant.index}
    if grant.milli != MILLI_PER_GPU:
        document["milli"] = grant.milli
    if grant.profile:
        document["profile"] = grant.profile
    if grant.start >= 0:
        document["start"] = grant.start
    if grant.replicas != 1:
        document["replicas"] = grant.replicas
    return document
