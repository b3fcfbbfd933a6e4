"""The rule that picks the cause of a hold: one code, from the reasons for which groups of nodes refuse it.

`node_reasons.find_cause` calls `cause_of`, for every hold that is read, so that the plan, the pod's condition, the
event, the metric and `why` name the same cause. The count of nodes by reason is what was observed (`Verdict.counts`);
the cause is what would have to change:

1. Only nodes that have the requested devices count.
2. If the nodes that it may use could hold all of it once they are emptier, it waits for capacity, whatever rules
   exclude other nodes: those are intended. The missing resource is that of the node which lacks least: a node that
   has the GPUs and lacks CPU says more than a node without free GPUs. If some pods of a gang fit, the cause is what
   the decision reported for the next one.
3. Otherwise a rule or the size of the request is the cause: the smallest set of these without which it would fit; of
   several such sets, one without which it would start now. Selectors come after
   everything that is wrong with nodes, since they exclude nodes on purpose.
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
    "GFD_LABELS_MISSING",
    "REQUEST_EXCEEDS_CLUSTER",
    "TOPOLOGY_MANAGER_REFUSED",
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "NODE_NOT_UNDERSTOOD",
    "SELECTOR_MISMATCH",
    "POLICY_DENIED",
    "RESOURCE_NAME_MISMATCH",
)
"""Of several possible causes, the first in this order is named."""
GPU_CODES = frozenset({"GPU_FULL", "GPU_FRAGMENTED", "TOPOLOGY_MANAGER_REFUSED", "DEVICE_UNHEALTHY"})
TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"
MAX_RULES = 3
"""Largest set of rules that is tried: the number of sets grows fast, and more than three are never one cause."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that have the requested devices and refuse a pod for the same reasons."""

    permanent_codes: tuple[str, ...]
    """Codes that remain when the node is empty: rules, and resources of which the node has too little in total."""
    capacity_codes: tuple[str, ...]
    """Codes that disappear when running pods end."""
    capacity: int = 1
    """Pods that the nodes would hold if they were empty and no rule excluded them; at least one, as if the request
    were smaller, for nodes that are too small."""


def cause_of(reported: str, wanted: int, groups: Sequence[NodeGroup]) -> str:
    """`reported` is the code that the decision reported; it stays where the groups say nothing more."""
    if not groups:
        return reported
    allowed = [group for group in groups if not group.permanent_codes]
    if _total_capacity(allowed) >= wanted:
        return _capacity_cause(reported, allowed)
    return _rule_cause(wanted, groups)


def _capacity_cause(reported: str, allowed: Sequence[NodeGroup]) -> str:
    """What the node lacks that lacks least."""
    if any(group.capacity and not group.capacity_codes for group in allowed):
        return reported
    lacking = [group.capacity_codes for group in allowed]
    nearest = [lacks for lacks in lacking if not GPU_CODES.intersection(lacks)]
    nearest = nearest or [tuple(code for code in lacks if code in GPU_CODES) for lacks in lacking]
    return min(nearest, key=lambda lacks: (len(lacks), cause_rank(lacks[0])))[0]


def _rule_cause(wanted: int, groups: Sequence[NodeGroup]) -> str:
    """The first code of the smallest set of rules and sizes without which it would fit."""
    rules = sorted({code for group in groups for code in group.permanent_codes}, key=cause_rank)
    for size in range(1, MAX_RULES + 1):
        enough = [
            (lifted, inside)
            for lifted in combinations(rules, size)
            if _total_capacity(inside := [group for group in groups if set(group.permanent_codes) <= set(lifted)])
            >= wanted
        ]
        starts = [rules for rules, inside in enough if any(g.permanent_codes and not g.capacity_codes for g in inside)]
        for lifted in starts or [lifted for lifted, _ in enough]:
            return lifted[0]
    return TOO_LARGE


def cause_rank(code: str) -> int:
    return CAUSE_ORDER.index(code) if code in CAUSE_ORDER else len(CAUSE_ORDER)


def _total_capacity(groups: Sequence[NodeGroup]) -> int:
    return sum(group.capacity for group in groups)
