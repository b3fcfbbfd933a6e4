"""Plans carried out on the simulated objects, as the cluster's controllers would: the simulator's sink.

`player` hands over each plan that `decide` makes. Pods that are bound start at once. What is admitted and has no pods
yet gets them, on the nodes that the plan says. Who is evicted goes (at once, or after the scenario's termination
time); a queued owner is suspended again, and any other pod that a controller made comes back and waits.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.cluster.workloads.facts import REQUEUED_AT
from windlass.model.decision import Admit, Bind, Evict
from windlass.model.plan import Plan
from windlass.model.queue import QueueSystem
from windlass.model.topology import HOSTNAME
from windlass.model.workload import Workload
from windlass.placement.lifetimes import DURATION_EXCEEDED
from windlass.queueing.outcome import YIELDS_TO
from windlass.simulate.scenario.clock import stamp
from windlass.simulate.scenario.members import WORKLOAD, Template, member_pod, started, templates_of
from windlass.simulate.scenario.objects import admitted, ended, merged, sent_back, suspended, with_eviction
from windlass.simulate.scenario.outcome import Event
from windlass.simulate.scenario.spec import Tree
from windlass.simulate.scenario.wording import admit_words, bind_words, evict_words
from windlass.simulate.scenario.world import World

WITHOUT_OBJECT = ("Pod", "PodGroup")
"""Kinds of workloads that are nothing but their pods."""


class Leaving:
    """A workload of which pods are terminating."""

    def __init__(self, workload: Workload, evict: Evict, whole: bool, due: int) -> None:
        self.workload, self.pods, self.reason = workload, list(evict.pods), evict.reason
        self.whole, self.due = whole, due


class Carrier:
    def __init__(self, world: World, termination: int) -> None:
        self._world, self._termination = world, termination
        self.leaving: dict[str, Leaving] = {}
        self.evictions: list[Evict] = []
        """Since somebody looked."""
        self._parallelism: dict[str, int] = {}
        """Job → what it asked for before it was admitted with less."""
        self._numbers: Counter[tuple[object, ...]] = Counter()

    def carry(self, plan: Plan, now: int) -> list[Event]:
        """What was changed; empty where the plan changes nothing (any more)."""
        system, grouping = self._world.grouping(now)
        workloads = {workload.key: workload for workload in grouping.workloads}
        events = [event for one in plan.evicts for event in self._evict(one, workloads, now)]
        binds = [bind for bind in plan.binds if not self._waits(bind.after)]
        nodes = {bind.pod: bind.node for bind in binds}
        for admit in plan.admits:
            if not self._waits(admit.after):
                changed = self._admit(admit, workloads.get(admit.workload), nodes, system, now)
                events += [Event(now, "admit", admit.workload, admit_words(admit))] if changed else []
        for bind in plan.binds:
            self._world.nominate(bind.pod, bind.node if self._waits(bind.after) else "")
        return events + [self._bind(bind, now) for bind in binds]

    def _waits(self, after: Iterable[str]) -> bool:
        """Whether somebody of them, a workload or a pod, is still on its way out."""
        return any(
            key in self.leaving or any(key in one.pods for one in self.leaving.values()) for key in after
        )

    # Who comes

    def _bind(self, bind: Bind, now: int) -> Event:
        self._world.bind(bind.pod, bind.node, bind.devices, now)
        return Event(now, "bind", bind.pod, bind_words(bind))

    def _admit(
        self, admit: Admit, workload: Workload | None, binds: Mapping[str, str], system: QueueSystem, now: int
    ) -> bool:
        """Whether the objects are any different afterwards."""
        members = {key for one in workload.pod_sets for key in one.pods} if workload is not None else set()
        if admit.kind in WITHOUT_OBJECT or workload is None:
            return any(pod in binds for pod in members)
        tree, gang = self._object(admit.kind, admit.workload)
        made = 0
        for template in templates_of(tree):
            made += self._start_missing(admit, workload, template, (tree, gang), binds, system, now)
        if admit.kind == "Workload":
            hostnames = {
                node["metadata"]["name"]: node["metadata"]
                .get("labels", {})
                .get(HOSTNAME, node["metadata"]["name"])
                for node in self._world.of_kind("Node")
            }
            self._world.put(admitted(tree, admit, workload, hostnames, now))
            kind, _, owner = workload.owner.partition(" ")
            if owner and self._world.find(kind, owner) is not None:
                self._world.put(suspended(self._world.get(kind, owner), False))
        else:
            self._world.put(self._resumed(tree, admit))
        return bool(made) or admit.kind == "Workload" or any(pod in binds for pod in members)

    def _resumed(self, tree: Tree, admit: Admit) -> Tree:
        """Not suspended; a Job that was admitted with fewer pods asks for no more than those."""
        made = suspended(tree, False)
        count = sum(one.count for one in admit.pod_sets)
        if tree["kind"] == "Job" and count < tree["spec"].get("parallelism", 1):
            self._parallelism[admit.workload] = tree["spec"].get("parallelism", 1)
            made["spec"]["parallelism"] = count
        return made

    def _start_missing(
        self,
        admit: Admit,
        workload: Workload,
        template: Template,
        owner: tuple[Tree, int | None],
        binds: Mapping[str, str],
        system: QueueSystem,
        now: int,
    ) -> int:
        """Makes the pods that were admitted and don't exist yet; those that exist are bound by name."""
        chosen = next((one for one in admit.pod_sets if one.name == template.name), None)
        if chosen is None:
            return 0
        existing = next((one.pods for one in workload.pod_sets if one.name == template.name), ())
        places = Counter(chosen.nodes)
        places.subtract(binds[pod] for pod in existing if pod in binds)
        flavors = [
            system.flavors[name] for name in dict.fromkeys(chosen.flavors.values()) if name in system.flavors
        ]
        tree, gang = owner
        made = 0
        for node, count in places.items():
            for _ in range(max(0, count)):
                pod = self._next_pod(tree, template, gang)
                self._world.create(started(pod, node, now, flavors), now)
                made += 1
        return made

    def _next_pod(self, tree: Tree, template: Template, gang: int | None = None) -> Tree:
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

    def make_pods(self, tree: Tree, now: int) -> None:
        """An owner that waits for nobody gets all its pods, which then wait themselves."""
        for template in templates_of(tree):
            for _ in range(template.count):
                self._world.create(self._next_pod(tree, template), now)

    def _object(self, kind: str, key: str) -> tuple[Tree, int | None]:
        """The object behind a workload, and which of its gangs it is."""
        found = self._world.find(kind, key)
        if found is not None:
            return found, None
        name, _, index = key.rpartition("-")
        return self._world.get(kind, name), int(index)

    # Who goes

    def _evict(self, evict: Evict, workloads: Mapping[str, Workload], now: int) -> list[Event]:
        workload = workloads.get(evict.workload)
        if workload is None or evict.workload in self.leaving:
            return []
        self.evictions.append(evict)
        members = [key for one in workload.pod_sets for key in one.pods]
        bound = {key for key in members if self._world.get("Pod", key)["spec"].get("nodeName")}
        leaving = Leaving(workload, evict, bound <= set(evict.pods), now + self._termination)
        event = Event(now, "evict", evict.workload, evict_words(evict))
        if self._termination and evict.pods:
            self.leaving[evict.workload] = leaving
            for key in evict.pods:
                pod = copy.deepcopy(self._world.get("Pod", key))
                pod["metadata"]["deletionTimestamp"] = stamp(now)
                self._world.put(pod)
        else:
            self._go(leaving, now)
        return [event]

    def next_departure(self) -> int | None:
        return min((one.due for one in self.leaving.values()), default=None)

    def depart(self, now: int) -> list[Event]:
        """Those whose termination is over."""
        due = [key for key, one in self.leaving.items() if one.due <= now]
        events = []
        for key in due:
            self._go(self.leaving.pop(key), now)
            events.append(Event(now, "gone", key, "its pods have ended"))
        return events

    def _go(self, leaving: Leaving, now: int) -> None:
        workload = leaving.workload
        stops = leaving.whole and workload.kind not in WITHOUT_OBJECT and bool(workload.queue)
        partly = workload.kind not in WITHOUT_OBJECT and bool(workload.queue)
        for key in leaving.pods:
            self.lose(key, now, comes_back=not partly)
        if leaving.whole:
            self._note_eviction(leaving, now)
        if not stops:
            return
        for one in workload.pod_sets:
            for key in one.pods:
                self._world.remove("Pod", key)
        self._send_back(workload, now)

    def _note_eviction(self, leaving: Leaving, now: int) -> None:
        """On the object that stands for the workload, if there is one."""
        workload = leaving.workload
        tree = self._world.find(workload.kind, workload.key)
        if tree is None or workload.kind == "Pod":
            return
        if leaving.reason in YIELDS_TO:
            self._world.put(with_eviction(tree))
        elif leaving.reason == DURATION_EXCEEDED:
            self._world.put(merged(tree, {"metadata": {"annotations": {REQUEUED_AT: stamp(now)}}}))

    def _send_back(self, workload: Workload, now: int) -> None:
        """Into its queue."""
        tree, gang = self._object(workload.kind, workload.key)
        if workload.kind == "Workload":
            self._world.put(sent_back(tree, now))
            kind, _, owner = workload.owner.partition(" ")
            if owner and self._world.find(kind, owner) is not None:
                self._world.put(suspended(self._world.get(kind, owner), True))
        elif gang is None:
            made = suspended(tree, True)
            if workload.key in self._parallelism:
                made["spec"]["parallelism"] = self._parallelism.pop(workload.key)
            self._world.put(made)

    def lose(self, key: str, now: int, *, comes_back: bool = True) -> None:
        """A pod is gone; if something made it, it is made again, and waits."""
        pod = self._world.find("Pod", key)
        if pod is None:
            return
        self._world.remove("Pod", key)
        metadata = pod["metadata"]
        controlled = metadata.get("ownerReferences") or WORKLOAD in metadata.get("annotations", {})
        if not (comes_back and controlled):
            return
        fresh = copy.deepcopy(pod)
        fresh.pop("status", None)
        fresh["spec"].pop("nodeName", None)
        for field in ("uid", "creationTimestamp", "deletionTimestamp"):
            fresh["metadata"].pop(field, None)
        fresh["metadata"].get("annotations", {}).pop("windlass.dev/devices", None)
        self._world.create(fresh, now)

    def end(self, workload: Workload, now: int) -> None:
        """Its work is done."""
        for one in workload.pod_sets:
            for key in one.pods:
                if workload.kind in WITHOUT_OBJECT:
                    self._world.succeed(key)
                else:
                    self._world.remove("Pod", key)
        if workload.kind not in WITHOUT_OBJECT:
            tree, _ = self._object(workload.kind, workload.key)
            self._world.put(ended(tree, now))
