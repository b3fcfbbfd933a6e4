"""What GPUs cost: the part `usage` of the configuration, for `windlass usage`. Nothing is decided by it.

`model.configuration` has it in `SchedulerConfiguration` and reads it with `check_currency` and `micro_prices`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.gpu_models import find_gpu_model
from windlass.model.meta import KubeStruct
from windlass.model.pod import RawQuantity
from windlass.model.quantity import parse_quantity

MICRO = 1_000_000


class UsageSettings(KubeStruct, frozen=True, forbid_unknown_fields=True):
    """What GPUs cost, for `windlass usage`."""

    currency: str = "USD"
    """Three letters, as in ISO 4217."""
    gpu_hour_prices: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    """GPU model (`NVIDIA-H100-80GB-HBM3`, or short `H100`) → price of one GPU for an hour."""


def check_currency(code: str) -> str:
    if len(code) == 3 and code.isascii() and code.isalpha() and code.isupper():
        return code
    raise InputError(f"{code[:64]!r} is not a currency", path="usage.currency", remedy="write its code, such as EUR")


def micro_prices(prices: Mapping[str, RawQuantity]) -> dict[str, int]:
    """In millionths, by product name, so that a short name means the same."""
    found = {}
    for name, raw in prices.items():
        path = f"usage.gpuHourPrices.{name}"
        try:
            micro = parse_quantity(raw) * MICRO
        except InputError as error:
            raise error.with_context(path=path) from None
        if micro < 0:
            raise InputError(f"{raw!r} is negative", path=path, remedy="use 0 or more")
        known = find_gpu_model(name)
        found[known.product if known is not None else name] = round(micro)
    return found


def format_prices(prices: Mapping[str, int]) -> dict[str, RawQuantity]:
    """As a configuration has them."""
    return {model: f"{micro // MICRO}.{micro % MICRO:06}" for model, micro in prices.items()}
