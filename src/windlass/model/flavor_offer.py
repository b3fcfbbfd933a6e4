"""What a flavor costs and how often its nodes are taken away, from annotations of the ResourceFlavor.

    windlass.dev/gpu-hour-price: "1.20"            of one GPU for an hour, in any currency
    windlass.dev/interruptions-per-day: "0.5"      of one node; absent: it is not taken away
    windlass.dev/interruption-notice: 2m           how long before that is announced

`model.kueue.queues` reads it, `queueing.flavor_costs` compares flavors by it. A value that can't be read counts as
absent, and `model.annotation_checks` says so: a typing error must not stop a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.windlass import (
    GPU_HOUR_PRICE_ANNOTATION,
    INTERRUPTION_NOTICE_ANNOTATION,
    INTERRUPTIONS_ANNOTATION,
)
from windlass.model.quantity import parse_quantity
from windlass.model.times import parse_duration

MICRO = 1_000_000


class FlavorOffer(msgspec.Struct, frozen=True):
    micro_price: int
    """Of a GPU for an hour, in millionths."""
    micro_interruptions: int = 0
    """Of a node in a day, in millionths."""
    notice_seconds: int = 0


def read_offer(annotations: Mapping[str, str]) -> FlavorOffer | None:
    """None where no price is given."""
    price = micro_amount(annotations.get(GPU_HOUR_PRICE_ANNOTATION, ""))
    if price is None:
        return None
    interruptions = micro_amount(annotations.get(INTERRUPTIONS_ANNOTATION, "")) or 0
    return FlavorOffer(price, interruptions, _seconds(annotations.get(INTERRUPTION_NOTICE_ANNOTATION, "")))


def micro_amount(text: str) -> int | None:
    """In millionths; None where it can't be read or is negative."""
    try:
        amount: Fraction = parse_quantity(text) if text else Fraction(-1)
    except InputError:
        return None
    return round(amount * MICRO) if amount >= 0 else None


def _seconds(text: str) -> int:
    try:
        return parse_duration(text) if text else 0
    except InputError:
        return 0
