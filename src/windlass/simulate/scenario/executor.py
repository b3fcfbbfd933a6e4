"""Plans carried out on the simulated objects, as the cluster's controllers would: the simulator's sink.

`simulate.driver` hands over each plan. Pods that are bound start at once. What is admitted and has no pods
yet gets them, on the nodes that the plan says. Who is evicted goes (at once, or after the scenario's termination
time); a queued owner is suspended again, and any other pod that a controller made comes back and waits.
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
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.queue import QueueSystem
from windlass.model.topology import HOSTNAME
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.scenario.member_pods import (
    WORKLOAD,
    PodSetTemplate,
    member_pod,
    pod_templates_of,
    running_pod,
)
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
"""Order on the timeline, of terminations that are over and of work that is done."""
POD_ONLY_KINDS = ("Pod", "PodGroup")
"""Kinds of workloads that are nothing but their pods."""


class TerminatingWorkload:
    """A workload of which pods are terminating."""

    def __init__(self, workload: Workload, evict: Evict, whole: bool) -> None:
        self.workload, self.pods, self.reason = workload, list(evict.pods), evict.reason
        self.whole = whole


class TerminationEnd(msgspec.Struct, frozen=True):
    """On the timeline: the termination of a workload's pods is over."""

    workload: str


class ScenarioExecutor:
    def __init__(
        self,
        cluster: SimulatedCluster,
        termination: int,
        timeline: Timeline[Any],
        on_round: Callable[[list[Event]], None],
    ) -> None:
        """`on_round` hears what each plan has changed; nothing where it changes nothing (any more)."""
        self._world, self._termination = cluster, termination
        self._timeline, self._on_round = timeline, on_round
        self._now = 0
        self._events: list[Event] = []
        self._system = QueueSystem()
        self._workloads: dict[str, Workload] = {}
        self.terminating: dict[str, TerminatingWorkload] = {}
        self.evictions: list[Evict] = []
        """Since somebody looked."""
        self._parallelism: dict[str, int] = {}
        """Job → what it asked for before it was admitted with less."""
        self._numbers: Counter[tuple[object, ...]] = Counter()

    # As the driver sees it

    def snapshot(self, now: int) -> Snapshot:
        self._now = now
        return self._world.snapshot(now)

    def on_decided(self, snapshot: Snapshot) -> None:
        self._world.on_decided(snapshot)

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._system, grouping = self._world.grouping(self._now)
        self._workloads = {workload.key: workload for workload in grouping.workloads}
        for evict in evicts:
            self._evict(evict)

    def is_terminating(self, key: str) -> bool:
        return key in self.terminating or any(key in one.pods for one in self.terminating.values())

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        nodes = {bind.pod: bind.node for bind in binds}
        for admit in admits:
            if self._admit(admit, self._workloads.get(admit.workload), nodes):
                self._note("admit", admit.workload, format_admit(admit))
        for bind in binds:
            self._world.nominate(bind.pod, "")
            self._world.bind(bind.pod, bind.node, bind.devices, self._now)
            self._note("bind", bind.pod, format_bind(bind))

    def nominate(self, binds: Sequence[Bind]) -> None:
        for bind in binds:
            self._world.nominate(bind.pod, bind.node)

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """Calendar reservations keep their nodes; a planned start is planned again at every decision."""
        for name, nodes in reserved_nodes(reserves).items():
            tree = self._world.get("Reservation", name)
            if tree.get("status", {}).get("nodes", {}) != nodes:
                self._world.update({**tree, "status": {**tree.get("status", {}), "nodes": nodes}})

    def hold(self, holds: Sequence[Hold]) -> None:
        """`player` says what holds them once the cluster is at rest."""

    def finish_cycle(self) -> bool:
        events, self._events = self._events, []
        self._on_round(events)
        return not events

    def _note(self, what: str, subject: str, text: str) -> None:
        self._events.append(Event(self._now, what, subject, text))

    # Who comes

    def _admit(self, admit: Admit, workload: Workload | None, binds: Mapping[str, str]) -> bool:
        """Whether the objects are any different afterwards."""
        members = (
            {key for one in workload.pod_sets for key in one.pod_keys} if workload is not None else set()
        )
        if admit.kind in POD_ONLY_KINDS or workload is None:
            return any(pod in binds for pod in members)
        tree, gang = self._object(admit.kind, admit.workload)
        made = 0
        for template in pod_templates_of(tree):
            made += self._start_missing(admit, workload, template, (tree, gang), binds)
        if admit.kind == "Workload":
            hostnames = {
                node["metadata"]["name"]: node["metadata"]
                .get("labels", {})
                .get(HOSTNAME, node["metadata"]["name"])
                for node in self._world.list_kind("Node")
            }
            self._world.update(with_admission(tree, admit, workload, hostnames, self._now))
            kind, _, owner = workload.owner.partition(" ")
            if owner and self._world.find(kind, owner) is not None:
                self._world.update(with_suspend(self._world.get(kind, owner), False))
        else:
            self._world.update(self._resumed(tree, admit))
        return bool(made) or admit.kind == "Workload" or any(pod in binds for pod in members)

    def _resumed(self, tree: Unstructured, admit: Admit) -> Unstructured:
        """Not suspended; a Job that was admitted with fewer pods asks for no more than those."""
        made = with_suspend(tree, False)
        count = sum(one.count for one in admit.pod_sets)
        if tree["kind"] == "Job" and count < tree["spec"].get("parallelism", 1):
            self._parallelism[admit.workload] = tree["spec"].get("parallelism", 1)
            made["spec"]["parallelism"] = count
        return made

    def _start_missing(
        self,
        admit: Admit,
        workload: Workload,
        template: PodSetTemplate,
        owner: tuple[Unstructured, int | None],
        binds: Mapping[str, str],
    ) -> int:
        """Makes the pods that were admitted and don't exist yet; those that exist are bound by name."""
        chosen = next((one for one in admit.pod_sets if one.name == template.name), None)
        if chosen is None:
            return 0
        existing = next((one.pod_keys for one in workload.pod_sets if one.name == template.name), ())
        places = Counter(chosen.nodes)
        places.subtract(binds[pod] for pod in existing if pod in binds)
        known = self._system.flavors
        flavors = [known[name] for name in dict.fromkeys(chosen.flavors.values()) if name in known]
        tree, gang = owner
        made = 0
        for node, count in places.items():
            for _ in range(max(0, count)):
                pod = self._next_pod(tree, template, gang)
                self._world.create(running_pod(pod, node, self._now, flavors), self._now)
                made += 1
        return made

    def _next_pod(
        self, tree: Unstructured, template: PodSetTemplate, gang: int | None = None
    ) -> Unstructured:
        while True:
            counter = (
                tree["kind"],
                tree["metadata"]["namespace"],
                tree["metadata"]["name"],
                gang,
                template.name,
            )
            pod = member_pod(tree, template, self._numbers[counter], gang)
            self._numbers[counter] += 1
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            if self._world.find("Pod", name) is None:
                return pod

    def create_pods(self, tree: Unstructured, now: int) -> None:
        """An owner that waits for nobody gets all its pods, which then wait themselves."""
        for template in pod_templates_of(tree):
            for _ in range(template.count):
                self._world.create(self._next_pod(tree, template), now)

    def _object(self, kind: str, key: str) -> tuple[Unstructured, int | None]:
        """The object behind a workload, and which of its gangs it is."""
        found = self._world.find(kind, key)
        if found is not None:
            return found, None
        name, _, index = key.rpartition("-")
        return self._world.get(kind, name), int(index)

    # Who goes

    def _evict(self, evict: Evict) -> None:
        workload = self._workloads.get(evict.workload)
        if workload is None or evict.workload in self.terminating:
            return
        self.evictions.append(evict)
        self._note("evict", evict.workload, format_evict(evict))
        members = [key for one in workload.pod_sets for key in one.pod_keys]
        bound = {key for key in members if self._world.get("Pod", key)["spec"].get("nodeName")}
        leaving = TerminatingWorkload(workload, evict, bound <= set(evict.pods))
        if not (self._termination and evict.pods):
            self._go(leaving, self._now)
            return
        self.terminating[evict.workload] = leaving
        self._timeline.push(self._now + self._termination, TerminationEnd(evict.workload), BEFORE_ENDS)
        for key in evict.pods:
            pod = copy.deepcopy(self._world.get("Pod", key))
            pod["metadata"]["deletionTimestamp"] = virtual_timestamp(self._now)
            self._world.update(pod)

    def finish_termination(self, departure: TerminationEnd, now: int) -> Event:
        """The termination is over."""
        self._go(self.terminating.pop(departure.workload), now)
        return Event(now, "gone", departure.workload, "its pods have ended")

    def _go(self, leaving: TerminatingWorkload, now: int) -> None:
        workload = leaving.workload
        stops = leaving.whole and workload.kind not in POD_ONLY_KINDS and bool(workload.queue_name)
        partly = workload.kind not in POD_ONLY_KINDS and bool(workload.queue_name)
        for key in leaving.pods:
            self.remove_pod(key, now, recreate=not partly)
        if leaving.whole:
            self._note_eviction(leaving, now)
        if not stops:
            return
        for one in workload.pod_sets:
            for key in one.pod_keys:
                self._world.delete("Pod", key)
        self._send_back(workload, now)

    def _note_eviction(self, leaving: TerminatingWorkload, now: int) -> None:
        """On the object that stands for the workload, if there is one."""
        workload = leaving.workload
        tree = self._world.find(workload.kind, workload.key)
        if tree is None or workload.kind == "Pod":
            return
        if leaving.reason in BUDGET_OVERRIDE_BY_REASON:
            self._world.update(with_eviction_counted(tree))
        elif leaving.reason == DURATION_EXCEEDED:
            self._world.update(
                merge_patch(tree, {"metadata": {"annotations": {REQUEUED_AT: virtual_timestamp(now)}}})
            )

    def _send_back(self, workload: Workload, now: int) -> None:
        """Into its queue."""
        tree, gang = self._object(workload.kind, workload.key)
        if workload.kind == "Workload":
            self._world.update(with_evicted(tree, now))
            kind, _, owner = workload.owner.partition(" ")
            if owner and self._world.find(kind, owner) is not None:
                self._world.update(with_suspend(self._world.get(kind, owner), True))
        elif gang is None:
            made = with_suspend(tree, True)
            if workload.key in self._parallelism:
                made["spec"]["parallelism"] = self._parallelism.pop(workload.key)
            self._world.update(made)

    def remove_pod(self, key: str, now: int, *, recreate: bool = True) -> None:
        """A pod is gone; if something made it, it is made again, and waits."""
        pod = self._world.find("Pod", key)
        if pod is None:
            return
        self._world.delete("Pod", key)
        metadata = pod["metadata"]
        controlled = metadata.get("ownerReferences") or WORKLOAD in metadata.get("annotations", {})
        if not (recreate and controlled):
            return
        fresh = copy.deepcopy(pod)
        fresh.pop("status", None)
        fresh["spec"].pop("nodeName", None)
        for field in ("uid", "creationTimestamp", "deletionTimestamp"):
            fresh["metadata"].pop(field, None)
        fresh["metadata"].get("annotations", {}).pop("windlass.dev/devices", None)
        self._world.create(fresh, now)

    def finish_workload(self, workload: Workload, now: int) -> None:
        """Its work is done."""
        for one in workload.pod_sets:
            for key in one.pod_keys:
                if workload.kind in POD_ONLY_KINDS:
                    self._world.mark_succeeded(key)
                else:
                    self._world.delete("Pod", key)
        if workload.kind not in POD_ONLY_KINDS:
            tree, _ = self._object(workload.kind, workload.key)
            self._world.update(with_finished(tree, now))
