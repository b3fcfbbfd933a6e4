"""What the operator and a node's agent tell each other, as annotations of the Node: faults, requests, answers.

The agent writes the faults of its GPUs as they are now, and answers the one request that is there; the operator reads
both and writes requests (`operator.observed`). The embedded cluster's simulated nodes do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from windlass.node.xid import Action

T = TypeVar("T")
Rung = Literal["reset", "reboot", "ticket", ""]
REQUEST_ACTIONS = ("reset", "reboot", "validate")
_RUNG_OF_ACTION: dict[str, Rung] = {
    Action.RESET_GPU.value: "reset",
    Action.RESTART_NODE.value: "reboot",
    Action.RESTART_VM.value: "reboot",
    Action.CHECK_LINKS.value: "ticket",
    Action.CONTACT_SUPPORT.value: "ticket",
    "look at cooling and power supply": "ticket",
    "check slot and cabling": "ticket",
}


class DeviceFaultReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unhealthy GPU."""

    device: int
    fault: str
    """`Xid 79`, or the agent's word for the problem."""
    action: str = ""
    """The first rung of a repair: reset, reboot, ticket; empty where the device heals by itself."""
    message: str = ""


class NodeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    action: str
    device: int = -1
    """The GPU's index; -1: the whole node."""


class NodeAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    state: str
    """Done or Failed."""
    message: str = ""


def rung_of_action(action: str) -> Rung:
    """The rung of a repair that does what the Xid catalogue recommends."""
    return _RUNG_OF_ACTION.get(action, "")


def fault_reports(
    indices: Mapping[str, int],
    ailments: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
    actions: Mapping[str, str],
) -> list[DeviceFaultReport]:
    """Of the agent's health journal: kinds of problems, reasons and actions by UUID."""
    found = []
    for uuid, reason in reasons.items():
        if uuid not in indices:
            continue  # a MIG instance: its GPU goes on
        kinds = ailments.get(uuid) or ("unhealthy",)
        fault = kinds[0].replace("xid-", "Xid ")
        found.append(DeviceFaultReport(indices[uuid], fault, rung_of_action(actions.get(uuid, "")), reason))
    return sorted(found, key=lambda report: report.device)


def encode_faults(reports: Sequence[DeviceFaultReport]) -> str:
    return msgspec.json.encode(list(reports)).decode() if reports else ""


def decode_faults(text: str) -> tuple[DeviceFaultReport, ...]:
    """Nothing where it can't be read: the devices are unhealthy to the scheduler by the older annotation too."""
    return _decode(text, tuple[DeviceFaultReport, ...]) or ()


def decode_request(text: str) -> NodeRequest | None:
    return _decode(text, NodeRequest)


def decode_answer(text: str) -> NodeAnswer | None:
    return _decode(text, NodeAnswer)


def _decode(text: str, kind: type[T]) -> T | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
