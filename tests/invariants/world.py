"""A small cluster whose objects change as plans say: what controllers and kubelets would do, and nothing more.

The world feeds a store with every change, so decisions are made on a store that has lived; a second one is made from
the same objects in another order, without a memo, and has to come to the same plan.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from tests.invariants.judge import Books, Usage, asked, device_list, ill_gpus
from tests.invariants.objects import (
    DEVICES,
    EPOCH,
    FRACTION,
    GPU,
    GROUP,
    HOSTNAME,
    NAMESPACE,
    OWNER,
    PODSET,
    QUEUE,
    pod,
    stamp,
)

from windlass.cluster.delta import Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, Bind, Evict
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured


class World:
    def __init__(self, config: EngineConfig, termination: int = 0) -> None:
        self.config = config
        self.termination = termination
        """Steps that an evicted pod takes to end; 0: it is gone at once."""
        self.now = EPOCH
        self.nodes: dict[str, Unstructured] = {}
        self.away: dict[str, Unstructured] = {}
        """Nodes that are lost."""
        self.queues: dict[tuple[str, str], Unstructured] = {}
        self.groups: dict[str, Unstructured] = {}
        self.workloads: dict[str, Unstructured] = {}
        self.pods: dict[str, Unstructured] = {}
        self.below_since: dict[str, int] = {}
        self.has_had_mig = False
        """MIG instances have come and gone: what holes they left is not in the objects, so that stores may differ."""
        self._leaving: dict[str, int] = {}
        """Terminating pod → when it is gone."""
        self._serial = 0
        self.store = Store()
        self.memo = EngineCache()

    # Objects

    def objects(self) -> list[Unstructured]:
        return [
            *self.queues.values(),
            *self.nodes.values(),
            *self.groups.values(),
            *self.workloads.values(),
            *self.pods.values(),
        ]

    def put(self, tree: Unstructured) -> None:
        kind, meta = tree["kind"], tree["metadata"]
        key = f"{meta.get('namespace', NAMESPACE)}/{meta['name']}"
        homes = {"Node": self.nodes, "PodGroup": self.groups, "Workload": self.workloads, "Pod": self.pods}
        if kind in homes:
            homes[kind][meta["name"] if kind == "Node" else key] = tree
        else:
            self.queues[kind, meta["name"]] = tree
        self.store.apply([Put(decode_object(copy.deepcopy(tree)))])

    def drop_pod(self, key: str) -> Unstructured:
        self._leaving.pop(key, None)
        self.store.apply([Deleted("Pod", key)])
        return self.pods.pop(key)

    @property
    def books(self) -> Books:
        return Books(self.queues.values())

    def usage(self) -> Usage:
        return self.books.usage(self.workloads, self.pods.values(), {**self.nodes, **self.away})

    def members(self, group: str) -> list[Unstructured]:
        name = group.partition("/")[2]
        return [pod for pod in self.pods.values() if pod["metadata"]["labels"].get(GROUP) == name]

    def members_of_workload(self, key: str) -> list[Unstructured]:
        name = key.partition("/")[2]
        return [pod for pod in self.pods.values() if pod["metadata"]["annotations"].get(OWNER) == name]

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    # Deciding

    def plan(self) -> Plan:
        return decide(self.store.snapshot(self.now), self.config, self.now, self.memo)

    def afresh(self, rng: Random) -> Snapshot:
        """The same objects in another order, in a store that has seen nothing else."""
        trees = self.objects()
        rng.shuffle(trees)
        store = Store()
        store.apply(Put(decode_object(copy.deepcopy(tree))) for tree in trees)
        return store.snapshot(self.now)

    # Carrying out

    def carry_out(self, plan: Plan) -> bool:
        """Whether anything has changed."""
        changed = False
        for evict in plan.evicts:
            changed = self._evict(evict) or changed
        named = {bind.pod: bind.node for bind in plan.binds if self._is_waited_for(bind.after)}
        for bind in plan.binds:
            if bind.pod not in named:
                self.bind(bind)
                changed = True
        self._nominate(named)
        # Their pods take whatever devices are left: the plan has said so for none of them.
        for admit in plan.admits:
            if not self._is_waited_for(admit.after) and admit.kind == "Workload":
                changed = self._admit(admit) or changed
        self._note_broken_gangs()
        return changed

    def _nominate(self, named: Mapping[str, str]) -> None:
        """Pods that wait for others to go are named for their node, and no others are."""
        for key, tree in list(self.pods.items()):
            wanted = named.get(key, "")
            if tree["status"].get("nominatedNodeName", "") != wanted and not tree["spec"].get("nodeName"):
                fresh = copy.deepcopy(tree)
                fresh["status"] = {"phase": "Pending", **({"nominatedNodeName": wanted} if wanted else {})}
                self.put(fresh)

    def _is_waited_for(self, after: Iterable[str]) -> bool:
        return any(self._is_leaving(key) for key in after)

    def _is_leaving(self, key: str) -> bool:
        if key in self._leaving:
            return True
        parts = self.members(key) if key in self.groups else self.members_of_workload(key)
        return any(f"{NAMESPACE}/{one['metadata']['name']}" in self._leaving for one in parts)

    def bind(self, bind: Bind) -> None:
        tree = copy.deepcopy(self.pods[bind.pod])
        assert not tree["spec"].get("nodeName"), f"{bind.pod} is bound already"
        tree["spec"]["nodeName"] = bind.node
        self.has_had_mig = self.has_had_mig or any(device.profile for device in bind.devices)
        if bind.devices:
            tree["metadata"]["annotations"][DEVICES] = ",".join(str(device.index) for device in bind.devices)
        tree["status"] = {"phase": "Running", "startTime": stamp(self.now)}
        self.put(tree)

    def _admit(self, admit: Admit) -> bool:
        """Kueue's status, and the pods, which stand where the plan says."""
        tree = copy.deepcopy(self.workloads[admit.workload])
        assert "admission" not in tree["status"], f"{admit.workload} holds quota already"
        parts = []
        for one in admit.pod_sets:
            part: Unstructured = {"name": one.name, "count": one.count, "flavors": dict(one.flavors)}
            domains = [{"values": [node], "count": pods} for node, pods in one.nodes.items()]
            part["topologyAssignment"] = {"levels": [HOSTNAME], "domains": domains}
            parts.append(part)
        tree["status"]["admission"] = {"clusterQueue": admit.queue, "podSetAssignments": parts}
        _set_conditions(tree, {"QuotaReserved": "True", "Admitted": "True", "Evicted": ""}, self.now)
        self.put(tree)
        if "late-pods" not in tree["metadata"].get("labels", {}):
            for one in admit.pod_sets:
                for name, count in one.nodes.items():
                    for _ in range(count):
                        self._start(tree, one.name, name)
        return True

    def make_pods(self, key: str) -> None:
        """The controller of an admitted workload makes the pods that it lacks; they wait for the scheduler."""
        tree = self.workloads[key]
        if any(one["type"] == "Evicted" for one in tree["status"]["conditions"]):
            return
        for part in tree["status"].get("admission", {}).get("podSetAssignments", ()):
            there = [pod for pod in self.members_of_workload(key) if pod["metadata"]["labels"][PODSET] == part["name"]]
            for _ in range(part["count"] - len(there)):
                self.put(self._member(tree, part["name"]))

    def _member(self, tree: Unstructured, set_name: str) -> Unstructured:
        spec = next(one for one in tree["spec"]["podSets"] if one["name"] == set_name)["template"]["spec"]
        name = f"{tree['metadata']['name']}-{set_name}-{self.serial()}"
        return pod(
            name,
            copy.deepcopy(spec),
            created=self.now,
            labels={PODSET: set_name},
            annotations={OWNER: tree["metadata"]["name"]},
        )

    def _start(self, tree: Unstructured, set_name: str, node: str) -> None:
        made = self._member(tree, set_name)
        made["spec"]["nodeName"] = node
        made["status"] = {"phase": "Running", "startTime": stamp(self.now)}
        gpus = asked(made)[GPU] // 1000
        if gpus:
            taken = Counter(
                index for pod in self.pods.values() if pod["spec"].get("nodeName") == node for index in device_list(pod)
            )
            there = int(self.nodes[node]["status"]["capacity"].get(GPU, 0))
            ill = ill_gpus(self.nodes[node])
            free = [index for index in range(there) if not taken[index] and index not in ill]
            assert len(free) >= gpus, f"{tree['metadata']['name']} was sent to {node}, which has no {gpus} GPUs"
            made["metadata"]["annotations"][DEVICES] = ",".join(map(str, free[:gpus]))
        self.put(made)

    # Going

    def _evict(self, evict: Evict) -> bool:
        if evict.workload in self.workloads and self.termination == 0:
            self._send_back(evict.workload)
        elif evict.workload in self.workloads:
            tree = copy.deepcopy(self.workloads[evict.workload])
            _set_conditions(tree, {"Evicted": "True"}, self.now, "Preempted")
            self.put(tree)
            for member in self.members_of_workload(evict.workload):
                if not member["spec"].get("nodeName"):
                    self.drop_pod(f"{NAMESPACE}/{member['metadata']['name']}")
        for key in evict.pods:
            if key in self._leaving or key not in self.pods:
                continue
            if self.termination == 0:
                self._gone(key)
                continue
            tree = copy.deepcopy(self.pods[key])
            tree["metadata"]["deletionTimestamp"] = stamp(self.now)
            self._leaving[key] = self.now + self.termination
            self.put(tree)
        if evict.workload in self.workloads and self.termination and not evict.pods:
            self._send_back(evict.workload)
        return True

    def _gone(self, key: str) -> None:
        """A pod has ended before its work was done: whoever made it makes it again."""
        tree = self.drop_pod(key)
        if OWNER in tree["metadata"]["annotations"]:
            owner = f"{NAMESPACE}/{tree['metadata']['annotations'][OWNER]}"
            status = self.workloads[owner]["status"]
            evicted = any(one["type"] == "Evicted" for one in status["conditions"])
            if evicted and not self.members_of_workload(owner):
                self._send_back(owner)
            return
        self.now += 1  # pods that came in the same second are taken as they came, and stores may differ in that
        fresh = copy.deepcopy(tree)
        meta = fresh["metadata"]
        meta.pop("deletionTimestamp", None)
        meta["annotations"].pop(DEVICES, None)
        meta["creationTimestamp"] = stamp(self.now)
        meta["uid"] = f"uid-{meta['name']}-{self.serial()}"
        fresh["spec"].pop("nodeName", None)
        fresh["status"] = {"phase": "Pending"}
        self.put(fresh)

    def _send_back(self, key: str) -> None:
        tree = copy.deepcopy(self.workloads[key])
        for member in self.members_of_workload(key):
            self.drop_pod(f"{NAMESPACE}/{member['metadata']['name']}")
        tree["status"].pop("admission", None)
        wanted = {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True"}
        _set_conditions(tree, wanted, self.now, "Preempted")
        stats = tree["status"].setdefault("schedulingStats", {"evictions": [{"reason": "Preempted", "count": 0}]})
        stats["evictions"][0]["count"] += 1
        self.put(tree)

    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        for key, due in list(self._leaving.items()):
            if due <= self.now and key in self._leaving:
                self._gone(key)
        self._note_broken_gangs()

    @property
    def is_settled(self) -> bool:
        return not self._leaving

    def end(self, key: str) -> None:
        """The work of a pod, a gang or a Workload is done."""
        if key in self.groups:
            for member in self.members(key):
                self.drop_pod(f"{NAMESPACE}/{member['metadata']['name']}")
            self.groups.pop(key)
            self.store.apply([Deleted("PodGroup", key)])
        elif key in self.workloads:
            for member in self.members_of_workload(key):
                self.drop_pod(f"{NAMESPACE}/{member['metadata']['name']}")
            self.workloads.pop(key)
            self.store.apply([Deleted("Workload", key)])
        else:
            self.drop_pod(key)
        self.below_since.pop(key, None)

    def lose_node(self, name: str) -> None:
        self.away[name] = self.nodes.pop(name)
        self.store.apply([Deleted("Node", name)])
        for key in [key for key, one in self.pods.items() if one["spec"].get("nodeName") == name]:
            if key in self.pods:
                self._gone(key)
        self._note_broken_gangs()

    def return_node(self, name: str) -> None:
        self.put(self.away.pop(name))

    def change_queue(self, name: str, tree: Unstructured) -> None:
        assert tree["metadata"]["name"] == name
        self.put(tree)

    # Gangs

    def running(self, group: str) -> int:
        return sum(1 for pod in self.members(group) if self._runs(pod))

    @staticmethod
    def _runs(tree: Unstructured) -> bool:
        return bool(tree["spec"].get("nodeName")) and "deletionTimestamp" not in tree["metadata"]

    def is_broken(self, group: str) -> bool:
        return 0 < self.running(group) < self.groups[group]["spec"]["minMember"]

    def _note_broken_gangs(self) -> None:
        for key in self.groups:
            if self.is_broken(key):
                self.below_since.setdefault(key, self.now)
            else:
                self.below_since.pop(key, None)

    def everything(self) -> list[str]:
        """Keys of all that was submitted and has not ended."""
        alone = [
            key
            for key, one in self.pods.items()
            if GROUP not in one["metadata"]["labels"] and OWNER not in one["metadata"]["annotations"]
        ]
        return sorted([*alone, *self.groups, *self.workloads])


def _set_conditions(tree: Unstructured, wanted: dict[str, str], now: int, reason: str = "") -> None:
    """An empty status takes the condition away."""
    kept = [one for one in tree["status"]["conditions"] if one["type"] not in wanted]
    made = [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": stamp(now)}
        for kind, status in wanted.items()
        if status
    ]
    tree["status"]["conditions"] = kept + made


__all__ = ["FRACTION", "QUEUE", "World"]
