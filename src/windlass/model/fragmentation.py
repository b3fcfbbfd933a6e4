"""The sentence about GPUs that are free in total, but not where a pod could use them.

`placement.explain.limits` calls it for plans and conditions, `diagnose.unschedulable` for `why`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.model.names.nvidia import GPU_RESOURCE

MAX_LISTED_NODES = 6
"""Nodes whose free GPUs are listed one by one."""


def describe_fragmentation(
    free_by_node: Iterable[float], per_pod: float, pods: int, fitting: int, resource: str = GPU_RESOURCE
) -> str:
    """`fitting` of the `pods`, which request `per_pod` each, find room on the nodes. Shares count as parts of a GPU."""
    free = sorted((amount for amount in free_by_node if amount), reverse=True)
    listed = _listed(free)
    where = f"but spread over {len(free)} nodes ({listed})" if len(free) > 1 else "all on one node"
    verb = "is" if sum(free) == 1 else "are"
    total, size = _amount(sum(free), resource), _amount(per_pod, resource)
    if fitting:
        room = f"room for {fitting} of {pods} pods with {size} each"
    elif per_pod < 1:
        room = f"no GPU has {per_pod:g} free"
    else:
        room = f"no node has room for a pod with {size}"
    return f"{total} {verb} free, {where}: {room}"


def _listed(free: Sequence[float]) -> str:
    listed = ", ".join(f"{amount:g}" for amount in free[:MAX_LISTED_NODES])
    more = len(free) - MAX_LISTED_NODES
    return f"{listed} and {more} more" if more > 0 else listed


def _amount(amount: float, resource: str) -> str:
    if resource != GPU_RESOURCE:
        return f"{amount:g} {resource}"
    return f"{amount:g} GPU" if amount <= 1 else f"{amount:g} GPUs"
