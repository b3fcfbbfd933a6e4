"""The expected workload: classes of pods with their frequency.

`engine` takes it from the configuration or counts the pods seen so far; the scorers `windlass` and `fgd` value a node
by what this mix could use of it. Classes are FGD's: CPU, milli-GPU, GPU count and allowed models, without memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from windlass.cluster.node_state import MODEL, Ints, NodeState
from windlass.cluster.node_state_builder import MAX_MODELS, GpuModelCodes
from windlass.cluster.shape import Shape, mix_class
from windlass.placement.device_pricing import DEVICE_MILLI, device_values
from windlass.placement.kernel_arrays import MixArrays
from windlass.placement.kernels.windlass_scorer import PRICE_SCALE

COVERED_PERCENT = 95.0
"""Rare classes are left out once this many percent of the pods are covered, as in FGD."""


class MixClass(msgspec.Struct, frozen=True, order=True):
    """The fields are in FGD's sort order: by count, then by the larger request."""

    count: int
    cpu: int
    milli: int
    gpus: int
    models: str


class WorkloadMix(msgspec.Struct, frozen=True):
    classes: tuple[MixClass, ...] = ()
    """Most frequent first, without the rare ones."""
    pods: int = 0
    """Of all classes."""
    all_classes: tuple[MixClass, ...] = ()
    disabled_terms: tuple[str, ...] = ()
    """Terms of the `windlass` policy to leave out (SCORE_TERMS): benchmarks measure the effect of each."""


def mix_of(counted: Iterable[tuple[Shape, int]]) -> WorkloadMix:
    """The mix of these shapes with their numbers of pods."""
    totals: dict[tuple[int, int, int, str], int] = {}
    for shape, count in counted:
        key = mix_class(shape)
        totals[key] = totals.get(key, 0) + count
    pods = sum(totals.values())
    ordered = sorted((MixClass(count, *key) for key, count in totals.items() if count > 0), reverse=True)
    kept, covered = [], 0
    for pod_class in ordered:
        if covered >= COVERED_PERCENT * pods / 100.0:
            break
        covered += pod_class.count
        kept.append(pod_class)
    return WorkloadMix(tuple(kept), pods, tuple(ordered))


WHOLE_DEVICE_PREMIUM_DIVISOR = 10
"""A whole idle device is worth a tenth of a device more than its best filling: a share goes to one only if that saves
as much. This costs a little where pods never end, and keeps whole GPUs free where they do."""

MODEL_PREMIUM = 250
"""The premium on a fully contended model, in thousandths of a GPU."""

SCORE_TERMS = ("usable", "price", "whole", "stranded", "models")
"""The terms of a node's worth: GPU usable by classes, device prices, the premium on whole idle devices (part of the
price), GPU without CPU, and the premium on contended models."""


def mix_arrays(mix: WorkloadMix, models: GpuModelCodes, state: NodeState) -> MixArrays:
    """The mix as arrays for the kernels, with prices and premiums for these nodes."""
    arrays = _all_terms(mix, models, state)
    for term in mix.disabled_terms:
        arrays = _without_term(arrays, term)
    return arrays


def _without_term(mix: MixArrays, term: str) -> MixArrays:
    match term:
        case "usable":
            return mix._replace(weight=np.zeros_like(mix.weight))
        case "price":
            return mix._replace(price=np.arange(DEVICE_MILLI + 1, dtype=np.int64) * PRICE_SCALE // DEVICE_MILLI)
        case "whole":
            price = mix.price.copy()
            price[DEVICE_MILLI] -= PRICE_SCALE // WHOLE_DEVICE_PREMIUM_DIVISOR
            return mix._replace(price=price)
        case "stranded":
            # Any free CPU then suffices for all GPUs.
            return mix._replace(totals=_ints([int(mix.totals[0]), 1, 2**31]))
        case "models":
            return mix._replace(scarce=np.zeros_like(mix.scarce))
    raise ValueError(f"the windlass policy has no term {term!r}")


def _all_terms(mix: WorkloadMix, models: GpuModelCodes, state: NodeState) -> MixArrays:
    classes = mix.classes
    kept = sum(pod_class.count for pod_class in classes)
    # Two divisions as in FGD's code: its ties depend on the last bit.
    shares = [pod_class.count / mix.pods for pod_class in classes]
    if kept < mix.pods:
        shares = [share / (kept / mix.pods) for share in shares]
    masks = [_model_mask(pod_class, models) for pod_class in classes]
    demand: dict[int, int] = {}
    for pod_class in classes:
        if pod_class.gpus:
            demand[pod_class.milli] = demand.get(pod_class.milli, 0) + pod_class.count * pod_class.gpus
    gpu = [pod_class for pod_class in classes if pod_class.gpus]
    totals = (
        sum(pod_class.count for pod_class in gpu),
        sum(pod_class.count * pod_class.cpu for pod_class in gpu),
        sum(pod_class.count * pod_class.gpus * pod_class.milli for pod_class in gpu),
    )
    return MixArrays(
        cpu=_ints([pod_class.cpu for pod_class in classes]),
        gpus=_ints([pod_class.gpus for pod_class in classes]),
        milli=_ints([pod_class.milli for pod_class in classes]),
        models=_ints(masks),
        weight=_ints([pod_class.count for pod_class in classes]),
        share=np.array(shares, dtype=np.float64),
        # At least 1: the scorer divides by them.
        totals=np.maximum(_ints(list(totals)), 1),
        price=_prices(demand),
        scarce=_scarcity(mix.all_classes, models, state),
    )


def _prices(demand: dict[int, int]) -> Ints:
    """By free milli-GPU of a device: its price, with the premium on a whole idle one."""
    price = _ints(list(device_values(tuple(sorted(demand.items())) or ((DEVICE_MILLI, 1),), PRICE_SCALE)))
    price[DEVICE_MILLI] += PRICE_SCALE // WHOLE_DEVICE_PREMIUM_DIVISOR
    return price


def _model_mask(pod_class: MixClass, models: GpuModelCodes) -> int:
    return models.mask(pod_class.models.split("|") if pod_class.models else ())


def _scarcity(classes: tuple[MixClass, ...], models: GpuModelCodes, state: NodeState) -> Ints:
    """The premium by model: its part of the demand with model constraints over its part of all GPUs, at most 1, times
    MODEL_PREMIUM."""
    gpus_by_model = np.bincount(state.device_info[:, MODEL], minlength=MAX_MODELS).tolist()
    present = [code for code, gpus in enumerate(gpus_by_model) if gpus]
    demand = [0] * MAX_MODELS
    total = 0
    for pod_class in classes:
        mask = _model_mask(pod_class, models)
        asked = pod_class.count * pod_class.gpus * pod_class.milli
        total += asked
        allowed = [code for code in present if mask >> code & 1]
        if not asked or not allowed or len(allowed) == len(present):
            continue
        # Split over the allowed models by their numbers; a class that allows every model constrains none.
        gpus = sum(gpus_by_model[code] for code in allowed)
        for code in allowed:
            demand[code] += asked * gpus_by_model[code] * 1000 // gpus
    premium = np.zeros(MAX_MODELS, dtype=np.int64)
    for code in present:
        if total:
            premium[code] = (
                min(1000, demand[code] * sum(gpus_by_model) // (total * gpus_by_model[code])) * MODEL_PREMIUM // 1000
            )
    return premium


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
