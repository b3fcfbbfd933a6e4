"""The repair of one GPU or node: suspected, contained, drained, reset, rebooted, validated, returned, or a ticket.

Called by `decide.main` for every open repair of a stack. Device first: only the ill GPU leaves; the whole node goes
only for a reboot, and only within the budget. It acts on what is true now: a fault that has gone is not treated.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from windlass.model.names.windlass import NODE_REQUEST_ANNOTATION, REPAIR_TAINT
from windlass.model.node import Taint
from windlass.model.repair_state import WHOLE_NODE
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.node.operator_link import NodeRequest
from windlass.operator.decide.drain import Drained, drain, repair_reason
from windlass.operator.decide.pool import RENEWED_WAIT_SECONDS, Pool, takes_node, wait_for
from windlass.operator.kinds.base import node_count, seconds_of
from windlass.operator.kinds.gpu_repair import Attempt, GPURepair, GPURepairStatus, Ticket
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView
from windlass.operator.pods import PodView
from windlass.operator.writes import CallTicketHook

MAX_ATTEMPTS = 16
NEXT_RUNG = {"": "reset", "reset": "reboot", "reboot": "ticket", "return": "ticket"}


@dataclass
class RepairRun:
    """A repair during one decision."""

    pool: Pool
    repair: GPURepair
    node: NodeView
    status: GPURepairStatus
    breaker: str

    def put(self, phase: str, reason: str, message: str, seconds: int = RENEWED_WAIT_SECONDS, **more: object) -> None:
        known = (self.status.reason if self.status.phase == phase else "", self.status.since, self.status.deadline)
        if "rung" in more and more["rung"] != self.status.rung:
            known = ("", "", "")
        wait = wait_for(known, reason, self.pool.now, seconds)
        if self.pool.is_past(wait.deadline) and seconds == RENEWED_WAIT_SECONDS:
            wait = wait_for(("", "", ""), reason, self.pool.now, seconds)
        self.pool.wake(wait.deadline)
        self.status = msgspec.structs.replace(
            self.status,
            phase=phase,
            reason=str(reason),
            message=message,
            since=wait.since,
            deadline=wait.deadline,
            **more,
        )

    def close(self, reason: str, message: str) -> None:
        now = format_timestamp(self.pool.now)
        self.status = msgspec.structs.replace(
            self.status,
            phase="Returned",
            reason=str(reason),
            message=message,
            since=now,
            deadline="",
            ended=now,
            rung="",
        )

    def note(self, rung: str, result: str, message: str) -> None:
        attempt = Attempt(rung=rung, at=format_timestamp(self.pool.now), result=result, message=message[:500])
        attempts = (*self.status.attempts, attempt)[-MAX_ATTEMPTS:]
        self.status = msgspec.structs.replace(self.status, attempts=attempts)

    @property
    def faults(self) -> list[str]:
        """What is wrong now with what is repaired; a fault without an action heals by itself."""
        device = self.repair.spec.device
        return [
            fault.fault
            for fault in self.node.faults
            if fault.action and (device == WHOLE_NODE or fault.device == device)
        ]

    @property
    def action(self) -> str:
        """The catalogue's, of the worst fault that is there now."""
        device = self.repair.spec.device
        now = {f.action for f in self.node.faults if device in (WHOLE_NODE, f.device)} or {self.repair.spec.action}
        return next((action for action in ("ticket", "reboot", "reset") if action in now), "")


def advance_repair(pool: Pool, repair: GPURepair, breaker: str) -> GPURepairStatus:
    """The new status. Requests to the node, taints and evictions are drafted in the pool."""
    if not repair.is_open:
        return repair.status
    status = msgspec.structs.replace(repair.status, observed_generation=repair.metadata.generation)
    if not status.opened:
        now = format_timestamp(pool.now)
        status = msgspec.structs.replace(status, opened=now, stack=pool.stack.name)
    node = pool.nodes.get(repair.spec.node)
    if node is None:
        return status
    run = RepairRun(pool, repair, node, status, breaker)
    if status.node_uid and status.node_uid != node.uid:
        run.close(Reason.NodeReplaced, f"node {node.name} was replaced")
        return run.status
    run.status = msgspec.structs.replace(run.status, node_uid=node.uid)
    if not _obey(run):
        _PHASES[run.status.phase](run)
    _taint(run)
    return run.status


def _obey(run: RepairRun) -> bool:
    """Carries a person's command out, once."""
    command = run.repair.spec.command
    if command is None or command.id == run.status.last_command:
        return False
    run.status = msgspec.structs.replace(run.status, last_command=command.id)
    by = f" by {command.by}" if command.by else ""
    why = f"{command.verb}{by}" + (f": {command.reason}" if command.reason else "")
    if command.verb == "Hold":
        run.put("Held", Reason.AwaitingPerson, why)
    elif command.verb == "Retry" and run.status.phase in ("Held", "Ticket"):
        run.put("Contained", Reason.Contained, why, rung="", ticket=Ticket())
    elif command.verb == "Return":
        _validate(run, "return")
    else:
        return False
    return True


def _suspected(run: RepairRun) -> None:
    """Waits whether the fault lasts; a person's word needs no proof."""
    spec, rules = run.repair.spec, run.pool.stack.spec.repair
    if spec.requested_by:
        run.put("Contained", Reason.RequestedByPerson, f"{spec.requested_by}: {spec.fault}")
    elif not run.faults:
        run.close(Reason.FaultGone, f"{spec.fault} ended by itself")
    else:
        seconds = seconds_of(rules.settle)
        run.put("Suspected", Reason.Suspected, ", ".join(run.faults), seconds)
        if run.pool.is_past(run.status.deadline):
            run.put("Contained", Reason.Contained, f"{', '.join(run.faults)}: the device is out of service")


def _contained(run: RepairRun) -> None:
    """Chooses the first rung; budgets and the breaker hold it here."""
    spec, rules = run.repair.spec, run.pool.stack.spec.repair
    if not spec.requested_by and not run.faults:
        _validate(run, "return")
        return
    repeats = _repeats(run)
    if spec.requested_by:
        _begin_drain(run, "")
    elif rules.policy != "Automatic":
        run.put("Contained", Reason.RepairsOff, f"repair.policy is {rules.policy}")
    elif repeats >= rules.repeats:
        _ticket(run, f"repair {repeats} of this GPU within {rules.repeats_within}")
    elif run.breaker:
        run.put("Contained", Reason.BreakerOpen, run.breaker)
    else:
        _climb(run, run.action or "reset")


def _climb(run: RepairRun, rung: str) -> None:
    """Begins a rung: reset, reboot or ticket."""
    rules = run.pool.stack.spec.repair
    if rung == "reset" and run.repair.spec.device == WHOLE_NODE:
        rung = "reboot"
    if rung == "reboot" and not rules.reboot:
        rung = "ticket"
    if rung == "ticket":
        _ticket(run, ", ".join(run.faults) or run.repair.spec.fault)
    elif rung == "reboot" and not _may_take_node(run):
        words = run.pool.unavailable_nodes()
        run.put("Contained", Reason.BudgetFull, f"a reboot of {run.node.name} has to wait: {words}")
    else:
        _begin_drain(run, rung)


def _may_take_node(run: RepairRun) -> bool:
    """Within the stack's count, and within that of repairs."""
    pool = run.pool
    limit = max(1, node_count(pool.stack.spec.repair.max_nodes, len(pool.nodes), round_up=False))
    others = {repair.spec.node for repair in pool.repairs if takes_node(repair)} | pool.repair_nodes
    others.discard(run.node.name)
    if len(others) >= limit or not pool.budget.take(run.node.name):
        return False
    pool.repair_nodes.add(run.node.name)
    return True


def _begin_drain(run: RepairRun, rung: str) -> None:
    seconds = seconds_of(run.pool.stack.spec.repair.drain_timeout)
    run.put("Draining", Reason.Draining, f"{run.repair.device_name} is drained", seconds, rung=rung)


def _draining(run: RepairRun) -> None:
    spec, rules = run.repair.spec, run.pool.stack.spec.repair
    rung = run.status.rung
    if not spec.requested_by and not run.faults:
        _validate(run, "return")
        return
    drained = drain(
        run.pool, run.node.name, _holders(run), run.status.since, rules.drain_wait, repair_reason(run.repair.name)
    )
    silent = _silent_holders(run)
    if drained.is_done and silent:
        words = f"the node's agent has not said which GPUs {', '.join(silent[:3])} hold"
        drained = Drained(False, Reason.DrainBlocked, words)
    if not drained.is_done:
        if run.pool.is_past(run.status.deadline):
            _ticket(run, f"the drain is blocked: {drained.message}")
        else:
            since, deadline = run.status.since, run.status.deadline
            run.put("Draining", drained.reason, drained.message)
            run.status = msgspec.structs.replace(run.status, since=since, deadline=deadline)
    elif not rung:
        run.put("Held", Reason.RequestedByPerson, f"{run.repair.device_name} is out of service and empty")
    elif run.breaker:
        run.put("Contained", Reason.BreakerOpen, run.breaker, rung="")
    elif rung == "reset":
        run.put("Resetting", Reason.Resetting, "the GPU is reset", seconds_of(rules.reset_timeout))
    else:
        boot_id = run.node.info.boot_id
        words = f"{run.node.name} is rebooted"
        run.put("Rebooting", Reason.Rebooting, words, seconds_of(rules.reboot_timeout), boot_id=boot_id)


def _holders(run: RepairRun) -> list[PodView]:
    """Pods on the device; all of the node for a reboot."""
    holders = run.pool.holders(run.node.name)
    if takes_node(run.repair) or run.status.rung == "reboot" or run.repair.spec.device == WHOLE_NODE:
        return holders
    return [pod for pod in holders if run.repair.spec.device in pod.devices]


def _silent_holders(run: RepairRun) -> list[str]:
    """Pods that may hold the device: they are waited for, and not evicted, since they may well hold another."""
    evicted = {pod.key for pod in _holders(run)}
    return [pod.key for pod in run.pool.holders(run.node.name) if not pod.devices and pod.key not in evicted]


def _resetting(run: RepairRun) -> None:
    answer = _ask(run, "reset")
    if answer == "Done":
        run.note("reset", "Done", "")
        _validate(run, "reset")
    elif answer or run.pool.is_past(run.status.deadline):
        why = run.node.answer.message if answer and run.node.answer is not None else "no answer in time"
        run.note("reset", "Failed", why)
        _climb_again(run, "reset")


def _rebooting(run: RepairRun) -> None:
    """Only another boot ID proves it: a node that is Ready may never have gone down."""
    if run.node.info.boot_id != run.status.boot_id and run.node.is_ready:
        run.note("reboot", "Done", f"boot ID {run.node.info.boot_id}")
        _validate(run, "reboot")
        return
    answer = _ask(run, "reboot")
    if answer == "Failed" or run.pool.is_past(run.status.deadline):
        why = (
            run.node.answer.message if answer and run.node.answer is not None else "the boot ID did not change in time"
        )
        run.note("reboot", "Failed", why)
        _ticket(run, f"reboot failed: {why}")


def _validate(run: RepairRun, rung: str) -> None:
    seconds = seconds_of(run.pool.stack.spec.repair.validate_timeout)
    run.put("Validating", Reason.Validating, f"{run.repair.device_name} is validated", seconds, rung=rung)


def _validating(run: RepairRun) -> None:
    answer = _ask(run, "validate")
    if answer == "Done" and not run.faults and run.node.is_ready:
        run.note("validate", "Done", "")
        run.close(Reason.Returned, f"{run.repair.device_name} is validated and back in service")
    elif answer == "Failed" or run.pool.is_past(run.status.deadline):
        why = ", ".join(run.faults) or (run.node.answer.message if answer and run.node.answer else "no answer in time")
        run.note("validate", "Failed", why)
        _climb_again(run, run.status.rung)


def _climb_again(run: RepairRun, rung: str) -> None:
    """The next rung, unless the breaker or the budget hold it: then the device stays contained."""
    if run.breaker:
        run.put("Contained", Reason.BreakerOpen, run.breaker, rung="")
    elif rung == "return":
        _ticket(run, f"validation failed: {run.status.attempts[-1].message}")
    else:
        _climb(run, NEXT_RUNG[rung])


def _ticket(run: RepairRun, why: str) -> None:
    """The device stays out; a node that only this repair held goes back into service without it."""
    has_hook = bool(run.pool.stack.spec.repair.ticket.url)
    run.put("Ticket", Reason.AwaitingTicket, why, rung="", ticket=Ticket(state="Calling" if has_hook else ""))


def _ticketed(run: RepairRun) -> None:
    run.put("Ticket", Reason.AwaitingTicket, run.status.message)
    url = run.pool.stack.spec.repair.ticket.url
    if run.repair.status.ticket.state == "Calling" and url:
        evidence = {
            "repair": run.repair.name,
            "node": run.node.name,
            "device": run.repair.spec.device,
            "fault": run.repair.spec.fault,
            "why": run.status.message,
            "faults": [msgspec.to_builtins(fault) for fault in run.node.faults],
            "attempts": [msgspec.to_builtins(attempt) for attempt in run.status.attempts],
            "repeats": _repeats(run),
        }
        run.pool.writes.append(CallTicketHook(run.repair.name, run.repair.metadata.uid, url, evidence))


def _held(run: RepairRun) -> None:
    run.put("Held", run.status.reason, run.status.message)


def _ask(run: RepairRun, action: str) -> str:
    """Asks the node's agent, once per attempt; its answer, or nothing yet. A node has one request at a time."""
    attempt = f"{run.repair.metadata.uid}/{action}/{len(run.status.attempts)}/{run.status.since}"
    identity = hashlib.sha256(attempt.encode()).hexdigest()[:16]
    answer = run.node.answer
    if answer is not None and answer.id == identity:
        return answer.state
    asking = [repair.name for repair in run.pool.repairs if _is_asking(repair, run.node.name)]
    if asking and run.repair.name != min(asking):
        return ""
    wanted = NodeRequest(identity, action, run.repair.spec.device)
    run.pool.patch(run.node.name).annotations[NODE_REQUEST_ANNOTATION] = msgspec.json.encode(wanted).decode()
    return ""


def _is_asking(repair: GPURepair, node: str) -> bool:
    return repair.spec.node == node and repair.status.phase in ("Resetting", "Rebooting", "Validating")


def _repeats(run: RepairRun) -> int:
    """Repairs of the same GPU within the time, this one included; a person's don't count."""
    spec, rules = run.repair.spec, run.pool.stack.spec.repair
    since = run.pool.now - seconds_of(rules.repeats_within)
    return sum(
        1
        for other in run.pool.repairs
        if (other.spec.node, other.spec.device) == (spec.node, spec.device)
        and not other.spec.requested_by
        and other.status.node_uid in ("", run.node.uid)
        and (other.name == run.repair.name or parse_timestamp(other.status.opened) >= since)
    )


def _taint(run: RepairRun) -> None:
    """On the whole node while the repair, as it was read back, has it. It goes when no repair has it any more."""
    if takes_node(run.repair) and run.status.phase != "Returned":
        taint = Taint(key=REPAIR_TAINT, effect="NoSchedule", value=run.repair.name)
        run.pool.patch(run.node.name).taints[REPAIR_TAINT] = taint


_PHASES = {
    "Suspected": _suspected,
    "Contained": _contained,
    "Draining": _draining,
    "Resetting": _resetting,
    "Rebooting": _rebooting,
    "Validating": _validating,
    "Ticket": _ticketed,
    "Held": _held,
}
