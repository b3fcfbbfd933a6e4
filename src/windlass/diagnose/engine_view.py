"""The engine's plan for waiting work: the hold, the workloads ahead, the estimated start.

Called by `what_if` and `why`. The plan is `decide`'s own, on the snapshot that `FitChecker` uses, so that `why` and the
scheduler can't disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from windlass.cluster.snapshot import Snapshot
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.explanations import USERS
from windlass.diagnose.finding import Finding, Outlook
from windlass.isolation import IsolatingEngine
from windlass.model.configuration import Settings
from windlass.model.decision import Ask, Hold
from windlass.model.errors import InputError
from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION
from windlass.model.obstacle import UNHEALTHY
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.requests import is_extended_resource, pod_requests
from windlass.model.times import format_timestamp
from windlass.model.verdict import MAX_NAMED, NEVER_FITS
from windlass.model.workload import Workload
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS, Advisor
from windlass.planner import engine_config
from windlass.queueing.queue_sort import sort_pending_pods

MOST_NAMED = 10
QUEUEING_CODES = frozenset(
    {
        "KUEUE_QUEUE_MISSING",
        "KUEUE_QUOTA_INSUFFICIENT",
        "KUEUE_QUOTA_MISCONFIGURED",
        "KUEUE_FLAVOR_MISMATCH",
        "KUEUE_TOPOLOGY_NOFIT",
        "QUEUE_BEHIND_HEAD",
        "ADMISSION_DEFERRED",
        "QUEUE_LIMIT_REACHED",
        "RESERVED_FOR_OTHERS",
        "RESOURCE_QUOTA_EXCEEDED",
        "WAITING_FOR_PREEMPTION",
        "GANG_INCOMPLETE",
    }
)
"""Codes that no single node shows; for all others `unschedulable` looks at the nodes."""


class EngineView:
    """One plan for a snapshot, and lookups in it."""

    def __init__(self, snapshot: Snapshot, settings: Settings, now: int) -> None:
        self._snapshot, self._settings, self._now = snapshot, settings, now

    @cached_property
    def _decided(self) -> tuple[Plan, Advisor | None]:
        engine = IsolatingEngine(engine_config(self._settings))
        plan, advisor, _ = engine.decide_without_explanations(self._snapshot, self._now)
        return plan, advisor

    @property
    def _plan(self) -> Plan:
        return self._decided[0]

    @cached_property
    def _explained(self) -> Plan:
        """The same plan with its first holds explained. On demand, since explaining takes longer than deciding."""
        plan, advisor = self._decided
        return plan if advisor is None else advisor.explain(plan, MAX_EXPLAINED_HOLDS)

    def has_known_end_times(self) -> bool:
        """Whether any run-time limit is known; without one no start can be estimated."""
        if self._snapshot.run_times:
            return True
        return any(workload.max_run_seconds is not None for workload in self._snapshot.workloads) or any(
            pod.spec.active_deadline_seconds is not None or DECLARED_DURATION_ANNOTATION in pod.metadata.annotations
            for pod in self._snapshot.pods.objects
        )

    def queue_position(self, pod: str) -> Outlook | None:
        """The position of a single pod among pending pods that request the same devices, without an estimate."""
        rows = sort_pending_pods(self._snapshot).tolist()
        pending = [self._snapshot.pods.objects[row].key for row in rows]
        if pod not in pending or pod in self._workloads:
            return None
        own_devices = self._devices(pod)
        ahead = [key for key in pending[: pending.index(pod)] if own_devices & self._devices(key)]
        basis = "no estimate: the pods that run on these nodes have no run-time limit"
        return Outlook(len(ahead) + 1, "", tuple(ahead[:MOST_NAMED]), basis=basis)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Workload → index of its hold in the plan."""
        return {hold.workload: place for place, hold in enumerate(self._plan.holds)}

    @cached_property
    def _workloads(self) -> dict[str, Workload]:
        return {workload.key: workload for workload in self._snapshot.workloads}

    def keys_of(self, kind: str, name: str) -> list[str]:
        """Under which keys the object's workload may be: its name, unless that is the key of another kind's; then its
        name and kind."""
        found = self._workloads.get(name)
        is_own = (found.kind if found is not None else "Pod") == kind
        return [name] if is_own else [f"{name}.{kind.lower()}"]

    def workloads_containing(self, pods: Iterable[str]) -> list[str]:
        """Keys of the workloads that contain these pods, also if the owning object is not in the evidence."""
        return list(dict.fromkeys(key for pod in pods for key in self._workloads_by_pod.get(pod, ())))

    def shapes_of(self, pods: Iterable[str]) -> tuple[int, ...]:
        """The shapes of these pods: pods of one shape have the same requests and node rules."""
        rows = (self._pod_rows.get(pod) for pod in pods)
        return tuple(sorted({int(self._snapshot.pods.shape[row]) for row in rows if row is not None}))

    @cached_property
    def _workloads_by_pod(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for workload in self._snapshot.workloads:
            for pod in (pod for pod_set in workload.pod_sets for pod in pod_set.pod_keys):
                found.setdefault(pod, []).append(workload.key)
        return found

    def explained_hold(self, keys: Collection[str]) -> Hold | None:
        """The hold of the first of these workloads that is held, explained."""
        place = next((self._places[key] for key in keys if key in self._places), None)
        if place is None:
            return None
        if place < MAX_EXPLAINED_HOLDS:
            return self._explained.holds[place]
        plan, advisor = self._decided
        return plan.holds[place] if advisor is None else advisor.explain_hold(plan.holds[place])

    def decided_hold(self, keys: Collection[str]) -> Hold | None:
        """The same hold without explanations."""
        place = next((self._places[key] for key in keys if key in self._places), None)
        return None if place is None else self._plan.holds[place]

    def would_start(self, keys: Collection[str]) -> bool:
        """Whether the plan admits or binds one of them."""
        wanted = set(keys)
        return any(admit.workload in wanted for admit in self._plan.admits) or any(
            bind.pod in wanted for bind in self._plan.binds
        )

    def asks_for(self, keys: Collection[str]) -> list[Ask]:
        """What is asked to make room for one of them."""
        return [ask for ask in self._plan.asks if ask.for_workload in keys]

    def outlook(self, hold: Hold) -> Outlook:
        verdict = hold.verdict
        ahead = self._ahead(hold)
        relief = verdict.relief
        start = verdict.planned_start
        basis = verdict.outlook.partition("; ")[0]
        if start is None and relief is not None:
            start, basis = relief.at, relief.text
        return Outlook(
            position=len(ahead) + 1,
            queue=self._queue_of(hold.workload),
            ahead=tuple(ahead[:MOST_NAMED]),
            start=format_timestamp(start) if start is not None else None,
            planned=verdict.planned_start is not None,
            basis=basis,
        )

    def _ahead(self, hold: Hold) -> list[str]:
        """Workloads that wait ahead of it: in its queue, or for the same devices if it is in none."""
        queue = self._queue_of(hold.workload)
        others = [other for other in self._plan.holds if other.workload != hold.workload]
        if queue:
            before = [
                other
                for other in others
                if self._queue_of(other.workload) == queue
                and other.verdict.outlook
                and other.verdict.ahead < hold.verdict.ahead
            ]
            return [other.workload for other in sorted(before, key=lambda other: other.verdict.ahead)]
        own_devices, place = self._devices(hold.workload), self._places[hold.workload]
        return [
            other.workload
            for other in others
            if self._places[other.workload] < place and own_devices & self._devices(other.workload)
        ]

    def _queue_of(self, key: str) -> str:
        """The ClusterQueue of the workload; empty if it has none."""
        workload = self._workloads.get(key)
        if workload is None or not workload.queue_name:
            return ""
        local = self._snapshot.queue_system.local_queue(workload.namespace, workload.queue_name)
        return local.cluster_queue if local is not None else ""

    def _devices(self, key: str) -> frozenset[str]:
        """The extended resources that it requests."""
        workload = self._workloads.get(key)
        if workload is not None:
            pods = [pod_set.template for pod_set in workload.pod_sets]
        else:
            row = self._pod_rows.get(key)
            pods = [] if row is None else [self._snapshot.pods.objects[row]]
        return frozenset(name for pod in pods for name in _requested(pod) if is_extended_resource(name))

    @cached_property
    def _pod_rows(self) -> dict[str, int]:
        return {pod.key: row for row, pod in enumerate(self._snapshot.pods.objects)}


def _requested(pod: Pod) -> Collection[str]:
    try:
        return pod_requests(pod)
    except InputError:
        return ()  # an invalid pod, which is held for that


def queueing_finding(hold: Hold) -> Finding | None:
    """The engine's hold as a finding, if its code does not depend on nodes: quota, order, planned starts, gang."""
    verdict = hold.verdict
    if verdict.code not in QUEUEING_CODES or verdict.code not in CAUSES:
        return None
    limits = [limit.text for limit in verdict.limits if limit.kind != "object"]
    quotas = [limit.text for limit in verdict.limits if limit.kind == "quota"]
    message = "; ".join(quotas or limits[:1]) or verdict.detail or verdict.message
    proof = (verdict.detail,) if verdict.detail and verdict.detail != message else ()
    if verdict.code == "KUEUE_QUOTA_INSUFFICIENT" and verdict.is_infeasible:
        said = message.rstrip(".") if "never starts" in message else f"{message.rstrip('.')}; {NEVER_FITS}"
        return Finding(verdict.code, said, proof, remedy=NEVER_REMEDY, changed_by=USERS)
    return Finding(verdict.code, message.rstrip("."), proof, remedy=verdict.remedy)


NEVER_REMEDY = "waiting does not help: ask for less, or have its quota raised or nodes added"


def unhealthy_gpus(hold: Hold) -> tuple[str, ...]:
    """The nodes that would take it if their unhealthy GPUs, which are named, were healthy."""
    return tuple(obstacle.text for obstacle in hold.verdict.obstacles if obstacle.kind == UNHEALTHY)


def making_no_room(hold: Hold) -> tuple[str, ...]:
    """Why no preemption makes room for it, and what the API server has refused."""
    obstacles = (obstacle.text for obstacle in hold.verdict.obstacles if obstacle.kind != UNHEALTHY)
    said = (*obstacles, *(refusal.text for refusal in hold.verdict.refusals))
    return tuple(dict.fromkeys(said))[:MAX_NAMED]


def engine_finding(hold: Hold) -> Finding:
    """The engine's hold as a finding with the engine's message and remedy, whatever its code."""
    verdict = hold.verdict
    is_topology = any(limit.kind == "topology" for limit in verdict.limits)
    remedy = CAUSES["KUEUE_TOPOLOGY_NOFIT"].remedy if is_topology else verdict.remedy
    return Finding(verdict.code, verdict.sentences[0].rstrip("."), remedy=remedy)


def outlook_lines(outlook: Outlook) -> list[str]:
    """The outlook for people: position, workloads ahead, estimated start."""
    names = outlook.ahead
    where = f"in queue {outlook.queue}" if outlook.queue else "among the pods that wait for the same GPUs"
    lines = [f"position {outlook.position} {where}"]
    if names:
        more = outlook.position - 1 - len(names)
        lines[0] += f", behind {', '.join(names)}" + (f" and {more} more" if more > 0 else "")
    if outlook.basis or outlook.start:
        lines.append(outlook.basis or f"could start at {outlook.start}")
    return lines
