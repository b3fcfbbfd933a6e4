"""A plan as the `Plan` document, and as a table.

Called by `cli.plan_schedule`. Fields of the document are only ever added; its decisions are
those of `model.decision_document`, which reads them back too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from windlass.cli.output import plain_table, windlass_document
from windlass.dump.configuration import Configuration, UsedConfiguration
from windlass.model.decision import (
    Admit,
    Ask,
    Bind,
    Decision,
    DeviceGrant,
    Evict,
    Hold,
    PodSetResize,
    Reserve,
    Resize,
    WithdrawAsk,
    ask_cause,
)
from windlass.model.decision_document import MILLI_PER_GPU, decision_document
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp

if TYPE_CHECKING:
    from rich.table import Table

MOST_NODES = 4
"""Nodes that a line of the table names before it says how many more there are."""


def plan_document(
    plan: Plan, now: int, notes: Iterable[str] = (), configuration: UsedConfiguration | None = None
) -> dict[str, Any]:
    """`kind: Plan`, with the decisions in an order in which they can be executed."""
    return windlass_document(
        "Plan",
        now=format_timestamp(now),
        decisions=[decision_document(decision) for decision in plan.decisions],
        notes=list(notes),
        configuration=(configuration or Configuration().used).document,
    )


def plan_table(plan: Plan) -> Table:
    """One row per decision."""
    return plain_table(("DECISION", "WORKLOAD OR POD", "WHERE OR WHY"), map(_cells, plan.decisions))


def summary(plan: Plan) -> str:
    """One line that counts the decisions."""
    counts = {
        "admitted": len(plan.admits),
        "bound": len(plan.binds),
        "asked": len(plan.asks),
        "evicted": len(plan.evicts),
        "resized": len(plan.resizes),
        "held": len(plan.holds),
        "planned or reserved": len(plan.reserves),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to decide"


def _cells(decision: Decision) -> tuple[str, str, str]:
    match decision:
        case Admit():
            return "admit", decision.workload, _admit_text(decision)
        case Bind():
            devices = ", ".join(_device_text(grant) for grant in decision.devices)
            on = f" (GPU {devices})" if devices else ""
            return "bind", decision.pod, f"{decision.node}{on}{_after_text(decision.after)}"
        case Evict():
            for_workload = f" for {decision.for_workload}" if decision.for_workload else ""
            pods = _pods_text(len(decision.pods))
            after = _after_text(decision.after)
            return "evict", decision.workload, f"{pods}{for_workload}: {decision.reason}{_lost_text(decision)}{after}"
        case Ask():
            until = format_timestamp(decision.until)
            refused = f"; {decision.refused_answer}" if decision.refused_answer else ""
            pods = _pods_text(len(decision.pods))
            return (
                "ask",
                decision.workload,
                f"{pods} for a checkpoint until {until}, {ask_cause(decision)}{refused}",
            )
        case WithdrawAsk():
            return (
                "withdraw ask",
                decision.workload,
                "it has left" if decision.has_left else "it is not needed any more",
            )
        case Resize():
            parts = (f"{one.name} {_size_text(one)}" for one in decision.pod_sets)
            return "resize", decision.workload, "; ".join(parts)
        case Reserve():
            until = "" if decision.until is None else f" until {format_timestamp(decision.until)}"
            start = format_timestamp(decision.start)
            return "reserve", decision.workload, f"{decision.domain} from {start}{until}"
        case Hold():
            sentences = "\n".join(decision.verdict.sentences)
            return "hold", decision.workload, f"{decision.verdict.code}: {sentences}"


def _admit_text(admit: Admit) -> str:
    parts = []
    for pod_set in admit.pod_sets:
        nodes = [f"{node} ×{count}" for node, count in list(pod_set.nodes.items())[:MOST_NODES]]
        more = f" and {len(pod_set.nodes) - MOST_NODES} more" if len(pod_set.nodes) > MOST_NODES else ""
        flavors = "/".join(dict.fromkeys(pod_set.flavors.values()))
        of = f"{pod_set.count} of " if pod_set.wanted else ""
        parts.append(
            f"{pod_set.name} {of}{_pods_text(pod_set.wanted or pod_set.count)}"
            + (f" on {', '.join(nodes)}{more}" if nodes else "")
            + (f" as {flavors}" if flavors else "")
        )
    queue = f"{admit.queue}: " if admit.queue else ""
    note = f"; {admit.note}" if admit.note else ""
    return f"{queue}{'; '.join(parts)}{_after_text(admit.after)}{note}"


def _lost_text(evict: Evict) -> str:
    """What the eviction loses, and what all evictions for the same preemptor lose at least."""
    if not evict.lost_gpu_seconds:
        return ""
    least = f", at least {evict.least_gpu_seconds:,} for it" if evict.least_gpu_seconds else ""
    return f"; {evict.lost_gpu_seconds:,} GPU-seconds lost{least}"


def _size_text(resize: PodSetResize) -> str:
    before, after = resize.before, resize.after
    if after.held == before.held:
        return f"asks for {_pods_text(after.declared - after.reclaimable)}, and holds quota for {after.held}"
    return f"gives back quota: {_pods_text(after.held)} instead of {before.held}"


def _pods_text(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _after_text(after: tuple[str, ...]) -> str:
    return f", after {', '.join(after)}" if after else ""


def _device_text(grant: DeviceGrant) -> str:
    if grant.profile:
        return f"{grant.index}: {grant.profile}"
    return f"{grant.index}" if grant.milli == MILLI_PER_GPU else f"{grant.index}: {grant.milli / 10:g} %"
