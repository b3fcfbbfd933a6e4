"""The sink of scenarios: executes plans on the simulated objects, as kubelets and controllers would.

`simulate.driver` calls it with each plan. Bound pods start at once. For an admitted workload without pods, pods are
created on the nodes of the plan. Evicted pods terminate at once or after the scenario's termination time; then a
queued owner is suspended again, and any other pod with a controller is recreated and pending.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.apply.decision_sink import reserved_nodes
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.workload_attributes import REQUEUED_AT
from windlass.model.decision import Admit, Ask, Bind, Evict, Hold, Reserve, Resize, WithdrawAsk
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import WORKLOAD_ANNOTATION
from windlass.model.names.windlass import DEVICES_ANNOTATION, STOPPED_AT_DURATION_ANNOTATION
from windlass.model.queue import QueueSystem
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON
from windlass.simulate.clock import VIRTUAL_EPOCH, virtual_timestamp
from windlass.simulate.scenario.asks import PER_RUN, SimulatedAsks
from windlass.simulate.scenario.member_pods import PodSetTemplate, member_pod, pod_templates_of, running_pod
from windlass.simulate.scenario.messages import format_admit, format_bind, format_evict
from windlass.simulate.scenario.object_changes import (
    merge_patch,
    with_admission,
    with_evicted,
    with_eviction_counted,
    with_finished,
    with_suspend,
)
from windlass.simulate.scenario.outcome import Event
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster
from windlass.simulate.timeline import Timeline

BEFORE_ENDS, ENDS = (0,), 1
"""Order of events at one moment: pods that have terminated come before workloads that end."""
POD_ONLY_KINDS = ("Pod", "PodGroup")
"""Kinds of workloads that have no owner object, only pods."""


OnRound = Callable[[list[Event]], None]


class EvictedWorkload(msgspec.Struct, frozen=True):
    """A workload with the pods of it that are evicted; `whole` if no bound pod is left."""

    workload: Workload
    pods: Sequence[str]
    reason: str
    whole: bool


class TerminationEnd(msgspec.Struct, frozen=True):
    """On the timeline: the evicted pods of a workload have terminated."""

    workload: str


class ScenarioExecutor:
    def __init__(self, cluster: SimulatedCluster, termination: int, timeline: Timeline[Any], on_round: OnRound) -> None:
        """`on_round` is called after each plan with its changes, which may be none; `termination` is in seconds."""
        self._cluster, self._termination = cluster, termination
        self._timeline, self._on_round = timeline, on_round
        self._now = 0
        self._events: list[Event] = []
        self._system = QueueSystem()
        self._workloads: dict[str, Workload] = {}
        self.terminating: dict[str, EvictedWorkload] = {}
        self.evictions: list[Evict] = []
        """Since the last check of expectations; `player` clears it."""
        self._parallelism: dict[str, int] = {}
        """Job that was admitted with fewer pods → its original parallelism."""
        self.asks = SimulatedAsks(cluster)
        self._pod_numbers: Counter[tuple[object, ...]] = Counter()

    # Called by the driver

    def snapshot(self, now: int) -> Snapshot:
        self._now = now
        return self._cluster.snapshot(now)

    def on_decided(self, snapshot: Snapshot) -> None:
        self._cluster.on_decided(snapshot)

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        workloads = {workload.key: workload for workload in self._cluster.grouping(self._now)[1].workloads}
        written = list(self.asks.write(asks, workloads, self._now))
        self._events += [*written, *self.asks.withdraw(withdrawals, workloads, self._now)]
        for ask in asks if written else ():
            self._timeline.push(ask.until - VIRTUAL_EPOCH, None, BEFORE_ENDS)

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._system, grouping = self._cluster.grouping(self._now)
        self._workloads = {workload.key: workload for workload in grouping.workloads}
        for evict in evicts:
            self._evict(evict)

    def is_terminating(self, key: str) -> bool:
        return key in self.terminating or any(key in evicted.pods for evicted in self.terminating.values())

    def resize(self, resizes: Sequence[Resize]) -> None:
        """Work of a scenario keeps its size, and so do the Workloads of a dump in one."""

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        nodes = {bind.pod: bind.node for bind in binds}
        for admit in admits:
            if self._admit(admit, self._workloads.get(admit.workload), nodes):
                self._log("admit", admit.workload, format_admit(admit))
        for bind in binds:
            self._cluster.nominate(bind.pod, "")
            self._cluster.bind(bind.pod, bind.node, bind.devices, self._now)
            self._log("bind", bind.pod, format_bind(bind))

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self._cluster.nominate_workloads(frozenset(admit.workload for admit in admits))
        for bind in binds:
            self._cluster.nominate(bind.pod, bind.node)

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """Writes the nodes of Reservation objects; planned starts are planned again at every decision."""
        for name, nodes in reserved_nodes(reserves).items():
            obj = self._cluster.get("Reservation", name)
            if obj.get("status", {}).get("nodes", {}) != nodes:
                self._cluster.update({**obj, "status": {**obj.get("status", {}), "nodes": nodes}})

    def hold(self, holds: Sequence[Hold]) -> None:
        """`player` logs holds once the cluster is stable."""

    def finish_cycle(self) -> bool:
        events, self._events = self._events, []
        self._on_round(events)
        return not events

    def _log(self, kind: str, subject: str, text: str) -> None:
        self._events.append(Event(self._now, kind, subject, text))

    # Admission

    def _admit(self, admit: Admit, workload: Workload | None, binds: Mapping[str, str]) -> bool:
        """True if the admission changes any object."""
        if workload is None:
            return False
        binds_members = any(key in binds for key in _pod_keys(workload))
        if admit.kind in POD_ONLY_KINDS:
            return binds_members
        obj, gang = self._find_owner(admit.kind, admit.workload)
        created = 0
        for template in pod_templates_of(obj):
            created += self._create_admitted_pods(admit, workload, template, (obj, gang), binds)
        if admit.kind == "Workload":
            self._cluster.update(with_admission(obj, admit, workload, self._hostnames(), self._now))
            self._suspend_owner(workload, False)
        else:
            self._cluster.update(self._unsuspended(obj, admit))
        return bool(created) or admit.kind == "Workload" or binds_members

    def _hostnames(self) -> dict[str, str]:
        metadata = [node["metadata"] for node in self._cluster.list_kind("Node")]
        return {meta["name"]: meta.get("labels", {}).get(HOSTNAME_LABEL, meta["name"]) for meta in metadata}

    def _suspend_owner(self, workload: Workload, suspend: bool) -> None:
        kind, _, owner = workload.owner.partition(" ")
        if owner and self._cluster.find(kind, owner) is not None:
            self._cluster.update(with_suspend(self._cluster.get(kind, owner), suspend))

    def _unsuspended(self, obj: Unstructured, admit: Admit) -> Unstructured:
        """The owner, not suspended; a partially admitted Job gets a parallelism of as many pods."""
        changed = with_suspend(obj, False)
        count = sum(pod_set.count for pod_set in admit.pod_sets)
        if obj["kind"] == "Job" and count < obj["spec"].get("parallelism", 1):
            self._parallelism[admit.workload] = obj["spec"].get("parallelism", 1)
            changed["spec"]["parallelism"] = count
        return changed

    def _create_admitted_pods(
        self,
        admit: Admit,
        workload: Workload,
        template: PodSetTemplate,
        owner: tuple[Unstructured, int | None],
        binds: Mapping[str, str],
    ) -> int:
        """Creates the admitted pods that don't exist yet and returns their number; existing pods are bound instead."""
        existing = next((known.pod_keys for known in workload.pod_sets if known.name == template.name), ())
        bound = Counter(binds[pod] for pod in existing if pod in binds)
        by_name = self._system.flavors
        obj, gang = owner
        created = 0
        # A pod set has an entry for each combination of flavors that its pods got.
        for pod_set in (admitted for admitted in admit.pod_sets if admitted.name == template.name):
            flavors = [by_name[name] for name in dict.fromkeys(pod_set.flavors.values()) if name in by_name]
            missing = Counter(pod_set.nodes) - bound
            bound -= Counter(pod_set.nodes)
            for node in missing.elements():
                pod = self._next_pod(obj, template, gang)
                self._cluster.create(running_pod(pod, node, self._now, flavors), self._now)
                created += 1
        return created

    def _next_pod(self, obj: Unstructured, template: PodSetTemplate, gang: int | None = None) -> Unstructured:
        meta = obj["metadata"]
        counter = (obj["kind"], meta["namespace"], meta["name"], gang, template.name)
        while True:
            pod = member_pod(obj, template, self._pod_numbers[counter], gang)
            self._pod_numbers[counter] += 1
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            if self._cluster.find("Pod", name) is None:
                return pod

    def create_pods(self, obj: Unstructured, now: int) -> None:
        """Creates all pods of an owner that is neither suspended nor queued; the pods are pending."""
        for template in pod_templates_of(obj):
            for _ in range(template.count):
                self._cluster.create(self._next_pod(obj, template), now)

    def _find_owner(self, kind: str, key: str) -> tuple[Unstructured, int | None]:
        """The object of a workload's key, and the gang's number if it has several (LeaderWorkerSet)."""
        found = self._cluster.find(kind, key)
        if found is not None:
            return found, None
        name, _, index = key.rpartition("-")
        return self._cluster.get(kind, name), int(index)

    # Eviction and end

    def _evict(self, evict: Evict) -> None:
        workload = self._workloads.get(evict.workload)
        if workload is None or evict.workload in self.terminating:
            return
        self.evictions.append(evict)
        self._log("evict", evict.workload, format_evict(evict))
        members = _pod_keys(workload)
        bound = {key for key in members if self._cluster.get("Pod", key)["spec"].get("nodeName")}
        evicted = EvictedWorkload(workload, evict.pods, evict.reason, bound <= set(evict.pods))
        if not (self._termination and evict.pods):
            self._complete_eviction(evicted, self._now)
            return
        self.terminating[evict.workload] = evicted
        self._timeline.push(self._now + self._termination, TerminationEnd(evict.workload), BEFORE_ENDS)
        for key in evict.pods:
            pod = copy.deepcopy(self._cluster.get("Pod", key))
            pod["metadata"]["deletionTimestamp"] = virtual_timestamp(self._now)
            self._cluster.update(pod)

    def finish_termination(self, termination: TerminationEnd, now: int) -> Event:
        self._complete_eviction(self.terminating.pop(termination.workload), now)
        return Event(now, "gone", termination.workload, "its pods have terminated")

    def _complete_eviction(self, evicted: EvictedWorkload, now: int) -> None:
        workload = evicted.workload
        is_queued_owner = workload.kind not in POD_ONLY_KINDS and bool(workload.queue_name)
        for key in evicted.pods:
            self.remove_pod(key, now, recreate=not is_queued_owner)
        if evicted.whole:
            self._record_eviction(evicted, now)
        if not (evicted.whole and is_queued_owner):
            return
        for key in _pod_keys(workload):
            self._cluster.delete("Pod", key)
        self._requeue(workload, now, evicted.reason)

    def _record_eviction(self, evicted: EvictedWorkload, now: int) -> None:
        """Writes the eviction to the workload's object, if it has one."""
        workload = evicted.workload
        obj = self._cluster.find(workload.kind, workload.key)
        if obj is None or workload.kind == "Pod":
            return
        if evicted.reason in BUDGET_OVERRIDE_BY_REASON:
            self._cluster.update(with_eviction_counted(obj))
        elif evicted.reason == DURATION_EXCEEDED:
            annotations = {
                REQUEUED_AT: virtual_timestamp(now),
                STOPPED_AT_DURATION_ANNOTATION: str(workload.max_run_seconds or 0),
            }
            self._cluster.update(merge_patch(obj, {"metadata": {"annotations": annotations}}))

    def _requeue(self, workload: Workload, now: int, reason: str) -> None:
        obj, gang = self._find_owner(workload.kind, workload.key)
        if workload.kind == "Workload":
            self._cluster.update(with_evicted(obj, now, reason))
            self._suspend_owner(workload, True)
        elif gang is None:
            suspended = with_suspend(obj, True)
            if workload.key in self._parallelism:
                suspended["spec"]["parallelism"] = self._parallelism.pop(workload.key)
            self._cluster.update(suspended)

    def remove_pod(self, key: str, now: int, *, recreate: bool = True) -> None:
        """Deletes a pod; if it has a controller, that recreates it, and the new pod is pending."""
        pod = self._cluster.find("Pod", key)
        if pod is None:
            return
        self._cluster.delete("Pod", key)
        metadata = pod["metadata"]
        controlled = metadata.get("ownerReferences") or WORKLOAD_ANNOTATION in metadata.get("annotations", {})
        if not (recreate and controlled):
            return
        recreated = copy.deepcopy(pod)
        recreated.pop("status", None)
        recreated["spec"].pop("nodeName", None)
        for field in ("uid", "creationTimestamp", "deletionTimestamp"):
            recreated["metadata"].pop(field, None)
        for name in (DEVICES_ANNOTATION, *PER_RUN):
            recreated["metadata"].get("annotations", {}).pop(name, None)
        self._cluster.create(recreated, now)

    def finish_workload(self, workload: Workload, now: int) -> None:
        for key in _pod_keys(workload):
            if workload.kind in POD_ONLY_KINDS:
                self._cluster.mark_succeeded(key)
            else:
                self._cluster.delete("Pod", key)
        if workload.kind not in POD_ONLY_KINDS:
            obj, _ = self._find_owner(workload.kind, workload.key)
            self._cluster.update(with_finished(obj, now))


def _pod_keys(workload: Workload) -> list[str]:
    return [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
