"""Decodes the operator's kinds from JSON trees, with errors that name the field, and encodes them.

Called by `operator.cache` for watch events, `operator.dump_view` for dumps and the commands for manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.model.names.windlass import OPERATOR_API_VERSION
from windlass.model.unstructured import Unstructured
from windlass.operator.kinds.fleet_change import FleetChange, check_change
from windlass.operator.kinds.gpu_node import GPUNode
from windlass.operator.kinds.gpu_repair import GPURepair, check_repair
from windlass.operator.kinds.gpu_stack import GPUStack, check_stack

OperatorObject = GPUStack | GPUNode | FleetChange | GPURepair
STRUCTS: dict[str, type] = {
    "GPUStack": GPUStack,
    "GPUNode": GPUNode,
    "FleetChange": FleetChange,
    "GPURepair": GPURepair,
}
_CHECKS: dict[str, Callable[[Any], None]] = {
    "GPUStack": check_stack,
    "FleetChange": check_change,
    "GPURepair": check_repair,
}


def decode_operator_object(tree: Mapping[str, Any]) -> OperatorObject:
    """Raises an `InputError` with kind, name and the field's path."""
    kind = str(tree.get("kind"))
    name = str((tree.get("metadata") or {}).get("name", ""))
    try:
        if tree.get("apiVersion") != OPERATOR_API_VERSION:
            raise InputError(
                f"unknown version {tree.get('apiVersion')!r}", path="apiVersion", remedy=f"use {OPERATOR_API_VERSION}"
            )
        if kind not in STRUCTS:
            raise InputError(f"unknown kind {kind!r}", path="kind", remedy=f"use one of {', '.join(STRUCTS)}")
        body = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
        obj = convert(body, STRUCTS[kind])
        if kind in _CHECKS:
            _CHECKS[kind](obj)
    except InputError as error:
        raise error.with_context(object=f"{kind} {name}".strip(), code="INVALID_OBJECT") from None
    return obj  # type: ignore[return-value]  # one of STRUCTS


def encode_operator_object(obj: OperatorObject) -> Unstructured:
    tree: Unstructured = msgspec.to_builtins(obj)
    return {"apiVersion": OPERATOR_API_VERSION, "kind": type(obj).__name__, **tree}


def status_tree(status: msgspec.Struct) -> Unstructured:
    """As it is written. Values that are the default are left out, but for the phase, which others read."""
    tree: Unstructured = msgspec.to_builtins(status)
    phase = getattr(status, "phase", "")
    return {"phase": phase, **tree} if phase else tree
