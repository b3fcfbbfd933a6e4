"""Representative work on the nodes of a canary: one Job a node, between its validation and its return to service.

`decide.change_nodes` asks how far the Job of a node is; while it runs the change's taint keeps everything else away.
Where its time is compared, the same Job runs on nodes with the old value, and `decide.change_verdicts` judges both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.operator.canary_jobs import CanaryJob, job_body, job_name
from windlass.operator.decide.change_run import ChangeRun
from windlass.operator.decide.gates import Compared, Verdict, judge
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.fleet_change import CANARY_GATE, FleetChange, FleetChangeStatus, Gate
from windlass.operator.observed import GateReading, Observed
from windlass.operator.writes import CreateJob, DeleteJob, Write

RUNNING_PHASES = ("Progressing", "Baking", "Held")


def work_of_node(pool: Pool, change: FleetChange, name: str) -> CanaryJob | None:
    """The Job of a node; made if it is not there."""
    found = pool.observed.jobs.get(job_name(change, name))
    if found is None:
        _create(pool, change, name)
    return found


def _create(pool: Pool, change: FleetChange, name: str) -> None:
    work, namespace = change.spec.canary.work, pool.observed.canary_namespace
    assert work is not None  # nobody asks otherwise
    hostname = pool.nodes[name].labels.get(HOSTNAME_LABEL, name)
    body = job_body(change, work, name, hostname, namespace)
    pool.writes.append(CreateJob(job_name(change, name), body))


def put_control_work(run: ChangeRun) -> None:
    """The same Job on as many nodes with the old value, once the canary has it."""
    pool, change, work = run.pool, run.change, run.change.spec.canary.work
    is_due = run.status.phase in RUNNING_PHASES and run.status.wave == 0
    if work is None or work.max_ratio is None or not is_due:
        return
    ours = [name for name in run.records if job_name(change, name) in pool.observed.jobs]
    known = control_nodes(pool, change, ours)
    missing = (work.control_nodes or len(ours)) - len(known)
    free = [
        name for name in pool.nodes if name not in run.records and name not in known and not pool.why_unavailable(name)
    ]
    free.sort(key=lambda name: (sum(pod.gpus for pod in pool.holders(name)), name))
    for name in free[: max(0, missing if ours else 0)]:
        _create(pool, change, name)


def control_nodes(pool: Pool, change: FleetChange, ours: Sequence[str]) -> list[str]:
    return [name for name in pool.nodes if name not in ours and job_name(change, name) in pool.observed.jobs]


def judge_work(pool: Pool, change: FleetChange, status: FleetChangeStatus, changed: Sequence[str]) -> Iterator[Verdict]:
    """While the canary bakes."""
    work = change.spec.canary.work
    if work is None or status.wave or status.phase not in ("Baking", "Held"):
        return
    jobs = {name: pool.observed.jobs.get(job_name(change, name)) for name in pool.nodes}
    seconds = {name: float(job.seconds) for name, job in jobs.items() if job is not None and job.state == "Succeeded"}
    done = [name for name in changed if name in seconds]
    if work.max_ratio is None:
        verdict = "Pass" if len(done) == len(changed) else "NoData"
        yield Verdict(CANARY_GATE, verdict, f"the work is done on {len(done)} of {len(changed)} changed nodes")
        return
    gate = Gate(name=CANARY_GATE, query="", max_ratio=work.max_ratio)
    compared = Compared(tuple(changed), tuple(control_nodes(pool, change, changed)), 0.0)
    yield judge(gate, GateReading(pool.now, seconds), compared, pool.now)


def stale_jobs(observed: Observed) -> Iterator[Write]:
    """Jobs that still run for a change that goes back, has ended or was deleted; what has ended is kept for its log."""
    changes = {change.metadata.uid: change for change in observed.changes}
    for job in observed.jobs.values():
        change = changes.get(job.change)
        is_wanted = (
            change is not None
            and change.status.phase in RUNNING_PHASES
            and change.status.wave == 0
            and job.name == job_name(change, job.node)
        )
        if not job.state and not is_wanted and not job.is_deleting:
            yield DeleteJob(job.name, job.namespace, job.uid)
