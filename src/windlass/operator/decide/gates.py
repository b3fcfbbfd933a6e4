"""Judges a wave: changed nodes beside control nodes at the same time. No data never passes.

Called by `decide.change` while a wave bakes. A verdict says what was compared and the smallest effect that so many
nodes could show; a limit below that is inconclusive, which is not passed either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from windlass.operator.kinds.fleet_change import FAULT_GATE, Gate
from windlass.operator.observed import GateReading

DETECTION = 2.49
"""Standard errors: an effect so large is found four times of five, at a false alarm of one in twenty, one-sided."""
RULE_OF_THREE = 3.0
"""Events: where none was seen, the mean is below this in 19 of 20 cases."""
MAX_AGE_SECONDS = 120
"""An answer that is older says nothing about now."""


class Verdict(msgspec.Struct, frozen=True):
    gate: str
    verdict: str
    message: str


class Compared(msgspec.Struct, frozen=True):
    """Two sets of nodes during the same time."""

    changed: tuple[str, ...]
    control: tuple[str, ...]
    hours: float
    control_word: str = "control"


def judge_faults(
    compared: Compared,
    faults: Mapping[str, Sequence[str]],
    silent: Sequence[str],
    allowed: int,
    rate: float | None = None,
) -> Verdict:
    """Faults by node, on changed and control nodes. `silent`: changed nodes whose state is not known. `rate`: faults
    per node and hour that so many node hours must be able to show."""
    ill = [node for node in compared.changed if faults.get(node)]
    ill_control = [node for node in compared.control if faults.get(node)]
    counts = (
        f"{len(ill)} of {len(compared.changed)} changed, {len(ill_control)} of {len(compared.control)} control nodes"
    )
    if len(ill) > allowed:
        names = sorted({fault for node in ill for fault in faults[node]})
        share = len(ill) / len(compared.changed)
        if compared.control and len(ill_control) / len(compared.control) >= share:
            return Verdict(FAULT_GATE, "Inconclusive", f"{', '.join(names)} on {counts}: the change is not the cause")
        return Verdict(FAULT_GATE, "Fail", f"{', '.join(names)} on {counts}")
    if silent:
        return Verdict(FAULT_GATE, "NoData", f"no health data of {_names(silent)}")
    if not compared.changed:
        return Verdict(FAULT_GATE, "NoData", "no node has been changed")
    node_hours = len(compared.changed) * compared.hours
    effect = RULE_OF_THREE / node_hours if node_hours else math.inf
    smallest = f"; {effect:.2g} faults per node and hour would show" if node_hours else ""
    if rate is not None and effect > rate:
        return Verdict(FAULT_GATE, "Inconclusive", f"faults on {counts}{smallest}, and faultRate is {rate:g}")
    return Verdict(FAULT_GATE, "Pass", f"faults on {counts}{smallest}")


def judge(gate: Gate, reading: GateReading | None, compared: Compared, now: int) -> Verdict:
    """One query's answer."""
    limits = ((gate.max_ratio, 1), (gate.min_ratio, -1))
    ratios = [(limit, sign) for limit, sign in limits if limit is not None]
    problem = _no_data(reading, compared, now, needs_control=bool(ratios))
    if problem or reading is None:
        return Verdict(gate.name, "NoData", problem)
    changed = [reading.values[node] for node in compared.changed]
    mean = sum(changed) / len(changed)
    for limit, sign, word in ((gate.max, 1, "above"), (gate.min, -1, "below")):
        if limit is not None and sign * (mean - limit) > 0:
            return Verdict(gate.name, "Fail", f"{mean:.4g} on {len(changed)} changed nodes is {word} {limit:g}")
    close = _too_close(gate, changed)
    if close:
        return Verdict(gate.name, "Inconclusive", close)
    if not ratios:
        return Verdict(gate.name, "Pass", f"{mean:.4g} on {len(changed)} changed nodes{_spread_words(changed)}")
    control = [reading.values[node] for node in compared.control if node in reading.values]
    return _judge_ratios(gate.name, changed, control, ratios, compared.control_word)


def _too_close(gate: Gate, changed: Sequence[float]) -> str:
    """Whether the mean is nearer to a limit than so many nodes can tell. One node has no spread: its value counts."""
    mean, effect = sum(changed) / len(changed), _smallest_distance(changed)
    for limit in (gate.max, gate.min):
        if limit is not None and abs(limit - mean) < effect:
            words = f"{mean:.4g} on {len(changed)} changed nodes, the limit is {limit:g}"
            return f"{words}; smallest difference that shows: {effect:.3g}"
    return ""


def _smallest_distance(values: Sequence[float]) -> float:
    """Between the mean of these nodes and a limit, by their spread."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return DETECTION * math.sqrt(variance / len(values))


def _spread_words(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "; one node shows no spread"
    return f"; smallest difference that shows: {_smallest_distance(values):.3g}"


def _no_data(reading: GateReading | None, compared: Compared, now: int, *, needs_control: bool) -> str:
    if reading is None:
        return "the query has not been answered"
    if reading.error:
        return reading.error
    if now - reading.at > MAX_AGE_SECONDS:
        return f"the last answer is older than {MAX_AGE_SECONDS} s"
    missing = [node for node in compared.changed if node not in reading.values]
    if missing or not compared.changed:
        return f"no data of {len(missing)} of {len(compared.changed)} changed nodes: {_names(missing)}"
    if needs_control and not compared.control:
        return "no node is left to compare with; without a person (windlass change promote) that never passes"
    if needs_control and not any(node in reading.values for node in compared.control):
        return f"no data of any of {len(compared.control)} {compared.control_word} nodes"
    return ""


def _judge_ratios(
    name: str, changed: Sequence[float], control: Sequence[float], ratios: Sequence[tuple[float, int]], word: str
) -> Verdict:
    mean, base = sum(changed) / len(changed), sum(control) / len(control)
    if base <= 0:
        return Verdict(name, "Inconclusive", f"the mean of {len(control)} {word} nodes is {base:.4g}: no ratio")
    effect = _smallest_effect(changed, control) / base
    shown = f"{mean:.4g} on {len(changed)} changed, {base:.4g} on {len(control)} {word} nodes"
    smallest = f"smallest effect that shows: {effect:.1%}" if math.isfinite(effect) else "one node shows no effect"
    for limit, sign in ratios:
        if sign * (mean / base - limit) > 0:
            word = "above" if sign > 0 else "below"
            return Verdict(name, "Fail", f"{shown}: the ratio {mean / base:.3g} is {word} {limit:g} ({smallest})")
    for limit, _ in ratios:
        if effect > abs(limit - 1):
            return Verdict(name, "Inconclusive", f"{shown}; {smallest}, and the limit is {abs(limit - 1):.1%}")
    return Verdict(name, "Pass", f"{shown}; {smallest}")


def _smallest_effect(changed: Sequence[float], control: Sequence[float]) -> float:
    """By the spread among nodes: of both sets together, each around its own mean."""
    freedom = len(changed) + len(control) - 2
    if freedom < 1:
        return math.inf
    squares = sum((value - sum(values) / len(values)) ** 2 for values in (changed, control) for value in values)
    return DETECTION * math.sqrt(squares / freedom * (1 / len(changed) + 1 / len(control)))


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return ", ".join(sorted(nodes)[:3]) + more
