"""Decisions in a line each, for the trace that a scenario prints."""

from __future__ import annotations

from windlass.model.decision import Admit, Bind, Evict, Hold

MOST_NODES = 6


def format_admit(admit: Admit) -> str:
    parts = []
    for one in admit.pod_sets:
        flavors = "/".join(name for name in dict.fromkeys(one.flavors.values()) if name != "default")
        parts.append(
            f"{one.name} ×{one.count}"
            + (f" on {format_nodes(one.nodes)}" if one.nodes else "")
            + (f" as {flavors}" if flavors else "")
        )
    queue = f"in {admit.queue}: " if admit.queue else ""
    return f"{queue}{'; '.join(parts)}{_after(admit.after)}"


def format_bind(bind: Bind) -> str:
    devices = ", ".join(
        f"{one.index}: {one.profile}"
        if one.profile
        else str(one.index)
        if one.milli == 1000
        else f"{one.index}: {one.milli / 10:g} %"
        for one in bind.devices
    )
    return f"{bind.node}{f' (GPU {devices})' if devices else ''}{_after(bind.after)}"


def format_evict(evict: Evict) -> str:
    for_whom = f" for {evict.for_workload}" if evict.for_workload else ""
    count = len(evict.pods)
    return f"{count} pod{'' if count == 1 else 's'}{for_whom}: {evict.reason}"


def format_hold(hold: Hold) -> str:
    return f"{hold.verdict.code}: {hold.verdict.message}"


def format_nodes(nodes: dict[str, int]) -> str:
    """`a ×2, b` and how many more."""
    shown = [f"{node} ×{count}" if count > 1 else node for node, count in list(nodes.items())[:MOST_NODES]]
    more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    return ", ".join(shown) + more


def _after(after: tuple[str, ...]) -> str:
    return f", once {', '.join(after)} {'is' if len(after) == 1 else 'are'} gone" if after else ""
