"""The workload that is expected: classes of pods with their frequency.

Declared with the configuration or counted from what has been seen so far; the fragmentation scorers measure a node by
what of it this mix could use. Classes are FGD's: CPU, milli-GPU, GPU count and allowed models, memory left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from windlass.cluster.node_state import MODEL, Ints, NodeState
from windlass.cluster.node_state_builder import MAX_MODELS, GpuModelCodes
from windlass.cluster.shape import Shape
from windlass.placement.device_pricing import DEVICE_MILLI, device_values
from windlass.placement.kernel_arrays import MixArrays
from windlass.placement.kernels.windlass_scorer import PRICE_SCALE

COVERED_PERCENT = 95.0
"""Rare classes are left out once this many percent of the pods are covered, as FGD does."""


class MixClass(msgspec.Struct, frozen=True, order=True):
    """Ordered as FGD sorts them: by count, then by the larger request."""

    count: int
    cpu: int
    milli: int
    gpus: int
    models: str


class WorkloadMix(msgspec.Struct, frozen=True):
    """The classes, most frequent first; `classes` without the rare ones, `pods` and `all_classes` with them."""

    classes: tuple[MixClass, ...] = ()
    pods: int = 0
    all_classes: tuple[MixClass, ...] = ()
    disabled_terms: tuple[str, ...] = ()
    """Terms of the `windlass` policy to leave out (`TERMS`): how a benchmark finds out what each of them brings."""


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
        if covered >= COVERED_PERCENT * everything / 100.0:
            break
        covered += each.count
        kept.append(each)
    return WorkloadMix(tuple(kept), everything, tuple(ordered))


def _class_key(shape: Shape) -> tuple[int, int, int, str]:
    cpu = dict(shape.requests).get("cpu", 0)
    gpu = shape.gpu
    if gpu is None or gpu.profile or gpu.memory_mib:
        return cpu, 0, 0, ""
    return cpu, gpu.milli, gpu.count, "|".join(gpu.models)


WHOLE_DEVICE_PREMIUM_DIVISOR = 10
"""A whole idle device is worth a tenth of a device more than its filling: breaking it open must save that much. It
costs a little where nothing ever leaves, and keeps whole GPUs together where pods come and go."""

MODEL_PREMIUM = 250
"""Thousandths of a GPU that the model premium reaches where a model is fully contended."""


SCORE_TERMS = ("usable", "price", "whole", "stranded", "models")
"""Of a node's worth: what classes could use, device prices, the premium on whole idle devices (a part of the price),
GPU without CPU, and the premium on contended models."""


def mix_arrays(mix: WorkloadMix, models: GpuModelCodes, state: NodeState) -> MixArrays:
    """The kernels' form of the mix, on this park."""
    arrays = _whole_mix_arrays(mix, models, state)
    for term in mix.disabled_terms:
        arrays = _without(arrays, term)
    return arrays


def _without(mix: MixArrays, term: str) -> MixArrays:
    match term:
        case "usable":
            return mix._replace(weight=np.zeros_like(mix.weight))
        case "price":
            return mix._replace(
                price=np.arange(DEVICE_MILLI + 1, dtype=np.int64) * PRICE_SCALE // DEVICE_MILLI
            )
        case "whole":
            price = mix.price.copy()
            price[DEVICE_MILLI] -= PRICE_SCALE // WHOLE_DEVICE_PREMIUM_DIVISOR
            return mix._replace(price=price)
        case "stranded":
            # CPU for any number of GPUs, as long as there is any at all.
            return mix._replace(totals=_ints([int(mix.totals[0]), 1, 2**31]))
        case "models":
            return mix._replace(scarce=np.zeros_like(mix.scarce))
    raise ValueError(f"the windlass policy has no term {term!r}")


def _whole_mix_arrays(mix: WorkloadMix, models: GpuModelCodes, state: NodeState) -> MixArrays:
    classes = mix.classes
    kept = sum(each.count for each in classes)
    # Two divisions, not one: FGD's shares are defined so, and its ties hang on the last bit.
    shares = [each.count / mix.pods for each in classes]
    if kept < mix.pods:
        shares = [share / (kept / mix.pods) for share in shares]
    masks = [_mask(each, models) for each in classes]
    demand: dict[int, int] = {}
    for each in classes:
        if each.gpus:
            demand[each.milli] = demand.get(each.milli, 0) + each.count * each.gpus
    gpu = [each for each in classes if each.gpus]
    totals = (
        sum(each.count for each in gpu),
        sum(each.count * each.cpu for each in gpu),
        sum(each.count * each.gpus * each.milli for each in gpu),
    )
    return MixArrays(
        cpu=_ints([each.cpu for each in classes]),
        gpus=_ints([each.gpus for each in classes]),
        milli=_ints([each.milli for each in classes]),
        models=_ints(masks),
        weight=_ints([each.count for each in classes]),
        share=np.array(shares, dtype=np.float64),
        totals=np.maximum(_ints(list(totals)), 1),
        price=_prices(demand),
        scarce=_scarcity(mix.all_classes, models, state),
    )


def _prices(demand: dict[int, int]) -> Ints:
    """By free milli-GPU of a device: its price, with the premium on one that nobody has broken open."""
    price = _ints(list(device_values(tuple(sorted(demand.items())) or ((DEVICE_MILLI, 1),), PRICE_SCALE)))
    price[DEVICE_MILLI] += PRICE_SCALE // WHOLE_DEVICE_PREMIUM_DIVISOR
    return price


def _mask(each: MixClass, models: GpuModelCodes) -> int:
    return models.mask(each.models.split("|") if each.models else ())


def _scarcity(classes: tuple[MixClass, ...], models: GpuModelCodes, state: NodeState) -> Ints:
    """How contended each model is: its part of the constrained demand against its part of the park, at most 1."""
    park = np.bincount(state.device_info[:, MODEL], minlength=MAX_MODELS).tolist()
    present = [code for code, gpus in enumerate(park) if gpus]
    demand = [0] * MAX_MODELS
    total = 0
    for each in classes:
        mask = _mask(each, models)
        asked = each.count * each.gpus * each.milli
        total += asked
        allowed = [code for code in present if mask >> code & 1]
        if not asked or not allowed or len(allowed) == len(present):
            continue
        room = sum(park[code] for code in allowed)
        for code in allowed:
            demand[code] += asked * park[code] * 1000 // room
    premium = np.zeros(MAX_MODELS, dtype=np.int64)
    for code in present:
        if total:
            premium[code] = (
                min(1000, demand[code] * sum(park) // (total * park[code])) * MODEL_PREMIUM // 1000
            )
    return premium


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
