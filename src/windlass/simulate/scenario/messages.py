"""One line of text per decision, for the trace that `scenario.report` prints.

Used by `scenario.executor`, `scenario.player` and `scenario.expectations`.
"""

from __future__ import annotations

from windlass.model.decision import Admit, Bind, DeviceGrant, Evict, Hold

MAX_NODES = 6


def format_admit(admit: Admit) -> str:
    parts = []
    for pod_set in admit.pod_sets:
        flavors = "/".join(name for name in dict.fromkeys(pod_set.flavors.values()) if name != "default")
        parts.append(
            f"{pod_set.name} ×{pod_set.count}"
            + (f" on {format_nodes(pod_set.nodes)}" if pod_set.nodes else "")
            + (f" as {flavors}" if flavors else "")
        )
    queue = f"in {admit.queue}: " if admit.queue else ""
    note = f"; {admit.note}" if admit.note else ""
    return f"{queue}{'; '.join(parts)}{_after(admit.after)}{note}"


def format_bind(bind: Bind) -> str:
    devices = ", ".join(map(_format_device, bind.devices))
    return f"{bind.node}{f' (GPU {devices})' if devices else ''}{_after(bind.after)}"


def _format_device(grant: DeviceGrant) -> str:
    if grant.profile:
        return f"{grant.index}: {grant.profile}"
    return str(grant.index) if grant.milli == 1000 else f"{grant.index}: {grant.milli / 10:g} %"


def format_evict(evict: Evict) -> str:
    preemptor = f" for {evict.for_workload}" if evict.for_workload else ""
    count = len(evict.pods)
    return f"{count} pod{'' if count == 1 else 's'}{preemptor}: {evict.reason}"


def format_hold(hold: Hold) -> str:
    return f"{hold.verdict.code}: {hold.verdict.message}"


def format_nodes(nodes: dict[str, int]) -> str:
    """`a ×2, b` and how many more."""
    shown = [f"{node} ×{count}" if count > 1 else node for node, count in list(nodes.items())[:MAX_NODES]]
    more = f" and {len(nodes) - MAX_NODES} more" if len(nodes) > MAX_NODES else ""
    return ", ".join(shown) + more


def _after(after: tuple[str, ...]) -> str:
    return f", once {', '.join(after)} {'has' if len(after) == 1 else 'have'} terminated" if after else ""
