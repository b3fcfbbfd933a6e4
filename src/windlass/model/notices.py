"""That running work will have to leave, and by when: the signs of clouds, autoscalers, the kubelet, the operator and
people, read as one notice.

`placement.notices` asks the work on such a node to write a checkpoint, and `cluster.node_columns` finds the nodes. Work
stays where it tolerates the taint by name. A toleration without a key says nothing about a node that goes
(`model.taints`): otherwise what has just left would be placed there again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import LEAVE_ANNOTATION, LEAVING_TAINT
from windlass.model.node import Node
from windlass.model.times import parse_timestamp

SHUTDOWN_MESSAGE = "node is shutting down"
"""Of the condition Ready while the kubelet ends the pods of a machine that is shut down."""
SHUTDOWN_SECONDS = 15
_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_MAX_LENGTH = 4096
_LATEST = 4_102_444_800
"""The year 2100: a larger number is no time in seconds."""


class _Source(NamedTuple):
    cause: str
    seconds: int = 0
    """How long work has for its checkpoint, where the sign doesn't say; 0: as long as it declares."""
    is_certain: bool = True


_TAINTS = {
    "aws-node-termination-handler/spot-itn": _Source("AWS interrupts the spot instance", 90),
    "aws-node-termination-handler/scheduled-maintenance": _Source("AWS maintains the instance"),
    "aws-node-termination-handler/asg-lifecycle-termination": _Source("its Auto Scaling group ends the instance"),
    "aws-node-termination-handler/rebalance-recommendation": _Source(
        "AWS may soon interrupt the spot instance", is_certain=False
    ),
    "karpenter.sh/disrupted": _Source("Karpenter removes it"),
    "cloud.google.com/impending-node-termination": _Source("Google Cloud ends the instance", 15),
    "ToBeDeletedByClusterAutoscaler": _Source("the cluster autoscaler removes it"),
    LEAVING_TAINT: _Source("its administrator empties it"),
}
"""Of AWS' 120 seconds 30 are left for the end of the processes, of Google's 30 the 15 that are for the system."""
NODE_NOTICE_TAINTS = frozenset(_TAINTS)
"""By these taints clouds, autoscalers and administrators say that a node goes."""


class Notice(msgspec.Struct, frozen=True):
    """That work has to leave."""

    cause: str
    node: str = ""
    """The node that goes; empty: the notice is for the work itself."""
    taint: str = ""
    """The key by which the node says so; empty: another sign."""
    until: int = 0
    """When; 0: not known."""
    seconds: int = 0
    """How long there is from when it is asked, where `until` is not known; 0: as long as it declares."""
    is_certain: bool = True
    """Or else only likely: then it is asked only where it would start elsewhere."""

    @property
    def text(self) -> str:
        return f"node {self.node} goes: {self.cause}" if self.node else self.cause

    def leave_by(self, asked_at: int) -> int:
        """0: as long as the work declares."""
        return self.until or (asked_at + self.seconds if self.seconds else 0)


class LeaveRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation `windlass.dev/leave` of a pod: the operator and people write it."""

    until: str
    cause: str = ""


def node_notice(node: Node) -> Notice | None:
    """Of several signs the most urgent one."""
    found = [
        _taint_notice(node.name, taint.key, taint.value)
        for taint in node.spec.taints
        if taint.key in _TAINTS and taint.effect in _HARD_EFFECTS
    ]
    if is_shutting_down(node):
        found.append(Notice("the machine is shut down", node.name, seconds=SHUTDOWN_SECONDS))
    return most_urgent(found)


def is_shutting_down(node: Node) -> bool:
    """Whether its kubelet says so (graceful node shutdown)."""
    return any(SHUTDOWN_MESSAGE in known.message for known in node.status.conditions if known.type == "Ready")


def _taint_notice(node: str, key: str, value: str) -> Notice:
    source = _TAINTS[key]
    # Only the value of our own is when the node goes; those of others are identities and when they were written.
    seconds = int(value) if key == LEAVING_TAINT and value.isascii() and value.isdigit() and len(value) < 12 else 0
    until = seconds if seconds < _LATEST else 0
    return Notice(source.cause, node, key, until, source.seconds, source.is_certain)


def read_leave_request(annotations: Mapping[str, str]) -> LeaveRequest | None:
    """None where there is none, or one that can't be read."""
    text = annotations.get(LEAVE_ANNOTATION, "")
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        found = msgspec.json.decode(text, type=LeaveRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if parse_timestamp(found.until) else None


def pod_notice(metadata: ObjectMeta) -> Notice | None:
    request = read_leave_request(metadata.annotations)
    if request is None:
        return None
    return Notice(request.cause or "it was told to leave", until=parse_timestamp(request.until))


def most_urgent(notices: Iterable[Notice]) -> Notice | None:
    """Certain ones first, then by the time that they leave."""
    return min(notices, key=_urgency, default=None)


def _urgency(notice: Notice) -> tuple[bool, int, int, str, str]:
    """First those that say how long there is: they have come just now."""
    unknown = 2**62
    return not notice.is_certain, notice.seconds or unknown, notice.until or unknown, notice.node, notice.taint
