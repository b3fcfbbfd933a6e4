"""The cause of a hold that is about nodes: one code of the closed list, worked out from what each node says.

`advisor` asks for it wherever a hold is read, so that the plan, the pod's condition, the event, the metric and the
first link of `why`'s chain name the same. The count of nodes by reason is the literal answer (`Verdict.counts`); the
cause is what would have to change:

1. Only nodes that could ever be the place count: those that have the devices it asks for.
2. Where the nodes that it may use would hold all of it if they were emptier, it waits for room, whatever keeps it off
   further nodes: rules there are meant. What room lacks is read off the node that lacks the least; a node that has the
   GPUs and lacks CPU tells more than one without free GPUs. Where some pods of a gang find a node, what the next one
   lacks is what the decision itself came to.
3. Where they would not, a rule binds, or the size of the request: the smallest set of those without which it would
   fit; of several, one without which it would start now. A selector is meant to exclude, so it is named last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

CAUSE_ORDER = (
    "NODE_UNSCHEDULABLE",
    "TAINT_NOT_TOLERATED",
    "POD_AFFINITY_CONFLICT",
    "POD_SPREAD_CONFLICT",
    "STORAGE_INSUFFICIENT",
    "HOST_PORT_CONFLICT",
    "DEVICE_UNHEALTHY",
    "POD_COUNT_LIMIT",
    "EPHEMERAL_STORAGE",
    "CPU_MEM_INSUFFICIENT",
    "REQUEST_EXCEEDS_CLUSTER",
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "NODE_NOT_UNDERSTOOD",
    "SELECTOR_MISMATCH",
)
"""Among causes that would each do, the one to name first."""
GPU_CODES = frozenset({"GPU_FULL", "GPU_FRAGMENTED", "DEVICE_UNHEALTHY"})
TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"
MAX_RULES = 3
"""So many rules at the most are taken away together."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that have the devices, and that refuse a pod for the same reasons."""

    permanent: tuple[str, ...]
    """Codes of what no freed room would cure: rules, and what even the empty node has too little of."""
    curable: tuple[str, ...]
    """Codes of what freed room would cure."""
    capacity: int = 1
    """Pods of this kind that the nodes would hold if they were empty and no rule kept the pods off; of nodes that are
    too small, at least one if the request were smaller."""


def cause_of(reported: str, wanted: int, groups: Sequence[NodeGroup]) -> str:
    """`literal` is the code that the decision came to, and stays where the nodes tell nothing more."""
    if not groups:
        return reported
    allowed = [one for one in groups if not one.permanent]
    if _held(allowed) >= wanted:
        return _of_room(reported, allowed)
    return _rule_that_binds(wanted, groups)


def _of_room(literal: str, allowed: Sequence[NodeGroup]) -> str:
    """Of the node that lacks the least."""
    if any(one.capacity and not one.curable for one in allowed):
        return literal
    short = [one.curable for one in allowed]
    near = [lacks for lacks in short if not GPU_CODES.intersection(lacks)]
    near = near or [tuple(code for code in lacks if code in GPU_CODES) for lacks in short]
    return min(near, key=lambda lacks: (len(lacks), cause_rank(lacks[0])))[0]


def _rule_that_binds(wanted: int, groups: Sequence[NodeGroup]) -> str:
    """Of the smallest sets of rules and sizes without which it would fit, the one to name first."""
    rules = sorted({code for one in groups for code in one.permanent}, key=cause_rank)
    for size in range(1, MAX_RULES + 1):
        enough = [
            (lifted, inside)
            for lifted in combinations(rules, size)
            if _held(inside := [one for one in groups if set(one.permanent) <= set(lifted)]) >= wanted
        ]
        starts = [
            lifted for lifted, inside in enough if any(one.permanent and not one.curable for one in inside)
        ]
        for lifted in starts or [lifted for lifted, _ in enough]:
            return lifted[0]
    return TOO_LARGE


def cause_rank(code: str) -> int:
    return CAUSE_ORDER.index(code) if code in CAUSE_ORDER else len(CAUSE_ORDER)


def _held(groups: Sequence[NodeGroup]) -> int:
    return sum(one.capacity for one in groups)
