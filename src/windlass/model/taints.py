"""Taints and tolerations, with kube-scheduler's meaning but for nodes that are about to go (`notices`).

Pure functions on `model.node` and `model.pod` structs; the taint filter and the preference for untainted nodes call
them once per distinct pair of a node's taints and a pod's tolerations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from windlass.model.errors import InputError
from windlass.model.labels import check_operator
from windlass.model.names.kubernetes import (
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PID_PRESSURE_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)
from windlass.model.names.windlass import CHANGE_TAINT, REPAIR_TAINT
from windlass.model.node import Taint
from windlass.model.notices import NODE_NOTICE_TAINTS
from windlass.model.pod import Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects that keep a pod off a node; PreferNoSchedule only ranks."""
EFFECTS = (*HARD_EFFECTS, "PreferNoSchedule")
OPERATORS = ("Equal", "Exists", "Lt", "Gt")

LIFECYCLE_TAINTS = frozenset(
    {
        NOT_READY_TAINT,
        UNREACHABLE_TAINT,
        UNSCHEDULABLE_TAINT,
        NETWORK_UNAVAILABLE_TAINT,
        "node.kubernetes.io/out-of-service",
        MEMORY_PRESSURE_TAINT,
        PID_PRESSURE_TAINT,
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
    }
)
"""Taints for the condition or the removal of a node, as opposed to taints that restrict which pods may use it."""
STARTUP_TAINT = re.compile(r"[./](\w+-)*(not-ready|unregistered|uninitialized|not-initialized|disrupted|disruption)$")
"""Taints that an agent of the node, or what has created it, takes away when the node is ready for pods, by the usual
names (`node.cilium.io/agent-not-ready`, `ebs.csi.aws.com/agent-not-ready`, `karpenter.sh/unregistered`). A pod that
tolerated one would start on a node that is not ready for it."""

OPERATOR_TAINTS = frozenset({CHANGE_TAINT, REPAIR_TAINT})
"""Of nodes that Windlass' operator changes or repairs: a pod that tolerated one would lose its GPUs there."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def find_untolerated_taint(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Collection[str] = HARD_EFFECTS
) -> Taint | None:
    """The first taint of one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not tolerates(tolerations, taint):
            return taint
    return None


def taint_code(key: str) -> str:
    """The root-cause code of a node that is refused for a taint with this key."""
    if key == DISK_PRESSURE_TAINT:
        return "EPHEMERAL_STORAGE"
    return "NODE_UNSCHEDULABLE" if is_lifecycle_taint(key) else "TAINT_NOT_TOLERATED"


def is_lifecycle_taint(key: str) -> bool:
    """Whether it stands for the state of the node, which no pod should tolerate to get there."""
    known = LIFECYCLE_TAINTS | OPERATOR_TAINTS | NODE_NOTICE_TAINTS
    return key in known or STARTUP_TAINT.search(key) is not None


def _covers(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect covers every effect, a missing operator means Equal, and an empty key covers every key; unlike
    kube-scheduler's, not those of nodes that go."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key != taint.key and (toleration.key or taint.key in NODE_NOTICE_TAINTS):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    return _compares(toleration, taint)


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Lt covers taints whose number is below the toleration's, Gt those above; what is no number is not covered."""
    bound, number = parse_integer(toleration.value), parse_integer(taint.value)
    if bound is None or number is None:
        return False
    return number < bound if toleration.operator == "Lt" else number > bound


def parse_integer(text: str) -> int | None:
    """A 64-bit decimal integer as Kubernetes reads label and taint values; None for anything else."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def check_tolerations(tolerations: Sequence[Toleration], path: str) -> None:
    """Raises an `InputError` that names the toleration which Kubernetes would refuse."""
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        if toleration.operator:
            check_operator(toleration.operator, OPERATORS, where)
        if toleration.effect:
            _check_effect(toleration.effect, where)
        if not toleration.key and toleration.operator != "Exists":
            raise InputError(
                "a toleration without a key must have the operator Exists",
                path=f"{where}.operator",
                remedy="set operator: Exists to tolerate every taint, or name the key",
            )
        if toleration.operator == "Exists" and toleration.value:
            raise InputError("Exists takes no value", path=f"{where}.value", remedy="remove it, or use Equal")
        if toleration.operator in ("Lt", "Gt") and parse_integer(toleration.value) is None:
            raise InputError(
                f"{toleration.operator} compares integers, found {toleration.value!r}",
                path=f"{where}.value",
                remedy="write a whole number",
            )


def check_taints(taints: Sequence[Taint], path: str) -> None:
    for index, taint in enumerate(taints):
        if not taint.key:
            raise InputError("a taint needs a key", path=f"{path}[{index}].key", remedy="name the taint")
        _check_effect(taint.effect, f"{path}[{index}]")


def _check_effect(effect: str, where: str) -> None:
    if effect not in EFFECTS:
        raise InputError(
            f"unknown taint effect {effect!r}",
            path=f"{where}.effect",
            remedy=f"use one of {', '.join(EFFECTS)}",
        )
