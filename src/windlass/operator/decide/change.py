"""One fleet change: which phase it is in, which nodes it takes next, and whether it goes on, waits or goes back.

Called by `decide.main` for each change of a stack. The phase is in the change's status, the state of each node in
its GPUNode (`decide.change_nodes`); nodes are taken only when the way back, `status.from`, has been read back from
the server.
"""

from __future__ import annotations

import msgspec

from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.decide import components
from windlass.operator.decide.canary_work import put_control_work
from windlass.operator.decide.change_nodes import joined_record, turn_back
from windlass.operator.decide.change_run import ChangeRun, changed_nodes, draft, is_used
from windlass.operator.decide.change_verdicts import Sides, verdicts
from windlass.operator.decide.change_waves import take, target
from windlass.operator.decide.image_change import (
    abort,
    counted,
    image_now,
    image_sides,
    is_of_image,
    progress,
    roll_back,
    why_not_changed,
)
from windlass.operator.decide.pool import Pool
from windlass.operator.decide.windows import why_closed
from windlass.operator.kinds.base import node_count, seconds_of
from windlass.operator.kinds.fleet_change import FleetChange, FleetChangeStatus, GateStatus
from windlass.operator.kinds.reasons import Reason

SHOWN_STRAGGLERS = 32


def advance_change(pool: Pool, change: FleetChange) -> FleetChangeStatus:
    """The new status; records of nodes that are taken or turned back are drafted in the pool."""
    run = ChangeRun(pool, change, change.status)
    run.status = msgspec.structs.replace(run.status, observed_generation=change.metadata.generation)
    if not _obey(run):
        _PHASES.get(change.status.phase, _stay)(run)
        put_control_work(run)
    return _counted(run)


def _stay(run: ChangeRun) -> None:
    """A final phase."""


def _obey(run: ChangeRun) -> bool:
    """Carries a person's command out, once. Whether it was one that this phase knows."""
    command, status = run.change.spec.command, run.status
    if command is None or command.id == status.last_command:
        return False
    run.status = msgspec.structs.replace(status, last_command=command.id)
    by = f" by {command.by}" if command.by else ""
    why = f"{command.verb}{by}" + (f": {command.reason}" if command.reason else "")
    has_begun = status.from_ is not None
    if command.verb == "Promote" and status.phase in ("Baking", "Held") and has_begun:
        run.status = msgspec.structs.replace(run.status, promoted=status.wave + 1)
        _next_wave(run, why)
    elif command.verb == "Abort" and not run.change.is_final:
        if has_begun:
            run.put("Aborting", Reason.Aborted, why)
        else:
            run.end("Aborted", Reason.Aborted, why)
    elif command.verb == "Rollback" and _may_roll_back(run):
        run.put("RollingBack", Reason.AwaitingPerson, why)
    elif command.verb == "Retry" and status.phase in ("Refused", "RolledBack", "Aborted", "Failed"):
        _begin_again(run, command.id, why)
    else:
        if run.change.is_final:
            words = f"{why} is not possible: the change has ended, and its nodes have been changed since"
            run.status = msgspec.structs.replace(run.status, message=words)
        return False
    return True


def _begin_again(run: ChangeRun, command: str, why: str) -> None:
    """When the records of what failed are gone, as the server has it: they would end the change once more."""
    stale = [name for name, record in run.records.items() if record.result and record.result != "Done"]
    for name in stale:
        draft(run, name, None)
    if stale:
        run.status = run.change.status
        return
    run.status = FleetChangeStatus(
        attempts=run.status.attempts + 1,
        last_command=command,
        observed_generation=run.change.metadata.generation,
    )
    run.put("Pending", Reason.Changing, why)


def _may_roll_back(run: ChangeRun) -> bool:
    """After its end, only the last change of a stack can be undone: its nodes have no other record yet."""
    status = run.status
    if status.from_ is None or status.phase in ("RolledBack", "Refused"):
        return False
    if not run.change.is_final:
        return True
    if is_of_image(run.change) and image_now(run.pool, run.change) != status.to:
        return False
    records = (run.pool.statuses[name].change for name in changed_nodes(run))
    is_last = all(record is None or record.uid == run.change.metadata.uid for record in records)
    return is_last and not any(other.is_unfinished for other in run.pool.changes)


def _pending(run: ChangeRun) -> None:
    pool, change = run.pool, run.change
    component, to = change.spec.component, change.spec.to
    others = [other for other in pool.changes if other.name != change.name]
    blocking = next((other for other in others if _is_ahead(other, change)), None)
    is_image = is_of_image(change)
    not_ours = why_not_changed(pool, change) if is_image else components.why_not_ours(pool, component)
    known = image_now(pool, change) if is_image else components.current_value(pool.current, component)
    runs_already = known == to if is_image else components.runs_already(pool, component, to)
    if blocking is not None:
        words = f"change {blocking.name} of stack {pool.stack.name} is unfinished; after it: windlass change retry"
        run.end("Refused", Reason.ChangeRunning, f"{words} {change.name}")
    elif not_ours:
        run.end("Refused", Reason.OtherOwner, not_ours)
    elif runs_already:
        run.end("Succeeded", Reason.Done, f"the stack runs {component} {to} already")
    else:
        run.status = msgspec.structs.replace(
            run.status,
            component=component,
            from_=known,
            to=to,
            wave=0,
            waves=len(run.waves),
        )
        run.put("Progressing", Reason.Changing, f"wave 1 of {len(run.waves)}")


def _is_ahead(other: FleetChange, change: FleetChange) -> bool:
    """Whether the other one holds the lock, or asked for it first."""
    if other.is_unfinished or other.is_final:
        return other.is_unfinished
    key = (other.metadata.creation_timestamp, other.name)
    return key < (change.metadata.creation_timestamp, change.name)


def _progressing(run: ChangeRun) -> None:
    pool, status = run.pool, run.status
    if _has_failed(run):
        return
    if is_of_image(run.change):
        _progressing_image(run)
        return
    records = run.records
    under_way = [name for name, record in records.items() if not record.result]
    missing = target(run) - len(changed_nodes(run)) - len([name for name, record in records.items() if is_used(record)])
    wave = f"wave {status.wave + 1} of {len(run.waves)}"
    if missing > 0:
        obstacle = take(run, missing)
        records = run.records
        under_way = [name for name, record in records.items() if not record.result]
        if obstacle is not None and not under_way:
            run.put("Progressing", obstacle[0], f"{wave}: {obstacle[1]}")
            return
    if under_way:
        run.put("Progressing", Reason.Changing, f"{wave}: {len(under_way)} nodes under way")
    elif changed_nodes(run):
        _bake(run)
    elif not records and not (status.reason == Reason.NodeNotReady and pool.is_past(status.deadline)):
        words = f"{wave}: no node of the stack is ready to be changed"
        run.put("Progressing", Reason.NodeNotReady, words, seconds_of(run.change.spec.node_timeout))
    else:
        blocked = [f"{name}: {record.message}" for name, record in records.items() if record.result == "Blocked"]
        run.end("Failed", Reason.DrainBlocked, f"no node could be changed: {'; '.join(blocked[:3]) or 'none is ready'}")
    pool.wake(pool.now + 60)


def _progressing_image(run: ChangeRun) -> None:
    closed = why_closed(run.change.spec, run.pool.now)
    is_begun = run.status.reason == Reason.RollingOut
    if run.change.spec.paused and not is_begun:
        run.put("Progressing", Reason.Paused, "paused (windlass change resume)")
    elif closed is not None and not is_begun:
        run.pool.wake(closed[2])
        run.put("Progressing", closed[0], closed[1])
    elif progress(run):
        _bake(run)


def _has_failed(run: ChangeRun) -> bool:
    """Nodes that did not come up, and gates that fail early, end the wave at once."""
    failed = [name for name, record in run.records.items() if record.failed and record.wave >= run.status.promoted]
    whole = len(run.pool.nodes)
    allowed = 0 if run.status.wave == 0 else node_count(run.change.spec.max_failed, whole, round_up=False)
    if len(failed) > allowed:
        record = run.records[failed[0]]
        run.fail(Reason.NodesFailed, f"{len(failed)} of {len(run.records)} nodes failed: {failed[0]}: {record.message}")
        return True
    _judge(run)
    failing = next((gate for gate in run.status.gates if gate.verdict == "Fail"), None)
    if failing is not None:
        run.fail(Reason.GateFailing, f"gate {failing.name}: {failing.message}")
    return failing is not None


def _judge(run: ChangeRun) -> None:
    known = {gate.name: gate for gate in run.status.gates}
    found = []
    for verdict in verdicts(run.pool, run.change, run.status, run.records, _sides(run)):
        before = known.get(verdict.gate)
        is_same = before is not None and (before.verdict, before.wave) == (verdict.verdict, run.status.wave)
        at = before.at if before is not None and is_same else format_timestamp(run.pool.now)
        # The numbers of a gate that keeps its verdict change with every sample; that alone is no reason to write.
        is_kept = is_same and verdict.verdict != "NoData"
        message = before.message if before is not None and is_kept else verdict.message
        found.append(
            GateStatus(name=verdict.gate, verdict=verdict.verdict, message=message, at=at, wave=run.status.wave)
        )
    run.status = msgspec.structs.replace(run.status, gates=tuple(found))


def _sides(run: ChangeRun) -> Sides:
    if is_of_image(run.change):
        return image_sides(run)
    pool, records, changed = run.pool, run.records, tuple(changed_nodes(run))
    control = (name for name in pool.nodes if name not in records and name not in changed)
    earlier = frozenset(name for name in changed if name not in records or records[name].wave != run.status.wave)
    return Sides(changed, tuple(name for name in control if not pool.why_unavailable(name)), earlier)


def _bake(run: ChangeRun) -> None:
    run.status = msgspec.structs.replace(run.status, bake_since=format_timestamp(run.pool.now), gates=())
    wave = run.wave
    words = f"wave {run.status.wave + 1} of {len(run.waves)} is watched for {wave.bake}"
    run.put("Baking", Reason.Baking, words, seconds_of(wave.bake))


def _baking(run: ChangeRun) -> None:
    run.pool.gates_due.append(run.change.name)
    if _has_failed(run):
        return
    ends = parse_timestamp(run.status.bake_since) + seconds_of(run.wave.bake)
    if run.pool.now < ends:
        run.pool.wake(ends)
        return
    if run.change.spec.paused:
        run.put("Baking", Reason.Paused, "the bake is over; paused (windlass change resume)")
        return
    unsure = next((gate for gate in run.status.gates if gate.verdict != "Pass"), None)
    if unsure is None:
        _next_wave(run, "every gate has passed")
        return
    reason = Reason.GateNoData if unsure.verdict == "NoData" else Reason.GateInconclusive
    run.put("Held", reason, f"gate {unsure.name}: {unsure.message}", seconds_of(run.change.spec.data_timeout))


def _held(run: ChangeRun) -> None:
    """For want of data until it comes or its time is over; for a failure until a person decides."""
    if run.status.reason not in (Reason.GateNoData, Reason.GateInconclusive):
        run.pool.is_past(run.status.deadline)
        return
    is_late = run.pool.is_past(run.status.deadline)
    reason, message = Reason(run.status.reason), run.status.message
    deadline = run.status.deadline
    _baking(run)
    if run.status.phase == "Held" and is_late:
        run.fail(reason, f"{message} (until {deadline})")


def _next_wave(run: ChangeRun, why: str) -> None:
    status = run.status
    if status.wave + 1 < len(run.waves):
        run.status = msgspec.structs.replace(status, wave=status.wave + 1, bake_since="", gates=())
        run.put("Progressing", Reason.Changing, f"wave {status.wave + 2} of {len(run.waves)}: {why}")
    elif not is_of_image(run.change) and components.current_value(run.pool.current, status.component) != status.to:
        # New nodes begin with it from now on; the change ends when that has been read back.
        run.pool.current = components.with_current(run.pool.current, status.component, status.to)
        run.status = msgspec.structs.replace(status, last_command=run.change.status.last_command)
    else:
        run.end("Succeeded", Reason.Done, why)


def _rolling_back(run: ChangeRun) -> None:
    """Every node that has the new value goes back, those that are out of service already without a slot."""
    pool, status = run.pool, run.status
    if is_of_image(run.change):
        if roll_back(run):
            run.end("RolledBack", status.reason, f"{status.message}; every pod is back on {status.from_}")
        return
    if components.current_value(pool.current, status.component) == status.to:
        pool.current = components.with_current(pool.current, status.component, status.from_ or "")
        return
    for name in changed_nodes(run):
        if pool.statuses[name].change is None and pool.budget.take(name):
            draft(run, name, joined_record(pool, run.change))
    for name, record in run.records.items():
        if record.want == record.previous or record.result == "Blocked":
            continue
        if name in pool.budget.unavailable or pool.budget.take(name):
            draft(run, name, turn_back(pool, record, run.change, failed=False, why=status.message))
    left = [name for name, record in run.records.items() if not record.result or record.want != record.previous]
    left = [name for name in left if run.records[name].result != "Blocked"]
    left += [name for name in changed_nodes(run) if pool.statuses[name].change is None]
    stuck = [name for name, record in run.records.items() if record.result == "Failed"]
    if left:
        run.put("RollingBack", status.reason, status.message)
    elif stuck:
        run.end("Failed", Reason.NodesFailed, f"{len(stuck)} nodes did not come back: {', '.join(stuck[:3])}")
    else:
        count = sum(record.result == "RolledBack" for record in run.records.values())
        words = f"{status.message}; {count} nodes are back on {status.from_ or 'what was installed'}, validated"
        run.end("RolledBack", status.reason, words)


def _aborting(run: ChangeRun) -> None:
    """Nodes under way go back, those that are done stay."""
    if is_of_image(run.change):
        abort(run)
        return
    for name, record in run.records.items():
        if not record.result and record.want != record.previous:
            draft(run, name, turn_back(run.pool, record, run.change, failed=False, why="aborted"))
    if not any(not record.result for record in run.records.values()):
        count = len(changed_nodes(run))
        run.end("Aborted", Reason.Aborted, f"{run.status.message}; {count} nodes keep {run.status.to}")


def _counted(run: ChangeRun) -> FleetChangeStatus:
    if run.status.from_ is None:
        return run.status
    if is_of_image(run.change):
        return counted(run)
    changed, records = changed_nodes(run), run.records
    stragglers = [name for name in run.pool.nodes if name not in changed] if run.status.phase == "Succeeded" else []
    return msgspec.structs.replace(
        run.status,
        nodes=len(run.pool.nodes),
        changed=len(changed),
        failed=sum(record.failed for record in records.values()),
        stragglers=tuple(stragglers[:SHOWN_STRAGGLERS]),
    )


_PHASES = {
    "Pending": _pending,
    "Progressing": _progressing,
    "Baking": _baking,
    "Held": _held,
    "RollingBack": _rolling_back,
    "Aborting": _aborting,
}
