"""What the engine decides of work that waits: held for what, behind whom, until when.

`why` asks it about everything that a queue, a gang or a full cluster holds. The answer is `decide`'s own, on the same
snapshot that nodes are judged on, so that `why` and the scheduler can't disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from windlass.cluster.snapshot import Snapshot
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.finding import Finding, Outlook
from windlass.engine import decide_without_explanations
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.requests import is_extended_resource, pod_requests
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS, Advisor
from windlass.planner import engine_config
from windlass.queueing.queue_sort import sort_pending_pods

MOST_NAMED = 10
DURATION_ANNOTATION = "windlass.dev/duration"
QUEUEING_CODES = frozenset(
    {
        "KUEUE_QUEUE_MISSING",
        "KUEUE_QUOTA_INSUFFICIENT",
        "KUEUE_QUOTA_MISCONFIGURED",
        "KUEUE_FLAVOR_MISMATCH",
        "KUEUE_TOPOLOGY_NOFIT",
        "QUEUE_BEHIND_HEAD",
        "RESERVED_FOR_OTHERS",
        "RESOURCE_QUOTA_EXCEEDED",
        "WAITING_FOR_PREEMPTION",
        "GANG_INCOMPLETE",
    }
)
"""Reasons that no single node shows; for all others the nodes are looked at one by one."""


class EngineView:
    """One plan for the cluster as it is, and what it says of one workload."""

    def __init__(self, snapshot: Snapshot, settings: Settings, now: int) -> None:
        self._snapshot, self._settings, self._now = snapshot, settings, now

    @cached_property
    def _decided(self) -> tuple[Plan, Advisor | None]:
        return decide_without_explanations(self._snapshot, engine_config(self._settings), self._now)

    @property
    def _plan(self) -> Plan:
        return self._decided[0]

    @cached_property
    def _explained(self) -> Plan:
        """The same plan with its first holds explained: only where somebody asks, since that takes longer."""
        plan, advisor = self._decided
        return plan if advisor is None else advisor.explain(plan, MAX_EXPLAINED_HOLDS)

    def has_known_end_times(self) -> bool:
        """Whether any end of running work is known, so that a start can be estimated at all."""
        if self._snapshot.run_times:
            return True
        return any(workload.max_run_seconds is not None for workload in self._snapshot.workloads) or any(
            pod.spec.active_deadline_seconds is not None or DURATION_ANNOTATION in pod.metadata.annotations
            for pod in self._snapshot.pods.objects
        )

    def queue_position(self, pod: str) -> Outlook | None:
        """Of a pod on its own, where there is no end to wait for: only who comes before it in the engine's order."""
        rows = sort_pending_pods(self._snapshot).tolist()
        line = [self._snapshot.pods.objects[row].key for row in rows]
        if pod not in line or pod in self._workloads:
            return None
        own_devices = self._devices(pod)
        ahead = [key for key in line[: line.index(pod)] if own_devices & self._devices(key)]
        basis = "no estimate: no run-time limit bounds what runs on these nodes"
        return Outlook(len(ahead) + 1, "", tuple(ahead[:MOST_NAMED]), basis=basis)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Workload → its place among the holds."""
        return {hold.workload: place for place, hold in enumerate(self._plan.holds)}

    @cached_property
    def _workloads(self) -> dict[str, Workload]:
        return {workload.key: workload for workload in self._snapshot.workloads}

    def workloads_containing(self, pods: Iterable[str]) -> list[str]:
        """What the engine decides on that these pods are part of, also where its object is not at hand."""
        wanted = set(pods)
        return [
            workload.key
            for workload in self._snapshot.workloads
            if any(not wanted.isdisjoint(pod_set.pod_keys) for pod_set in workload.pod_sets)
        ]

    def explained_hold(self, keys: Collection[str]) -> Hold | None:
        """The hold of the first of these workloads that is held, with what would help."""
        place = next((self._places[key] for key in keys if key in self._places), None)
        return None if place is None else self._explained.holds[place]

    def decided_hold(self, keys: Collection[str]) -> Hold | None:
        """The same, as it was decided: its code, and no more worked out."""
        place = next((self._places[key] for key in keys if key in self._places), None)
        return None if place is None else self._plan.holds[place]

    def would_start(self, keys: Collection[str]) -> bool:
        """Whether the engine would start one of them now."""
        wanted = set(keys)
        return any(admit.workload in wanted for admit in self._plan.admits) or any(
            bind.pod in wanted for bind in self._plan.binds
        )

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
        """Who waits before it: in its queue, or for the same devices where it is in none."""
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
        """The ClusterQueue that it waits in."""
        workload = self._workloads.get(key)
        if workload is None or not workload.queue_name:
            return ""
        local = self._snapshot.queue_system.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        return local.cluster_queue if local is not None else ""

    def _devices(self, key: str) -> frozenset[str]:
        """What only devices have, of what it asks for."""
        workload = self._workloads.get(key)
        if workload is not None:
            pods = [pod_set.template for pod_set in workload.pod_sets]
        else:
            row = self._pod_rows.get(key)
            pods = [] if row is None else [self._snapshot.pods.objects[row]]
        return frozenset(name for pod in pods for name in _asked(pod) if is_extended_resource(name))

    @cached_property
    def _pod_rows(self) -> dict[str, int]:
        return {pod.key: row for row, pod in enumerate(self._snapshot.pods.objects)}


def _asked(pod: Pod) -> Collection[str]:
    try:
        return pod_requests(pod)
    except InputError:
        return ()  # that it can't be read is what it is held for


def queueing_finding(hold: Hold) -> Finding | None:
    """The engine's reason, where it is one that stands before all nodes: quota, order, plans, the group."""
    verdict = hold.verdict
    if verdict.code not in QUEUEING_CODES or verdict.code not in CAUSES:
        return None
    limits = [limit.text for limit in verdict.limits if limit.kind != "object"]
    message = limits[0] if limits else verdict.detail or verdict.message
    proof = (verdict.detail,) if verdict.detail and verdict.detail != message else ()
    return Finding(verdict.code, message.rstrip("."), proof)


def engine_finding(hold: Hold) -> Finding:
    """The engine's reason in its own words, whatever it is; of the code's remedy only what fits them."""
    message = hold.verdict.sentences[0].rstrip(".")
    remedy = CAUSES["KUEUE_TOPOLOGY_NOFIT"].remedy if "topology" in message.lower() else ""
    return Finding(hold.verdict.code, message, remedy=remedy)


def outlook_lines(outlook: Outlook) -> list[str]:
    """The outlook in sentences: the place in the queue, who is ahead, and when."""
    names = outlook.ahead
    where = f"in queue {outlook.queue}" if outlook.queue else "among those that wait for the same GPUs"
    lines = [f"position {outlook.position} {where}"]
    if names:
        more = outlook.position - 1 - len(names)
        lines[0] += f", behind {', '.join(names)}" + (f" and {more} more" if more > 0 else "")
    if outlook.basis or outlook.start:
        lines.append(outlook.basis or f"could start at {outlook.start}")
    return lines
