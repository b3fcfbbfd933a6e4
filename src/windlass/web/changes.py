"""The operator's objects as the page lists them: changes of the fleet, repairs, and nodes that are brought up.

Fed by `web.page_state` with FleetChanges, GPURepairs and GPUNodes, whose status the operator writes. Each says whether
it needs a person or only time: a repair by its phase, everything else by what the closed list of reasons has as remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.model.repair_state import ENDS_BY_ITSELF, WHOLE_NODE
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.operator.kinds.fleet_change import COMPONENTS, FINAL_PHASES
from windlass.operator.kinds.reasons import REASONS, Reason

PERSON, TIME = "person", "time"
MAX_SHOWN = 32
"""Attempts, gates and nodes that are named of one object."""
_TARGET = {"driver": "version", "agent": "version", "mig": "config", "workloadImage": "image"}


def change_view(tree: Mapping[str, Any]) -> Unstructured:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    component = next((name for name in COMPONENTS if spec.get(name)), status.get("component") or "")
    phase = status.get("phase") or "Pending"
    is_over = phase in FINAL_PHASES
    return {
        **_common(tree, phase),
        "stack": spec.get("stack") or "",
        "component": component,
        "from": status.get("from") or "",
        "to": status.get("to") or (spec.get(component) or {}).get(_TARGET.get(component, ""), ""),
        "wave": int(status.get("wave") or 0),
        "waves": int(status.get("waves") or 0) or len(spec.get("waves") or ()),
        "nodes": int(status.get("nodes") or 0),
        "changed": int(status.get("changed") or 0),
        "failed": int(status.get("failed") or 0),
        "stragglers": list(status.get("stragglers") or ())[:MAX_SHOWN],
        "gates": [
            {"name": gate.get("name", ""), "verdict": gate.get("verdict", ""), "message": gate.get("message", "")}
            for gate in (status.get("gates") or ())[:MAX_SHOWN]
        ],
        "over": is_over,
        "needs": "" if is_over else PERSON if phase == "Held" else _needs(status),
    }


def repair_view(tree: Mapping[str, Any]) -> Unstructured:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    phase = status.get("phase") or "Suspected"
    is_over = phase == "Returned"
    goes_on = phase in ENDS_BY_ITSELF
    return {
        **_common(tree, phase),
        "node": spec.get("node") or "",
        "device": spec.get("device", WHOLE_NODE),
        "fault": spec.get("fault") or "",
        "by": spec.get("requestedBy") or "",
        "opened": parse_timestamp(status.get("opened") or tree["metadata"].get("creationTimestamp") or ""),
        "ended": parse_timestamp(status.get("ended") or ""),
        "attempts": [
            {
                "rung": attempt.get("rung", ""),
                "at": parse_timestamp(attempt.get("at") or ""),
                "result": attempt.get("result") or "",
                "message": attempt.get("message") or "",
            }
            for attempt in (status.get("attempts") or ())[-MAX_SHOWN:]
        ],
        "ticket": (status.get("ticket") or {}).get("reference") or "",
        "over": is_over,
        "needs": "" if is_over else TIME if goes_on else PERSON,
    }


def bring_up_view(tree: Mapping[str, Any]) -> Unstructured | None:
    """None of a node that is in service, or not the operator's."""
    status = tree.get("status") or {}
    if status.get("phase") not in (None, "", "NotReady"):
        return None
    steps = [step for step in status.get("steps") or () if step.get("state") not in ("Done", "NotOurs")]
    return {
        **_common(tree, "NotReady"),
        "stack": status.get("stack") or "",
        "steps": [
            {
                "name": step.get("name", ""),
                "state": step.get("state", ""),
                "reason": step.get("reason") or "",
                "message": step.get("message") or "",
                "deadline": parse_timestamp(step.get("deadline") or ""),
            }
            for step in steps
        ],
        "needs": _needs(status),
    }


def _common(tree: Mapping[str, Any], phase: str) -> Unstructured:
    status = tree.get("status") or {}
    reason = status.get("reason") or ""
    return {
        "name": tree["metadata"]["name"],
        "phase": phase,
        "reason": reason,
        "message": status.get("message") or _meaning(reason),
        "remedy": REASONS[Reason(reason)].remedy if reason in REASONS else "",
        "since": parse_timestamp(status.get("since") or tree["metadata"].get("creationTimestamp") or ""),
        "deadline": parse_timestamp(status.get("deadline") or ""),
    }


def _meaning(reason: str) -> str:
    return REASONS[Reason(reason)].meaning if reason in REASONS else ""


def _needs(status: Mapping[str, Any]) -> str:
    """A reason that this version does not know needs somebody to look."""
    reason = status.get("reason") or ""
    if not reason:
        return TIME
    return TIME if reason in REASONS and REASONS[Reason(reason)].only_needs_time else PERSON
