"""The bill as FOCUS 1.2 rows (FinOps Open Cost and Usage Specification): a CSV that billing tools read.

One row per day, holder, model and use, so that no charge period crosses the end of a month. Unused capacity is a row of
its own without a sub-account, so that the rows add up to all GPUs. Called by `windlass usage -o focus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from windlass.model.times import format_timestamp
from windlass.telemetry.activity import HELD_IDLE, UNMEASURED
from windlass.telemetry.ledger import ALLOCATED_STATES
from windlass.telemetry.usage import MILLI_SECONDS_PER_HOUR, Usage, UsageKey, cost_of

COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
UNIT = "GPU-Hours"


def focus_rows(days: Iterable[Usage], currency: str, micro_prices: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """`days` each lie within one month. A model without a price costs 0, and its description says so."""
    for usage in days:
        for key, states in sorted(usage.sums.items()):
            for state, amount in sorted(states.items()):
                if amount:
                    yield _row(usage, key, state, amount, currency, micro_prices)


def _row(
    usage: Usage, key: UsageKey, state: str, milli_seconds: int, currency: str, micro_prices: Mapping[str, int]
) -> dict[str, str]:
    cost = cost_of(milli_seconds, key.model, micro_prices)
    amount = f"{cost or 0.0:.6f}"
    hours = f"{milli_seconds / MILLI_SECONDS_PER_HOUR:.6f}"
    month_start, month_end = _month(usage.start)
    tags = {"team": key.team, "queue": key.queue, "user": key.user, "state": state}
    row = dict.fromkeys(COLUMNS, "")
    row |= dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), amount)
    row |= {"BillingAccountId": "windlass", "BillingAccountName": "GPU cluster", "BillingCurrency": currency}
    row |= {"BillingPeriodStart": month_start, "BillingPeriodEnd": month_end}
    row |= {"ChargePeriodStart": format_timestamp(usage.start), "ChargePeriodEnd": format_timestamp(usage.end)}
    row |= {"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "PricingCategory": "Standard"}
    row |= {"ChargeDescription": _description(key, state, cost is None)}
    row |= {"ConsumedQuantity": hours, "ConsumedUnit": UNIT, "PricingQuantity": hours, "PricingUnit": UNIT}
    row |= dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), "Windlass")
    row |= {"ResourceId": key.job, "ResourceName": key.job, "ResourceType": "GPU"}
    row |= {"ServiceCategory": "Compute", "ServiceName": "GPU", "SkuId": key.model}
    row |= {"SubAccountId": key.team, "SubAccountName": key.team}
    row["Tags"] = msgspec.json.encode({name: value for name, value in tags.items() if value}).decode()
    return row


def _description(key: UsageKey, state: str, is_without_price: bool) -> str:
    words: dict[str, str] = {HELD_IDLE: "held and idle", UNMEASURED: "held, use not measured"}
    what = words.get(state, state.replace("_", " "))
    who = f" by {key.job}" if state in ALLOCATED_STATES else ""
    return f"{key.model} {what}{who}" + (" (the model has no price)" if is_without_price else "")


def _month(seconds: int) -> tuple[str, str]:
    """First moments of its month and of the next one."""
    year, month = map(int, format_timestamp(seconds)[:7].split("-"))
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return f"{year:04}-{month:02}-01T00:00:00Z", f"{following[0]:04}-{following[1]:02}-01T00:00:00Z"
