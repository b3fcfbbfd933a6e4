"""One node in a change: taint, drain, label, validated, taint off; and the same with the old value on the way back.

`decide.change` takes nodes by writing a record into their GPUNode; this drives each record on, by what is true of
the node now. The record alone says what the node shall run, so that it goes on after a restart, and goes back if the
change is deleted. The taint goes only after the result is written: a node whose record is open always has it.
"""

from __future__ import annotations

import msgspec

from windlass.model.names.windlass import CHANGE_TAINT
from windlass.model.node import Taint
from windlass.model.times import format_timestamp
from windlass.operator.decide import components
from windlass.operator.decide.bring_up import is_up
from windlass.operator.decide.canary_work import work_of_node
from windlass.operator.decide.drain import drain
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.base import seconds_of
from windlass.operator.kinds.fleet_change import Drain, FleetChange
from windlass.operator.kinds.gpu_node import NodeChange
from windlass.operator.kinds.reasons import Reason

WORK_STARTS_SECONDS = 5 * 60
"""So long the image of canary work may be pulled, beside its own time."""
DEFAULT_NODE_SECONDS = 30 * 60
"""For a record whose change has been deleted."""


def new_record(pool: Pool, change: FleetChange, name: str) -> NodeChange:
    return NodeChange(
        change=change.name,
        uid=change.metadata.uid,
        component=change.status.component,
        wave=change.status.wave,
        want=change.status.to,
        previous=components.chosen(pool.nodes[name], change.status.component) or (change.status.from_ or ""),
        since=format_timestamp(pool.now),
        deadline=format_timestamp(pool.now + seconds_of(change.spec.drain.timeout)),
        reason=Reason.Draining,
    )


def joined_record(pool: Pool, change: FleetChange) -> NodeChange:
    """Of a node that came with the new value after the change had ended: it goes back with the others."""
    old = change.status.from_ or ""
    return NodeChange(
        change=change.name,
        uid=change.metadata.uid,
        component=change.status.component,
        wave=change.status.wave,
        want=old,
        previous=old,
        since=format_timestamp(pool.now),
        deadline=format_timestamp(pool.now + seconds_of(change.spec.drain.timeout)),
        reason=Reason.Draining,
    )


def turn_back(pool: Pool, record: NodeChange, change: FleetChange | None, *, failed: bool, why: str) -> NodeChange:
    """The record of a node that shall run the old value again."""
    seconds = seconds_of(change.spec.drain.timeout) if change is not None else DEFAULT_NODE_SECONDS
    return msgspec.structs.replace(
        record,
        want=record.previous,
        since=format_timestamp(pool.now),
        deadline=format_timestamp(pool.now + seconds),
        result="",
        reason=Reason.Draining,
        message=why,
        failed=record.failed or failed,
    )


def drive_node(pool: Pool, name: str, change: FleetChange | None) -> None:
    """One step of a node whose record is open."""
    record = pool.statuses[name].change
    if record is None or record.result:
        return
    node = pool.nodes[name]
    if not node.has_taint(CHANGE_TAINT):
        pool.patch(name).taints[CHANGE_TAINT] = Taint(key=CHANGE_TAINT, effect="NoSchedule", value=record.change)
        return
    if components.chosen(node, record.component) != record.want:
        _drain_and_choose(pool, name, record, change)
    elif is_up(pool.statuses[name].steps) and node.is_ready:
        result = "RolledBack" if record.want == record.previous else "Done"
        if change is not None and change.spec.canary.work is not None and result == "Done" and not record.wave:
            _wait_for_work(pool, name, record, change)
        else:
            _put(pool, name, record, result=result, reason=Reason.Done, message="")
    else:
        _wait_until_up(pool, name, record, change)


def clean_taint(pool: Pool, name: str) -> None:
    """Takes the change's taint off a node whose record is closed; one that failed keeps it until it is up."""
    record = pool.statuses[name].change
    is_open = record is not None and not record.result
    is_stuck = record is not None and record.result == "Failed" and not is_up(pool.statuses[name].steps)
    if pool.nodes[name].has_taint(CHANGE_TAINT) and not is_open and not is_stuck:
        pool.patch(name).taints[CHANGE_TAINT] = None


def _drain_and_choose(pool: Pool, name: str, record: NodeChange, change: FleetChange | None) -> None:
    rules = change.spec.drain if change is not None else Drain()
    holders = [] if record.component in components.KEEPS_PODS else pool.holders(name)
    drained = drain(pool, name, holders, record.since, rules.wait, f"change {record.change}")
    if drained.is_done:
        seconds = seconds_of(change.spec.node_timeout) if change is not None else DEFAULT_NODE_SECONDS
        components.choose(pool.patch(name), record.component, record.want)
        if record.reason != Reason.Changing:
            deadline = format_timestamp(pool.now + seconds)
            pool.wake(deadline)
            _put(pool, name, record, reason=Reason.Changing, message="", deadline=deadline)
        return
    if not pool.is_past(record.deadline):
        _put(pool, name, record, reason=drained.reason, message=drained.message)
    elif record.want == record.previous:
        # On the way back nothing is given up: the node may run what the change is being undone for.
        pool.wake(pool.now + 60)
        _put(pool, name, record, reason=Reason.DrainBlocked, message=drained.message)
    else:
        _put(pool, name, record, result="Blocked", reason=Reason.DrainBlocked, message=drained.message)


def _wait_for_work(pool: Pool, name: str, record: NodeChange, change: FleetChange) -> None:
    """The node goes back into service when its Job has succeeded, and to the old value when it has not."""
    job = work_of_node(pool, change, name)
    timeout = change.spec.canary.work.timeout if change.spec.canary.work is not None else "0s"
    why = f"canary work: {job.message}" if job is not None and job.state == "Failed" else ""
    if record.reason == Reason.CanaryWork and pool.is_past(record.deadline):
        why = why or f"canary work was not done in {timeout}"
    if job is not None and job.state == "Succeeded":
        _put(pool, name, record, result="Done", reason=Reason.Done, message="")
    elif why:
        back = turn_back(pool, record, change, failed=True, why=why)
        pool.statuses[name] = msgspec.structs.replace(pool.statuses[name], change=back)
    elif record.reason != Reason.CanaryWork:
        deadline = format_timestamp(pool.now + seconds_of(timeout) + WORK_STARTS_SECONDS)
        pool.wake(deadline)
        _put(pool, name, record, reason=Reason.CanaryWork, message="the Job is made", deadline=deadline)
    elif job is not None:
        _put(pool, name, record, reason=Reason.CanaryWork, message=f"Job {job.namespace}/{job.name} runs")


def _wait_until_up(pool: Pool, name: str, record: NodeChange, change: FleetChange | None) -> None:
    steps = pool.statuses[name].steps
    blocking = next((step for step in steps if step.state not in ("Done", "NotOurs")), None)
    message = f"{blocking.name}: {blocking.message}" if blocking is not None else "the kubelet is not ready"
    if not pool.is_past(record.deadline):
        _put(pool, name, record, reason=Reason.Changing, message=message)
    elif record.want != record.previous:
        pool.statuses[name] = msgspec.structs.replace(
            pool.statuses[name], change=turn_back(pool, record, change, failed=True, why=message)
        )
    else:
        _put(pool, name, record, result="Failed", reason=Reason.NodesFailed, message=message)


def _put(
    pool: Pool,
    name: str,
    record: NodeChange,
    *,
    result: str = "",
    reason: str,
    message: str,
    deadline: str = "",
) -> None:
    since = record.since if record.reason == reason else format_timestamp(pool.now)
    if reason in (Reason.Draining, Reason.WaitingForCompletion, Reason.DrainBlocked):
        since = record.since  # of the whole drain, which has one deadline
    changed = msgspec.structs.replace(
        record,
        result=result,
        reason=reason,
        message=message,
        since=since,
        deadline="" if result else deadline or record.deadline,
    )
    pool.statuses[name] = msgspec.structs.replace(pool.statuses[name], change=changed)
