"""GPU time by state over a range of time, and the bill that follows from it.

    ledgers over time ─► Usage (milli-GPU-seconds by holder, model and state) ─► rows by team, queue, user, job or model

`usage_history`, `usage_objects` and `prometheus_usage` make a `Usage`; `windlass usage` prints the rows. Everything
adds up: allocated = busy + idle + unmeasured, and capacity = allocated + free + stranded + reserved + in change +
unhealthy. A job pays for the GPUs that it holds, whatever it does with them; work that evictions lost is a line of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.gpu_models import find_gpu_model
from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import ALLOCATED_STATES, NOBODY, STATES, Ledger, SumsBy

MILLI_SECONDS_PER_HOUR = 3_600_000


class UsageKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """`team` and the rest are empty for GPUs that nobody holds."""

    team: str = ""
    queue: str = ""
    user: str = ""
    job: str = ""
    model: str = ""

    @staticmethod
    def of(holder: Holder | None, model: str) -> UsageKey:
        if holder is None:
            return UsageKey(model=model)
        return UsageKey(holder.team, holder.queue, holder.user, holder.job, model)

    def name(self, by: SumsBy) -> str:
        return self.model if by == "model" else str(getattr(self, by)) or NOBODY


StateSums = dict[str, int]
"""State → milli-GPU-seconds."""


class Usage(msgspec.Struct):
    """From `start` to `end`, of which `covered_seconds` were measured or recorded at all."""

    start: int
    end: int
    covered_seconds: int = 0
    sums: dict[UsageKey, StateSums] = {}
    lost_gpu_seconds: dict[UsageKey, int] = {}
    """GPU-seconds of work that evictions lost; the key has no model."""
    notes: list[str] = []
    """What the numbers don't contain, and why."""

    def add(self, key: UsageKey, state: str, milli_seconds: int) -> None:
        states = self.sums.setdefault(key, {})
        states[state] = states.get(state, 0) + milli_seconds

    def add_ledger(self, ledger: Ledger, seconds: int) -> None:
        """The ledger's states, as they were for so many seconds."""
        self.covered_seconds += seconds
        for share in ledger.shares:
            self.add(UsageKey.of(share.holder, share.model), share.state, share.milli * seconds)

    def add_lost(self, key: UsageKey, gpu_seconds: int) -> None:
        key = msgspec.structs.replace(key, model="")
        self.lost_gpu_seconds[key] = self.lost_gpu_seconds.get(key, 0) + gpu_seconds

    def merge(self, other: Usage) -> None:
        self.covered_seconds += other.covered_seconds
        for key, states in other.sums.items():
            for state, amount in states.items():
                self.add(key, state, amount)
        for key, seconds in other.lost_gpu_seconds.items():
            self.add_lost(key, seconds)
        self.notes += [note for note in other.notes if note not in self.notes]

    @property
    def by_state(self) -> StateSums:
        found = dict.fromkeys(STATES, 0)
        for states in self.sums.values():
            for state, amount in states.items():
                found[state] += amount
        return found


class UsageRow(msgspec.Struct, frozen=True):
    """Hours are GPU-hours; costs are None where a model has no price."""

    name: str
    allocated_hours: float
    computing_hours: float
    spinning_hours: float
    idle_hours: float
    unmeasured_hours: float
    lost_hours: float = 0.0
    cost: float | None = None
    idle_cost: float | None = None

    @property
    def busy_hours(self) -> float:
        return self.computing_hours + self.spinning_hours

    @property
    def busy_share(self) -> float | None:
        """Of the hours that were measured; None where none was."""
        measured = self.busy_hours + self.idle_hours
        return self.busy_hours / measured if measured else None


def usage_rows(usage: Usage, by: SumsBy, micro_prices: Mapping[str, int]) -> list[UsageRow]:
    """One row per team, queue, user, job or model that held GPUs, the largest first."""
    groups: dict[str, list[tuple[UsageKey, StateSums]]] = {}
    for key, states in usage.sums.items():
        held = {state: amount for state, amount in states.items() if state in ALLOCATED_STATES}
        if any(held.values()):
            groups.setdefault(key.name(by), []).append((key, held))
    lost: dict[str, int] = {}
    if by != "model":
        for key, seconds in usage.lost_gpu_seconds.items():
            lost[key.name(by)] = lost.get(key.name(by), 0) + seconds
    rows = [_row(name, entries, lost.pop(name, 0), micro_prices) for name, entries in groups.items()]
    rows += [_row(name, [], seconds, micro_prices) for name, seconds in lost.items() if seconds]
    return sorted(rows, key=lambda row: (-row.allocated_hours, row.name))


def unused_hours(usage: Usage) -> dict[str, float]:
    """State → GPU-hours that nobody held, or that nobody is charged for."""
    found = usage.by_state
    return {state: found[state] / MILLI_SECONDS_PER_HOUR for state in STATES if state not in ALLOCATED_STATES}


def total_row(usage: Usage, micro_prices: Mapping[str, int]) -> UsageRow:
    entries = [
        (key, {state: amount for state, amount in states.items() if state in ALLOCATED_STATES})
        for key, states in usage.sums.items()
    ]
    return _row("total", entries, sum(usage.lost_gpu_seconds.values()), micro_prices)


def price_of(model: str, micro_prices: Mapping[str, int]) -> int | None:
    """Millionths of the currency for an hour; None where the model has no price."""
    known = find_gpu_model(model)
    return micro_prices.get(known.product if known is not None else model)


def cost_of(milli_seconds: int, model: str, micro_prices: Mapping[str, int]) -> float | None:
    price = price_of(model, micro_prices)
    return None if price is None else milli_seconds * price / MILLI_SECONDS_PER_HOUR / 1_000_000


def _row(
    name: str, entries: Iterable[tuple[UsageKey, StateSums]], lost_gpu_seconds: int, micro_prices: Mapping[str, int]
) -> UsageRow:
    sums, cost, idle_cost = dict.fromkeys(ALLOCATED_STATES, 0), 0.0, 0.0
    is_priced = bool(micro_prices)
    for key, states in entries:
        for state, amount in states.items():
            sums[state] += amount
        price = cost_of(sum(states.values()), key.model, micro_prices)
        is_priced = is_priced and (price is not None or not any(states.values()))
        cost += price or 0.0
        idle_cost += cost_of(states.get(HELD_IDLE, 0), key.model, micro_prices) or 0.0
    hours = {state: amount / MILLI_SECONDS_PER_HOUR for state, amount in sums.items()}
    return UsageRow(
        name,
        sum(sums.values()) / MILLI_SECONDS_PER_HOUR,
        hours[COMPUTING],
        hours[SPINNING],
        hours[HELD_IDLE],
        hours[UNMEASURED],
        lost_gpu_seconds / 3600,
        cost if is_priced else None,
        idle_cost if is_priced else None,
    )
