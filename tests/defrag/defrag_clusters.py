"""Clusters for tests of defragmentation, and an accounting of moves that shares no code with what is tested."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from reference.park import gpu_node, pod
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.defrag import DefragRequest, defrag_plan
from windlass.model.configuration import Settings
from windlass.model.meta import OwnerReference
from windlass.model.pod import PodStatus
from windlass.model.times import format_timestamp
from windlass.placement.defrag.types import SearchLimits

NOW = 1_800_000_000
AGES = (60, 600, 3600, 7200)


def running(name, gpus=0, *, on, age=600, kind="ReplicaSet", notes=None, **options):
    """A pod that runs; `kind` of its controller, empty for a bare one."""
    made = pod(name, gpus, on=on, annotations=notes or {}, created=format_timestamp(NOW - age), **options)
    owners = (OwnerReference(kind=kind, api_version="apps/v1", name="r", controller=True),) if kind else ()
    meta = msgspec.structs.replace(made.metadata, owner_references=owners)
    status = PodStatus(phase="Running", start_time=format_timestamp(NOW - age))
    return msgspec.structs.replace(made, metadata=meta, status=status)


def waiting(size, count=1, name="w", **options):
    """Pods `w0`, `w1`, …, which start together as the workload `default/w`."""
    return [pod(f"{name}{i}", size, group=(name, count), **options) for i in range(count)]


def plan_for(objects, *, workload="default/w", settings=None, is_exact=False, only_new=False, **limits):
    request = DefragRequest(workload, only_new, SearchLimits(**limits), is_exact)
    return defrag_plan(objects, settings or Settings(), NOW, request)


def moves_of(plan):
    return [(move.pod.partition("/")[2], move.from_node, move.to_node) for move in plan.moves]


def dealt(chance, nodes, *, shares=False, most=8, fill=0.95):
    """A cluster in which the waiting pods fit in some arrangement; then all running pods are placed at random.

    `chance` draws: `chance.choice(values)`, `chance.often(share)`. Every pod says which devices it has.
    """
    gpus = [chance.choice((4, 8)) for _ in range(nodes)]
    count = chance.choice((1, 1, 2, 3))
    size = chance.choice(range(3, most + 1)) if count == 1 else chance.choice((2, 3, 4))
    sizes = _sizes(chance, gpus, size, count, fill)
    free, objects = list(gpus), [gpu_node(f"n{i}", room, cpu=64) for i, room in enumerate(gpus)]
    for number, size_ in enumerate(sizes):
        fitting = [i for i in range(nodes) if free[i] >= size_]
        if not fitting:
            continue
        at = chance.choice(fitting)
        first = gpus[at] - free[at]
        options = {
            "on": f"n{at}",
            "age": chance.choice(AGES),
            "kind": "ReplicaSet" if chance.often(0.9) else "",
            "notes": {"windlass.dev/devices": ",".join(map(str, range(first, first + size_)))},
        }
        if shares and size_ == 1:
            part = chance.choice(("0.3", "0.5", "0.6"))
            objects.append(running(f"p{number}", share=part, **options))
        else:
            objects.append(running(f"p{number}", size_, **options))
        free[at] -= size_
    return objects + waiting(size, count)


def _sizes(chance, gpus, size, count, fill):
    left = list(gpus)
    for _ in range(count):
        fitting = [i for i, room in enumerate(left) if room >= size]
        if fitting:
            left[chance.choice(fitting)] -= size
    sizes = []
    for room in left:
        while room and chance.often(fill):
            sizes.append(chance.choice(range(1, min(4, room) + 1)))
            room -= sizes[-1]
    return sorted(sizes, key=lambda size: -size * (1 + chance.choice(range(8))))


class Drawn:
    """Chance as hypothesis draws it."""

    def __init__(self, draw):
        self._draw = draw

    def choice(self, values):
        return self._draw(st.sampled_from(list(values)))

    def often(self, share):
        return self._draw(st.integers(0, 99)) < 100 * share


class Seeded:
    """Chance from a generator with a seed."""

    def __init__(self, generator):
        self._generator = generator

    def choice(self, values):
        return self._generator.choice(list(values))

    def often(self, share):
        return self._generator.random() < share


@st.composite
def clusters(draw, shares=False):
    return dealt(Drawn(draw), draw(st.integers(2, 5)), shares=shares)


class Account:
    """Devices and CPU that each pod holds, in plain dictionaries."""

    def __init__(self, objects):
        store = Store()
        store.apply(Put(object_) for object_ in objects)
        snapshot = store.snapshot(NOW)
        self._cpu = {node.name: 1000 * int(node.status.allocatable["cpu"]) for node in snapshot.nodes.objects}
        self._devices = {node.name: int(node.labels["nvidia.com/gpu.count"]) for node in snapshot.nodes.objects}
        self.where, self._grants, self._asks = {}, {}, {}
        for row in range(len(snapshot.pods.node)):
            object_ = snapshot.pods.objects[row]
            self._asks[object_.key] = snapshot.shapes[int(snapshot.pods.shape[row])]
            if object_.spec.node_name:
                self.where[object_.key] = object_.spec.node_name
                self._grants[object_.key] = {g.index: g.milli for g in snapshot.pods.grants[row]}
        self.check()

    def move(self, move):
        assert self.where.pop(move.pod) == move.from_node
        del self._grants[move.pod]
        self.put(move.pod, move.to_node, move.devices)

    def put(self, key, node, devices):
        self.where[key] = node
        self._grants[key] = {grant.index: grant.milli for grant in devices}
        gpu = self._asks[key].gpu
        if gpu is not None:
            assert sorted(self._grants[key].values()) == [gpu.milli] * gpu.count
        self.check()

    def check(self):
        """No device is given twice, and no node exceeds its CPU."""
        devices, cpu = {}, {}
        for key, node in self.where.items():
            cpu[node] = cpu.get(node, 0) + dict(self._asks[key].requests)["cpu"]
            for index, milli in self._grants[key].items():
                devices[node, index] = devices.get((node, index), 0) + milli
                assert index < self._devices[node]
        assert all(used <= 1000 for used in devices.values()), devices
        assert all(used <= self._cpu[node] for node, used in cpu.items())

    def gpu_milli(self, key):
        return sum(self._grants[key].values())
