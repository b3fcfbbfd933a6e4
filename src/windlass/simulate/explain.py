"""Formats the outcome of one pod for `windlass simulate --explain POD` (`cli.simulate`).

The explanation comes from the decision itself, through `RunResult`; nothing is computed again.
"""

from __future__ import annotations

from windlass.model.verdict import NearMiss, Verdict
from windlass.simulate.placements import Explanation


def explanation_text(explanation: Explanation) -> str:
    """The outcome; for a pod without a node, also the count of nodes by reason and the nearest misses."""
    when = f" at second {explanation.time:,}" if explanation.time else ""
    placed = explanation.placement
    if placed is not None:
        devices = f", GPUs {placed.devices_text}" if placed.devices else ""
        return f"{explanation.pod} was placed{when}: {placed.node}{devices}\n"
    if explanation.verdict is None:
        return f"{explanation.pod} was not considered{when}\n"
    verdict = explanation.verdict
    return f"{explanation.pod} found no node{when}: {verdict.code}\n{_verdict_text(verdict)}"


def _verdict_text(verdict: Verdict) -> str:
    if verdict.detail or not verdict.counts:
        return f"  {verdict.kube_message}\n"
    lines = [f"{count.nodes:>7,} of {verdict.nodes:,} nodes: {count.kube}" for count in verdict.counts]
    if verdict.nearest:
        lines += ["nearest misses:", *(f"  {_miss_text(miss)}" for miss in verdict.nearest)]
    return "\n".join(lines) + "\n"


def _miss_text(miss: NearMiss) -> str:
    reasons = "; ".join(miss.reasons)
    lacks = f" (lacks {_amounts(miss.lacks)})" if miss.lacks else ""
    free = f"; free there: {_amounts(miss.free)}" if miss.free else ""
    return f"{miss.node}: {reasons}{lacks}{free}"


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items())
