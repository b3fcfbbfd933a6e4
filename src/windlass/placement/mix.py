"""The workload that is expected: classes of pods with their frequency.

Declared with the configuration or counted from what has been seen so far; the fragmentation scorers measure a node by
what of it this mix could use. Classes are FGD's: CPU, milli-GPU, GPU count and allowed models, memory left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from windlass.cluster.columns import ModelBook
from windlass.cluster.shape import Shape
from windlass.cluster.state import Ints
from windlass.placement.arrays import Mix

COVERED = 95.0
"""Rare classes are left out once this many percent of the pods are covered, as FGD does."""


class MixClass(msgspec.Struct, frozen=True, order=True):
    """Ordered as FGD sorts them: by count, then by the larger request."""

    count: int
    cpu: int
    milli: int
    gpus: int
    models: str


class WorkloadMix(msgspec.Struct, frozen=True):
    """The kept classes, most frequent first, and how many pods there were before rare ones were left out."""

    classes: tuple[MixClass, ...] = ()
    pods: int = 0


def mix_of(counted: Iterable[tuple[Shape, int]]) -> WorkloadMix:
    """The classes that these shapes fall into, most frequent first, rare ones left out."""
    totals: dict[tuple[int, int, int, str], int] = {}
    for shape, count in counted:
        key = _class_key(shape)
        totals[key] = totals.get(key, 0) + count
    everything = sum(totals.values())
    ordered = sorted((MixClass(count, *key) for key, count in totals.items() if count > 0), reverse=True)
    kept, covered = [], 0
    for each in ordered:
        if covered >= COVERED * everything / 100.0:
            break
        covered += each.count
        kept.append(each)
    return WorkloadMix(tuple(kept), everything)


def _class_key(shape: Shape) -> tuple[int, int, int, str]:
    cpu = dict(shape.requests).get("cpu", 0)
    gpu = shape.gpu
    if gpu is None or gpu.profile or gpu.memory_mib:
        return cpu, 0, 0, ""
    return cpu, gpu.milli, gpu.count, "|".join(gpu.models)


def mix_arrays(mix: WorkloadMix, models: ModelBook) -> Mix:
    """The kernels' form of the mix."""
    classes = mix.classes
    kept = sum(each.count for each in classes)
    # Two divisions, not one: FGD's shares are defined so, and its ties hang on the last bit.
    shares = [each.count / mix.pods for each in classes]
    if kept < mix.pods:
        shares = [share / (kept / mix.pods) for share in shares]
    return Mix(
        cpu=_ints([each.cpu for each in classes]),
        gpus=_ints([each.gpus for each in classes]),
        milli=_ints([each.milli for each in classes]),
        models=_ints([models.mask(each.models.split("|") if each.models else ()) for each in classes]),
        weight=_ints([each.count for each in classes]),
        share=np.array(shares, dtype=np.float64),
    )


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
