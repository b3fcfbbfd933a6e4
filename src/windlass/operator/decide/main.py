"""`decide`: all stacks, one after the other; for each, bring-up of its nodes, then changes, then repairs, on one
count.

    observed ─► stacks ─► pool ─► bring-up ─► changes ─► repairs ─► drafts ─► writes

Records come first among the writes, then nodes, then evictions; but nothing rests on that order, since every rule
acts only on what has been read back from the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from windlass.model.labels import matches_selector
from windlass.model.names.windlass import CHANGE_TAINT, DRIVER_REVISION_LABEL, REPAIR_TAINT
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.decide import components
from windlass.operator.decide.breaker import why_open
from windlass.operator.decide.bring_up import bring_up
from windlass.operator.decide.change import advance_change
from windlass.operator.decide.change_nodes import clean_taint, drive_node, turn_back
from windlass.operator.decide.driver_daemon_set import daemon_set_name, driver_daemon_set
from windlass.operator.decide.pool import NodePatch, Pool, takes_node, wait_for
from windlass.operator.decide.repair import advance_repair
from windlass.operator.kinds.base import Condition
from windlass.operator.kinds.fleet_change import FleetChange, FleetChangeStatus
from windlass.operator.kinds.gpu_node import GPUNodeStatus
from windlass.operator.kinds.gpu_repair import GPURepairSpec
from windlass.operator.kinds.gpu_stack import Current, GPUStack, GPUStackStatus
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView, Observed
from windlass.operator.writes import (
    ApplyDaemonSet,
    CreateObject,
    Decision,
    DeleteDaemonSet,
    EvictPods,
    PatchNode,
    PutNodeCondition,
    PutStatus,
    Write,
)

LOOK_AGAIN_SECONDS = 300
"""A decision is made at least so often, whatever happens."""
MAX_KEPT_FAULTS = 8
MISSING_STACK_SECONDS = 3600
_ORDER = (CreateObject, PutStatus, ApplyDaemonSet, PatchNode, PutNodeCondition, EvictPods)


def decide(observed: Observed, now: int) -> Decision:
    """What is to be written now, and when to ask again at the latest."""
    owned, conflicts = _assign(observed)
    pools = [_pool(observed, stack, owned[stack.name], now) for stack in observed.stacks]
    writes: list[Write] = []
    for pool in pools:
        _decide_pool(pool)
        writes += _pool_writes(pool)
    writes += _orphans(observed, owned, conflicts, now)
    writes.sort(key=_rank)
    wake = [pool.wake_at for pool in pools if pool.wake_at]
    gates = tuple(name for pool in pools for name in pool.gates_due)
    return Decision(tuple(writes), min([*wake, now + LOOK_AGAIN_SECONDS]), gates)


def _rank(write: Write) -> int:
    return next((rank for rank, kind in enumerate(_ORDER) if isinstance(write, kind)), len(_ORDER))


def _assign(observed: Observed) -> tuple[dict[str, dict[str, NodeView]], dict[str, tuple[str, ...]]]:
    """Nodes by stack, and nodes that several stacks select, with their names: none of them acts there."""
    owned: dict[str, dict[str, NodeView]] = {stack.name: {} for stack in observed.stacks}
    conflicts: dict[str, tuple[str, ...]] = {}
    for name in sorted(observed.nodes):
        node = observed.nodes[name]
        stacks = [stack.name for stack in observed.stacks if matches_selector(stack.spec.nodes, node.labels)]
        if len(stacks) == 1:
            owned[stacks[0]][name] = node
        elif stacks:
            conflicts[name] = tuple(stacks)
    return owned, conflicts


def _pool(observed: Observed, stack: GPUStack, nodes: dict[str, NodeView], now: int) -> Pool:
    return Pool(
        stack=stack,
        nodes=nodes,
        gpu_nodes=observed.gpu_nodes,
        changes=tuple(change for change in observed.changes if change.spec.stack == stack.name),
        repairs=tuple(repair for repair in observed.repairs if repair.spec.node in nodes),
        observed=observed,
        now=now,
    )


def _decide_pool(pool: Pool) -> None:
    pool.current = _current(pool)
    for name in pool.nodes:
        bring_up(pool, name)
    breaker = why_open(pool)
    _keep_faults(pool)
    for change in sorted(pool.changes, key=lambda change: (change.metadata.creation_timestamp, change.name)):
        status = advance_change(pool, change)
        if status != change.status:
            pool.writes.append(PutStatus("FleetChange", change.name, change.metadata.resource_version, status))
    _drive_nodes(pool)
    for repair in sorted(pool.repairs, key=lambda repair: (not takes_node(repair), repair.name)):
        repaired = advance_repair(pool, repair, breaker)
        if repaired != repair.status:
            pool.writes.append(PutStatus("GPURepair", repair.name, repair.metadata.resource_version, repaired))
    _open_repairs(pool)
    _clean_repair_taints(pool)
    _daemon_sets(pool)
    _stack_status(pool, breaker)


def _current(pool: Pool) -> Current:
    """As written; at first as the nodes have it, else as the spec says."""
    known, spec = pool.stack.status.current, pool.stack.spec
    driver = known.driver
    if not driver:
        revisions = Counter(node.labels.get(DRIVER_REVISION_LABEL, "") for node in pool.nodes.values())
        del revisions[""]
        driver = min(revisions, key=lambda value: (-revisions[value], value)) if revisions else spec.driver.version
    return Current(driver=driver, mig=known.mig or spec.mig.config)


def _under_change(pool: Pool, name: str) -> FleetChange | None:
    """The unfinished change that is working on the node, or watches it: its faults feed the gate."""
    record = pool.statuses[name].change
    if record is None:
        return None
    change = next((change for change in pool.changes if change.metadata.uid == record.uid), None)
    if change is None or not change.is_unfinished:
        return None
    return change if not record.result or record.wave == change.status.wave else None


def _keep_faults(pool: Pool) -> None:
    """Keeps what is seen on a node under change: a fault that comes and goes counts for the gate."""
    for name, node in pool.nodes.items():
        if not node.faults or _under_change(pool, name) is None:
            continue
        status = pool.statuses[name]
        record = status.change
        assert record is not None  # _under_change has found it
        known = {repair.spec.device for repair in pool.repairs if repair.spec.node == name and repair.is_open}
        new = {fault.fault for fault in node.faults if fault.action and fault.device not in known}
        faults = tuple(sorted(new | set(record.faults)))[:MAX_KEPT_FAULTS]
        if faults != record.faults:
            pool.statuses[name] = msgspec.structs.replace(status, change=msgspec.structs.replace(record, faults=faults))


def _drive_nodes(pool: Pool) -> None:
    """Records that the server has are driven on; those drafted just now have to be read back first."""
    changes = {change.metadata.uid: change for change in pool.changes}
    for name in pool.nodes:
        known = pool.gpu_nodes.get(name)
        written, drafted = (known.status.change if known is not None else None), pool.statuses[name].change
        if drafted is not None and not drafted.result and written is not None and written.want == drafted.want:
            change = changes.get(drafted.uid)
            if change is None and drafted.want != drafted.previous:
                back = turn_back(pool, drafted, None, failed=False, why="the change was deleted")
                pool.statuses[name] = msgspec.structs.replace(pool.statuses[name], change=back)
            else:
                drive_node(pool, name, change, _component(pool, change, name))
        clean_taint(pool, name)


def _component(pool: Pool, change: FleetChange | None, name: str) -> str:
    """Of a deleted change, the one whose label has its value."""
    if change is not None and change.status.component:
        return change.status.component
    record = pool.statuses[name].change
    values = (record.want, record.previous) if record is not None else ()
    return "mig" if components.chosen(pool.nodes[name], "mig") in values else "driver"


def _open_repairs(pool: Pool) -> None:
    """One for each device that is ill now, has no open repair, and is on no node under change."""
    if pool.stack.spec.repair.policy == "Off":
        return
    for name, node in pool.nodes.items():
        if not node.faults or _under_change(pool, name) is not None:
            continue
        for fault in node.faults:
            of_device = [r for r in pool.repairs if (r.spec.node, r.spec.device) == (name, fault.device)]
            if not fault.action or any(repair.is_open for repair in of_device):
                continue
            spec = GPURepairSpec(node=name, device=fault.device, fault=fault.fault, action=fault.action)
            repair_name = f"{name[:200]}-{fault.device}-{len(of_device) + 1}"
            body = {"metadata": {"name": repair_name}, "spec": msgspec.to_builtins(spec)}
            pool.writes.append(CreateObject("GPURepair", repair_name, body))


def _clean_repair_taints(pool: Pool) -> None:
    for name, node in pool.nodes.items():
        if node.has_taint(REPAIR_TAINT) and REPAIR_TAINT not in pool.patch(name).taints:
            pool.patch(name).taints[REPAIR_TAINT] = None


def _daemon_sets(pool: Pool) -> None:
    """One for each driver version that a node runs or shall run; those that nothing refers to go."""
    if not pool.stack.spec.driver.image or not pool.nodes:
        return
    wanted = {node.labels.get(DRIVER_REVISION_LABEL, "") for node in pool.nodes.values()} | {pool.current.driver}
    for status in pool.statuses.values():
        wanted |= {status.change.want, status.change.previous} if _is_open_record(status) and status.change else set()
    for change in pool.changes:
        if change.spec.component == "driver" and change.is_unfinished:
            wanted |= {change.status.to, change.status.from_ or ""}
    names = {daemon_set_name(pool.stack.name, version): version for version in sorted(wanted - {""})}
    for name, version in names.items():
        if name not in pool.observed.daemon_sets:
            body = driver_daemon_set(pool.stack, version, pool.observed.namespace)
            pool.writes.append(ApplyDaemonSet(name, body))
    prefix = daemon_set_name(pool.stack.name, "").rpartition("-")[0]
    for name, uid in pool.observed.daemon_sets.items():
        if name.rpartition("-")[0] == prefix and name not in names:
            pool.writes.append(DeleteDaemonSet(name, uid))


def _is_open_record(status: GPUNodeStatus) -> bool:
    return status.change is not None and not status.change.result


def _stack_status(pool: Pool, breaker: str) -> None:
    known = pool.stack.status
    ready = sum(status.phase == "Ready" for status in pool.statuses.values())
    unfinished = next((change.name for change in pool.changes if change.is_unfinished), "")
    is_ready = ready == len(pool.nodes)
    waiting = [name for name, status in pool.statuses.items() if status.phase != "Ready"]
    message = "" if is_ready else f"not ready: {', '.join(waiting[:5])}" + (" …" if len(waiting) > 5 else "")
    differs = [name for name in ("driver", "mig") if _spec_value(pool, name) != getattr(pool.current, name)]
    in_sync = "the nodes run what the spec says"
    if differs:
        values = (f"{name} {getattr(pool.current, name)} (spec: {_spec_value(pool, name)})" for name in differs)
        in_sync = f"the nodes run {', '.join(values)}: start a FleetChange, or write it into the spec"
    conditions = (
        _condition(pool, "Ready", is_ready, "AllReady" if is_ready else "NodesNotReady", message),
        _condition(pool, "InSync", not differs, "SpecDiffers" if differs else "SpecRuns", in_sync),
    )
    status = GPUStackStatus(
        current=pool.current,
        nodes=len(pool.nodes),
        ready=ready,
        unavailable=len([name for name in pool.nodes if pool.why_unavailable(name)]),
        max_unavailable=pool.budget.limit,
        change=unfinished,
        breaker=breaker,
        observed_generation=pool.stack.metadata.generation,
        conditions=conditions,
    )
    if status != known:
        pool.writes.append(PutStatus("GPUStack", pool.stack.name, pool.stack.metadata.resource_version, status))


def _spec_value(pool: Pool, component: str) -> str:
    """What the spec asks for; where it asks for nothing, what runs is right."""
    asked = pool.stack.spec.driver.version if component == "driver" else pool.stack.spec.mig.config
    return asked or str(getattr(pool.current, component))


def _condition(pool: Pool, kind: str, is_true: bool, reason: str, message: str) -> Condition:
    status = "True" if is_true else "False"
    known = next((condition for condition in pool.stack.status.conditions if condition.type == kind), None)
    is_same = known is not None and known.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=known.last_transition_time
        if known is not None and is_same
        else format_timestamp(pool.now),
        observed_generation=pool.stack.metadata.generation,
    )


def _pool_writes(pool: Pool) -> Iterator[Write]:
    yield from pool.writes
    for name, node in pool.nodes.items():
        known = pool.gpu_nodes.get(name)
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
            yield CreateObject("GPUNode", name, {"metadata": {"name": name, "ownerReferences": [owner]}})
        elif pool.statuses[name] != known.status:
            yield PutStatus("GPUNode", name, known.metadata.resource_version, pool.statuses[name])
        patch = pool.patch(name).write(node)
        if patch is not None:
            yield patch


def _orphans(
    observed: Observed, owned: dict[str, dict[str, NodeView]], conflicts: dict[str, tuple[str, ...]], now: int
) -> Iterator[Write]:
    """Objects of ours that no stack looks after, or that can't be understood."""
    for change in observed.changes:
        if change.spec.stack not in owned and not change.is_final:
            status = _without_stack(change, now)
            if status != change.status:
                yield PutStatus("FleetChange", change.name, change.metadata.resource_version, status)
    for invalid in observed.invalid:
        if invalid.kind == "FleetChange" and invalid.phase != "Refused":
            refused = FleetChangeStatus(
                phase="Refused", reason=Reason.InvalidSpec, message=invalid.message, since=format_timestamp(now)
            )
            yield PutStatus("FleetChange", invalid.name, invalid.version, refused)
    in_stacks = {name for nodes in owned.values() for name in nodes}
    for name, gpu_node in observed.gpu_nodes.items():
        node = observed.nodes.get(name)
        if name in in_stacks or node is None:
            continue
        reason, message = Reason.StackMissing, "no stack selects this node"
        if name in conflicts:
            reason, message = Reason.StackConflict, f"several stacks select it: {', '.join(conflicts[name])}"
        known = gpu_node.status
        if (known.phase, known.reason, known.message) != ("NotOurs", reason, message):
            left = GPUNodeStatus(
                phase="NotOurs", reason=reason, message=message, since=format_timestamp(now), node_uid=node.uid
            )
            yield PutStatus("GPUNode", name, gpu_node.metadata.resource_version, left)
        patch = NodePatch(taints={key: None for key in (CHANGE_TAINT, REPAIR_TAINT) if node.has_taint(key)})
        write = patch.write(node)
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
