"""Brings a node up: its steps in order, each with a deadline and tries, and the taint that keeps GPU work out until
then.

Called by `decide.main` for every node of a stack. What fails is tried again with growing pauses, and other nodes go
on.
"""

from __future__ import annotations

import msgspec

from windlass.model.names.nvidia import MIG_CONFIG_LABEL
from windlass.model.names.windlass import (
    AGENT_REVISION_LABEL,
    DRIVER_REVISION_LABEL,
    HELD_DEVICES_ANNOTATION,
    REPAIR_UNTIL_ANNOTATION,
)
from windlass.model.node import Taint
from windlass.model.repair_state import ENDS_BY_ITSELF, NEEDS_PERSON, WHOLE_NODE
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.decide.driver_step import wanted_driver
from windlass.operator.decide.gpu_operator import default_driver
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL, Found, NodeFacts
from windlass.operator.decide.owners import step_owners
from windlass.operator.decide.pool import Pool
from windlass.operator.decide.steps import FINDERS, OPTIONAL_STEPS, STEP_SECONDS
from windlass.operator.decide.take_over import why_handing_over
from windlass.operator.kinds.base import seconds_of
from windlass.operator.kinds.gpu_node import STEP_NAMES, DeviceStatus, GPUNodeStatus, Step
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView
from windlass.operator.writes import PutNodeCondition

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 60, 3600
IS_DONE = ("Done", "NotOurs")


def bring_up(pool: Pool, name: str) -> None:
    """Drafts the node's status, its taint and the labels that choose what it runs."""
    node, known = pool.nodes[name], pool.statuses[name]
    held = held_devices(pool, name)
    facts = _facts(pool, node, known, held)
    steps = _advance_steps(pool, facts, known)
    status = msgspec.structs.replace(
        _summary(pool, node, steps, known),
        stack=pool.stack.name,
        steps=steps,
        devices=_devices(pool, node, held),
        node_uid=node.uid,
        boot_id=node.info.boot_id,
        driver=node.labels.get(DRIVER_VERSION_LABEL, ""),
        change=known.change,
    )
    pool.statuses[name] = status
    _choose_revisions(pool, facts)
    _gate(pool, node, status)
    annotations = pool.patch(name).annotations
    annotations[HELD_DEVICES_ANNOTATION] = ",".join(map(str, sorted(held))) or None
    annotations[REPAIR_UNTIL_ANNOTATION] = _repair_end(pool, name) if held else None


def _facts(pool: Pool, node: NodeView, known: GPUNodeStatus, held: frozenset[int]) -> NodeFacts:
    record = known.change
    return NodeFacts(
        node=node,
        pods=pool.pods_on(node.name),
        stack=pool.stack,
        current=pool.current,
        owners=step_owners(node),
        repaired_devices=held,
        default_driver=default_driver(pool.observed),
        is_changing=record is not None and not record.result and record.component == "driver",
        handover=why_handing_over(pool, node.name),
    )


def held_devices(pool: Pool, name: str) -> frozenset[int]:
    """GPUs that an open repair keeps out of service."""
    return frozenset(
        repair.spec.device
        for repair in pool.repairs
        if repair.spec.node == name
        and repair.spec.device != WHOLE_NODE
        and repair.is_open
        and repair.status.phase != "Suspected"
    )


def _repair_end(pool: Pool, name: str) -> str:
    """When the last of the node's repairs is over if each goes on by itself, as far as that is known."""
    ends = [
        repair.status.deadline if repair.status.phase in ENDS_BY_ITSELF else NEEDS_PERSON
        for repair in pool.repairs
        if repair.spec.node == name and repair.is_open and repair.status.phase != "Suspected"
    ]
    return NEEDS_PERSON if NEEDS_PERSON in ends else max(ends)


def is_up(steps: tuple[Step, ...]) -> bool:
    return bool(steps) and all(step.state in IS_DONE for step in steps if step.name not in OPTIONAL_STEPS)


def _advance_steps(pool: Pool, facts: NodeFacts, known: GPUNodeStatus) -> tuple[Step, ...]:
    before = {step.name: step for step in known.steps}
    steps: list[Step] = []
    blocking = ""
    for name in STEP_NAMES:
        found = FINDERS[name](facts)
        if blocking and found.state not in IS_DONE:
            found = Found("Waiting", Reason.AwaitsStep, f"{blocking} is not done", found.owner)
        seconds = STEP_SECONDS[name]
        if name == "driver":
            seconds = seconds_of(facts.stack.spec.driver.load_timeout)
        step = advance(pool, before.get(name), name, found, seconds)
        steps.append(step)
        if step.state not in IS_DONE and name not in OPTIONAL_STEPS and not blocking:
            blocking = name
    return tuple(steps)


def advance(pool: Pool, before: Step | None, name: str, found: Found, seconds: int) -> Step:
    """The step with its times: the deadline is that of the try, so that a changing reason doesn't put it off."""
    now = pool.stamp
    step = Step(name=name, owner=found.owner, state=found.state, reason=found.reason, message=found.message, since=now)
    is_same = before is not None and (before.state, before.reason) == (found.state, str(found.reason))
    if found.state in IS_DONE:
        return msgspec.structs.replace(step, since=before.since) if is_same and before is not None else step
    tries = before.tries if before is not None else 0
    if before is not None and before.state == "Failed" and not pool.is_past(before.deadline):
        return msgspec.structs.replace(before, owner=found.owner, reason=found.reason, message=found.message)
    is_waiting = before is not None and before.state in ("Waiting", "Working")
    if found.state == "Failed" or (before is not None and is_waiting and pool.is_past(before.deadline)):
        pause = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS << min(tries, 6))
        deadline = format_timestamp(pool.now + pause)
        pool.wake(deadline)
        return msgspec.structs.replace(step, state="Failed", deadline=deadline, tries=tries + 1)
    if before is not None and is_waiting:
        since = before.since if is_same else now
        return msgspec.structs.replace(step, since=since, deadline=before.deadline, tries=tries)
    deadline = format_timestamp(pool.now + seconds)
    pool.wake(deadline)
    return msgspec.structs.replace(step, deadline=deadline, tries=tries)


def _summary(pool: Pool, node: NodeView, steps: tuple[Step, ...], known: GPUNodeStatus) -> GPUNodeStatus:
    blocking = next((step for step in steps if step.state not in IS_DONE and step.name not in OPTIONAL_STEPS), None)
    phase, reason, message, deadline = "Ready", str(Reason.Done), "", ""
    if not node.is_ready:
        phase, reason, message = "NotReady", str(Reason.NodeNotReady), "the kubelet is not ready"
        deadline = format_timestamp(parse_timestamp(known.since or format_timestamp(pool.now)) + 24 * 3600)
    elif blocking is not None:
        phase, reason = "NotReady", blocking.reason
        message, deadline = f"{blocking.name} {blocking.state}: {blocking.message}", blocking.deadline
    same = (known.phase, known.reason) == (phase, reason) and known.since
    return GPUNodeStatus(
        phase=phase,
        reason=reason,
        message=message,
        since=known.since if same else format_timestamp(pool.now),
        deadline=deadline,
        was_ready=known.was_ready or phase == "Ready",
    )


def _devices(pool: Pool, node: NodeView, held: frozenset[int]) -> tuple[DeviceStatus, ...]:
    """The GPUs that are not in service; the others are not listed one by one."""
    faults = {fault.device: fault for fault in node.faults}
    repairs = {
        repair.spec.device: repair.name
        for repair in pool.repairs
        if repair.spec.node == node.name and repair.is_open and repair.spec.device != WHOLE_NODE
    }
    return tuple(
        DeviceStatus(
            index=index,
            state="HeldBack" if index in held else "Faulty",
            fault=faults[index].fault if index in faults else "",
            repair=repairs.get(index, ""),
        )
        for index in sorted(held | faults.keys())
    )


def _choose_revisions(pool: Pool, facts: NodeFacts) -> None:
    """Labels that choose what the node runs, where nothing has chosen yet; `decide.change_nodes` moves them. Only on
    a node that is closed and empty: whatever obeys the label exchanges the driver under pods."""
    node = facts.node
    if not node.has_taint(pool.stack.spec.not_ready_taint) or pool.holders(node.name):
        return
    wanted = wanted_driver(facts)
    if wanted and DRIVER_REVISION_LABEL not in node.labels:
        pool.patch(node.name).labels[DRIVER_REVISION_LABEL] = wanted
    if pool.current.agent and AGENT_REVISION_LABEL not in node.labels:
        pool.patch(node.name).labels[AGENT_REVISION_LABEL] = pool.current.agent
    if pool.current.mig and MIG_CONFIG_LABEL not in node.labels:
        pool.patch(node.name).labels[MIG_CONFIG_LABEL] = pool.current.mig


def _gate(pool: Pool, node: NodeView, status: GPUNodeStatus) -> None:
    """The taint and the condition. A node that is open is closed only within the budget, so that a mistake in a stack
    can't close a fleet; a new node has the taint from its registration on."""
    key = pool.stack.spec.not_ready_taint
    if status.phase == "Ready":
        if node.has_taint(key):
            pool.patch(node.name).taints[key] = None
    elif not node.has_taint(key) and pool.budget.take(node.name):
        pool.patch(node.name).taints[key] = Taint(key=key, effect="NoSchedule")
    wanted = "True" if status.phase == "Ready" else "False"
    if node.gpu_ready_condition != wanted:
        pool.writes.append(PutNodeCondition(node.name, wanted, status.reason, status.message))
