"""Finds the pool and number of a simulated node in a Fleet file, once at the agent's start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.dump.yaml_documents import read_documents
from windlass.model.errors import InputError
from windlass.model.fleet_spec import Fleet, FleetPool, check_fleet


def pool_of_node(path: Path, name: str) -> tuple[FleetPool, int]:
    """The pool and number of a node by name (`h100-0`); the first node with GPUs if no name matches."""
    fleet = _read_fleet(path)
    for pool in fleet.spec.pools:
        for number in range(pool.count):
            if name == f"{pool.name}-{number:0{len(str(pool.count - 1))}d}":
                return pool, number
    first = next((pool for pool in fleet.spec.pools if pool.gpus), None)
    if first is None:
        raise InputError("no pool of the fleet has GPUs", file=str(path), path="spec.pools")
    return first, 0


def _read_fleet(path: Path) -> Fleet:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", file=str(path)) from None
    for document in read_documents(text, str(path)):
        if isinstance(document.value, dict) and document.value.get("kind") == "Fleet":
            try:
                fleet = msgspec.convert(document.value, Fleet)
            except msgspec.ValidationError as error:
                raise InputError(str(error), file=str(path)) from None
            try:
                check_fleet(fleet)
            except InputError as error:
                raise error.with_context(file=str(path)) from None
            return fleet
    raise InputError("contains no Fleet", file=str(path), remedy="kind: Fleet, apiVersion: windlass.dev/v1")
