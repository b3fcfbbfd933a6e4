"""Topology requests (how close together pods must be) from Kueue's annotations.

Called by `cluster.workloads` for pods, Jobs and training kinds; `model.kueue.workloads` reads the `topologyRequest`
of a Workload. `placement.topology` searches with the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.kueue import (
    POD_SET_GROUP_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_CONSTRAINTS_ANNOTATION,
    SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_SIZE_ANNOTATION,
    TOPOLOGY_PREFIX,
    UNCONSTRAINED_TOPOLOGY_ANNOTATION,
)
from windlass.model.workload import TopologyRequest

MAX_LAYERS = 3
MAX_PODS = 10**7
"""A larger number of pods is a typing error."""


def topology_request_from_annotations(annotations: Mapping[str, str]) -> TopologyRequest | None:
    """The request of a pod's or pod template's annotations; None if there is none."""
    if not any(name.startswith(TOPOLOGY_PREFIX) for name in annotations):
        return None
    where = "metadata.annotations"
    slice_size = annotations.get(SLICE_SIZE_ANNOTATION, "")
    if slice_size and not (slice_size.isascii() and slice_size.isdigit() and len(slice_size) < 9):
        raise InputError(
            f"{slice_size[:64]!r} is not a number of pods",
            path=f"{where}.{SLICE_SIZE_ANNOTATION}",
            remedy='use "8"',
        )
    return topology_request(
        required=annotations.get(REQUIRED_TOPOLOGY_ANNOTATION, ""),
        preferred=annotations.get(PREFERRED_TOPOLOGY_ANNOTATION, ""),
        unconstrained=annotations.get(UNCONSTRAINED_TOPOLOGY_ANNOTATION, "") == "true",
        layers=_layers(annotations)
        or slice_layers(annotations.get(SLICE_REQUIRED_TOPOLOGY_ANNOTATION, ""), int(slice_size or 0), where),
        group=annotations.get(POD_SET_GROUP_ANNOTATION, ""),
        path=where,
    )


def slice_layers(level: str, size: int, path: str) -> tuple[tuple[str, int], ...]:
    """The single layer of slices for a level and a size; without a level there are no slices."""
    if not level:
        return ()
    if not 1 <= size <= MAX_PODS:
        raise InputError(
            f"slices within {level} need a size",
            path=path,
            remedy="set podset-slice-size (podSetSliceSize) to 1 or more",
        )
    return ((level, size),)


def topology_request(
    *,
    required: str,
    preferred: str,
    unconstrained: bool,
    layers: tuple[tuple[str, int], ...],
    group: str,
    path: str,
) -> TopologyRequest | None:
    """A checked request; with slices alone the pod set itself is unconstrained."""
    if sum((bool(required), bool(preferred), unconstrained)) > 1:
        raise InputError(
            "a pod set asks for one of required, preferred and unconstrained topology",
            path=path,
            remedy="keep one of them",
        )
    _check_layers(layers, path)
    if not (required or preferred or unconstrained or layers):
        return None
    mode = "required" if required else "preferred" if preferred else "unconstrained"
    outer = layers[0] if layers else ("", 0)
    return TopologyRequest(
        mode=mode,
        level=required or preferred,
        slice_level=outer[0],
        slice_size=outer[1],
        inner_slices=layers[1:],
        group=group,
    )


def _check_layers(layers: tuple[tuple[str, int], ...], path: str) -> None:
    if len(layers) > MAX_LAYERS:
        raise InputError(f"{len(layers)} layers of slices", path=path, remedy=f"use at most {MAX_LAYERS}")
    for level, size in layers:
        if not level or not 1 <= size <= MAX_PODS:
            raise InputError(
                f"a slice of {size} pods within {level or 'no level'}",
                path=path,
                remedy="name a level, and 1 pod or more",
            )
    for (_, outer), (_, inner) in pairwise(layers):
        if outer % inner:
            raise InputError(
                f"slices of {outer} pods can't be cut into slices of {inner}",
                path=path,
                remedy="the size of an inner slice divides that of the outer one",
            )


def _layers(annotations: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """The layers from the annotation with a JSON list, widest first."""
    text = annotations.get(SLICE_CONSTRAINTS_ANNOTATION, "")
    if not text:
        return ()
    try:
        entries: list[dict[str, Any]] = msgspec.json.decode(text, type=list[dict[str, Any]])
        layers = tuple((entry["topology"], entry["size"]) for entry in entries)
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError):
        layers = ((None, None),)
    if not all(isinstance(level, str) and type(size) is int for level, size in layers):
        raise InputError(
            "is not a list of slices",
            path=f"metadata.annotations.{SLICE_CONSTRAINTS_ANNOTATION}",
            remedy='write [{"topology": "example.com/rack", "size": 8}]',
        )
    return layers
