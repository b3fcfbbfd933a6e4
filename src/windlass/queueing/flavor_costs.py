"""In which order flavors are tried where a queue asks for the cheapest: by what an hour of useful work will cost.

`flavor_assigner` calls `by_expected_cost` for queues with `windlass.dev/flavor-order: expected-cost`, and
`placement.decisions` says what the chosen flavor costs (`cost_note`). Expected is the price, and for every interruption
the work that is done again and the time until it runs again: half of what lies between two checkpoints, or nothing but
the checkpoint where the work is asked and answers within the notice. A gang is interrupted with any of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from windlass.model.flavor_offer import MICRO, FlavorOffer
from windlass.model.leaving import DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue import FlavorQuotas, ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig

DAY = 86_400
GPUS_OF_A_NODE = 8_000
"""Milli-GPU of the largest usual nodes."""
SERIES = (Fraction(1), Fraction(1, 2), Fraction(1, 6), Fraction(1, 24))
"""Of (exp(x) - 1) / x, which is the time that a stretch of work takes with interruptions, in terms of its length."""


class Risk(msgspec.Struct, frozen=True):
    """What an interruption costs the work."""

    nodes: int
    segment_seconds: int
    """Of work that is done again as a whole: from one checkpoint to the next, or all of it."""
    restart_seconds: int
    grace_seconds: int = 0
    """How long it takes to write a checkpoint when it is asked; 0: it is not asked."""


def risk_of(workload: Workload, config: QueueConfig) -> Risk:
    restart = config.seconds_lost(0, workload.restart_seconds)
    segment = workload.checkpoint_seconds or workload.max_run_seconds or config.lost_seconds_cap
    terms = workload.ask_terms
    grace = terms.seconds(DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS) if terms is not None else 0
    return Risk(_nodes_of(workload), min(segment, config.lost_seconds_cap), restart, grace)


def expected_micro_price(offer: FlavorOffer, risk: Risk) -> int:
    """Of an hour of useful work on one GPU, in millionths."""
    rate = Fraction(offer.micro_interruptions * risk.nodes, MICRO * DAY)  # per second
    if risk.grace_seconds and risk.grace_seconds <= offer.notice_seconds:
        factor = 1 + rate * (risk.grace_seconds + risk.restart_seconds)
    else:
        x = rate * risk.segment_seconds
        factor = sum((term * x**power for power, term in enumerate(SERIES)), Fraction(0)) + rate * risk.restart_seconds
    return round(offer.micro_price * factor)


def by_expected_cost(
    quotas: Sequence[FlavorQuotas], flavors: Mapping[str, ResourceFlavor], risk: Risk
) -> tuple[FlavorQuotas, ...]:
    """The cheapest first; those without a price last, in the queue's order."""

    def cost(quota: FlavorQuotas) -> tuple[bool, int]:
        offer = _offer(flavors, quota.flavor)
        return offer is None, expected_micro_price(offer, risk) if offer is not None else 0

    return tuple(sorted(quotas, key=cost))


def cost_note(used: Iterable[str], others: Iterable[str], flavors: Mapping[str, ResourceFlavor], risk: Risk) -> str:
    """What an hour of useful work costs on the flavors that were chosen, and on the others of their queue."""
    chosen = [text for name in dict.fromkeys(used) if (text := _priced(name, flavors, risk))]
    left = [text for name in dict.fromkeys(others) if (text := _priced(name, flavors, risk))]
    if not chosen:
        return ""
    beside = f"; {', '.join(left)}" if left else ""
    return f"expected price of a GPU-hour of useful work: {', '.join(chosen)}{beside}"


def _priced(name: str, flavors: Mapping[str, ResourceFlavor], risk: Risk) -> str:
    offer = _offer(flavors, name)
    if offer is None:
        return ""
    expected = _money(expected_micro_price(offer, risk))
    listed = _money(offer.micro_price)
    return f"{name} {expected}" + (f" ({listed} without interruptions)" if listed != expected else "")


def _offer(flavors: Mapping[str, ResourceFlavor], name: str) -> FlavorOffer | None:
    return flavors[name].offer if name in flavors else None


def _nodes_of(workload: Workload) -> int:
    """As few nodes as its pods could be on."""
    gpus = sum(pod_set.count * quota_requests(pod_set.template).get(GPU_RESOURCE, 0) for pod_set in workload.pod_sets)
    return max(1, -(-gpus // GPUS_OF_A_NODE))


def _money(micro: int) -> str:
    return f"{micro // MICRO}.{micro % MICRO // 10_000:02}"
