"""`decide`: all stacks, one after the other; for each, bring-up of its nodes, then changes, then repairs, on one
count.

    observed ─► stacks ─► pool ─► bring-up ─► changes ─► repairs ─► drafts ─► writes

Records come first among the writes, then nodes, then evictions; but nothing rests on that order, since every rule
acts only on what has been read back from the server.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.model.labels import matches_selector
from windlass.model.names.windlass import REPAIR_TAINT
from windlass.operator.decide.breaker import why_open
from windlass.operator.decide.bring_up import bring_up
from windlass.operator.decide.canary_work import stale_jobs
from windlass.operator.decide.change import advance_change
from windlass.operator.decide.change_nodes import clean_taint, drive_node, turn_back
from windlass.operator.decide.drain import take_back_notices
from windlass.operator.decide.nvidia_drivers import put_nvidia_drivers
from windlass.operator.decide.orphans import orphans
from windlass.operator.decide.pool import Pool, takes_node
from windlass.operator.decide.repair import advance_repair
from windlass.operator.decide.revisions import put_daemon_sets
from windlass.operator.decide.stack_status import current, put_stack_status
from windlass.operator.decide.stopped_work import resume_stopped
from windlass.operator.decide.take_over import hand_over
from windlass.operator.kinds.fleet_change import FleetChange
from windlass.operator.kinds.gpu_repair import GPURepairSpec
from windlass.operator.kinds.gpu_stack import GPUStack
from windlass.operator.observed import NodeView, Observed
from windlass.operator.writes import (
    ApplyDaemonSet,
    CreateNvidiaDriver,
    CreateObject,
    Decision,
    EvictPods,
    PatchNode,
    PutNodeCondition,
    PutStatus,
    Write,
)

LOOK_AGAIN_SECONDS = 300
"""A decision is made at least so often, whatever happens."""
MAX_KEPT_FAULTS = 8
_ORDER = (CreateObject, PutStatus, ApplyDaemonSet, CreateNvidiaDriver, PatchNode, PutNodeCondition, EvictPods)


def decide(observed: Observed, now: int) -> Decision:
    """What is to be written now, and when to ask again at the latest."""
    owned, conflicts = _assign(observed)
    pools = [_pool(observed, stack, owned[stack.name], now) for stack in observed.stacks]
    writes: list[Write] = []
    for pool in pools:
        _decide_pool(pool)
        writes += _pool_writes(pool)
    writes += put_nvidia_drivers(pools, observed)
    writes += resume_stopped(observed, pools)
    writes += stale_jobs(observed)
    writes += orphans(observed, owned, conflicts, now)
    writes.sort(key=_rank)
    wake = [pool.wake_at for pool in pools if pool.wake_at]
    gates = tuple(name for pool in pools for name in pool.gates_due)
    rooms = tuple(question for pool in pools for question in pool.rooms_due)
    return Decision(tuple(writes), min([*wake, now + LOOK_AGAIN_SECONDS]), gates, rooms)


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
    pool.current = current(pool)
    for name in pool.nodes:
        bring_up(pool, name)
        hand_over(pool, name)
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
    take_back_notices(pool)
    _open_repairs(pool)
    _clean_repair_taints(pool)
    put_daemon_sets(pool)
    put_stack_status(pool, breaker)


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
                drive_node(pool, name, change)
        clean_taint(pool, name)


def _open_repairs(pool: Pool) -> None:
    """One for each device that is ill now, has no open repair, and is on no node under change."""
    if pool.stack.spec.repair.policy == "Off":
        return
    for name, node in pool.nodes.items():
        if not node.faults or _under_change(pool, name) is not None:
            continue
        for fault in node.faults:
            is_known = any(
                repair.is_open and (repair.spec.node, repair.spec.device) == (name, fault.device)
                for repair in pool.repairs
            )
            if not fault.action or is_known:
                continue
            spec = GPURepairSpec(node=name, device=fault.device, fault=fault.fault, action=fault.action)
            repair_name = _free_repair_name(pool, f"{name[:200]}-{fault.device}")
            body = {"metadata": {"name": repair_name}, "spec": msgspec.to_builtins(spec)}
            pool.writes.append(CreateObject("GPURepair", repair_name, body))


def _free_repair_name(pool: Pool, prefix: str) -> str:
    """One more than the highest number that is there: old repairs may have been deleted by a person."""
    names = [repair.name for repair in pool.observed.repairs]
    names += [invalid.name for invalid in pool.observed.invalid if invalid.kind == "GPURepair"]
    numbers = [name.removeprefix(f"{prefix}-") for name in names if name.startswith(f"{prefix}-")]
    return f"{prefix}-{max((int(text) for text in numbers if text.isdecimal()), default=0) + 1}"


def _clean_repair_taints(pool: Pool) -> None:
    for name, node in pool.nodes.items():
        if node.has_taint(REPAIR_TAINT) and REPAIR_TAINT not in pool.patch(name).taints:
            pool.patch(name).taints[REPAIR_TAINT] = None


def _pool_writes(pool: Pool) -> Iterator[Write]:
    yield from pool.writes
    unread = {invalid.name for invalid in pool.observed.invalid if invalid.kind == "GPUNode"}
    for name, node in pool.nodes.items():
        known = pool.gpu_nodes.get(name)
        if known is None and name in unread:
            continue  # its record may say what the node shall run: a person has to look
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
            yield CreateObject("GPUNode", name, {"metadata": {"name": name, "ownerReferences": [owner]}})
        elif pool.statuses[name] != known.status:
            yield PutStatus("GPUNode", name, known.metadata.resource_version, pool.statuses[name])
        patch = pool.patch(name).write(node)
        if patch is not None:
            yield patch
