"""Objects of ours that no stack looks after, or that can't be understood: each says so, and nodes are let go.

Called by `decide.main` after all stacks. A stack that can't be read is not the same as one that is gone: its nodes,
their records and taints stay as they are until a person has mended it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from windlass.model.names.windlass import CHANGE_TAINT, HELD_DEVICES_ANNOTATION, REPAIR_TAINT, REPAIR_UNTIL_ANNOTATION
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.decide.pool import NodePatch, wait_for
from windlass.operator.decide.stack_status import refused_stack
from windlass.operator.kinds.fleet_change import FINAL_PHASES, FleetChange, FleetChangeStatus
from windlass.operator.kinds.gpu_node import GPUNode, GPUNodeStatus
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView, Observed
from windlass.operator.writes import PutStatus, Write

MISSING_STACK_SECONDS = 3600


def orphans(
    observed: Observed, owned: Mapping[str, Mapping[str, NodeView]], conflicts: Mapping[str, tuple[str, ...]], now: int
) -> Iterator[Write]:
    unread = {invalid.name for invalid in observed.invalid if invalid.kind == "GPUStack"}
    for change in observed.changes:
        if change.spec.stack not in owned and change.spec.stack not in unread and not change.is_final:
            status = _without_stack(change, now)
            if status != change.status:
                yield PutStatus("FleetChange", change.name, change.metadata.resource_version, status)
    yield from _invalid_objects(observed, now)
    in_stacks = {name for nodes in owned.values() for name in nodes}
    for name, gpu_node in observed.gpu_nodes.items():
        node = observed.nodes.get(name)
        if node is not None and name not in in_stacks and gpu_node.status.stack not in unread:
            yield from _let_go(node, gpu_node, conflicts.get(name, ()), now)


def _invalid_objects(observed: Observed, now: int) -> Iterator[Write]:
    for invalid in observed.invalid:
        if invalid.kind == "GPUStack":
            refused = refused_stack(invalid, now)
            if refused is not None:
                yield refused
        if invalid.kind == "FleetChange" and invalid.phase not in FINAL_PHASES:
            status = FleetChangeStatus(
                phase="Refused", reason=Reason.InvalidSpec, message=invalid.message, since=format_timestamp(now)
            )
            yield PutStatus("FleetChange", invalid.name, invalid.version, status)


def _let_go(node: NodeView, gpu_node: GPUNode, stacks: tuple[str, ...], now: int) -> Iterator[Write]:
    """No stack, or several, select the node: what changes and repairs hold of it is given back."""
    reason, message = Reason.StackMissing, "no stack selects this node"
    if stacks:
        reason, message = Reason.StackConflict, f"several stacks select it: {', '.join(stacks)}"
    known = gpu_node.status
    if (known.phase, known.reason, known.message) != ("NotOurs", reason, message):
        left = GPUNodeStatus(
            phase="NotOurs", reason=reason, message=message, since=format_timestamp(now), node_uid=node.uid
        )
        yield PutStatus("GPUNode", node.name, gpu_node.metadata.resource_version, left)
    taints = {key: None for key in (CHANGE_TAINT, REPAIR_TAINT) if node.has_taint(key)}
    annotations = dict.fromkeys((HELD_DEVICES_ANNOTATION, REPAIR_UNTIL_ANNOTATION))
    write = NodePatch(taints=dict(taints), annotations=annotations).write(node)
    if write is not None:
        yield write


def _without_stack(change: FleetChange, now: int) -> FleetChangeStatus:
    message = f"there is no stack {change.spec.stack}"
    known = (change.status.reason, change.status.since, change.status.deadline)
    wait = wait_for(known, Reason.StackMissing, now, MISSING_STACK_SECONDS)
    is_late = now >= parse_timestamp(wait.deadline)
    return msgspec.structs.replace(
        change.status,
        phase="Refused" if is_late else "Pending",
        reason=str(Reason.StackMissing),
        message=message,
        since=wait.since,
        deadline="" if is_late else wait.deadline,
    )
