"""Builders of GPU nodes and pods with requests, and `Desk`, which decides on them."""

from __future__ import annotations

import json

import msgspec

from windlass.cluster.delta import Assume, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node, NodeSpec, NodeStatus
from windlass.model.pod import Container, Pod, PodSpec, ResourceRequirements
from windlass.placement.policies import PlacementConfig

GPU = "nvidia.com/gpu"
H100, A100, T4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB", "Tesla-T4"
LAYOUT, UNHEALTHY = "windlass.dev/devices-layout", "windlass.dev/unhealthy-devices"


def node(name, *, cpu=16, memory="64Gi", labels=None, taints=(), cordoned=False, annotations=None, **extra):
    """A node without GPUs; further resources by keyword or `**{"example.com/nic": 2}`."""
    amounts = {"cpu": str(cpu), "memory": memory, "pods": "110", **{key: str(n) for key, n in extra.items()}}
    return Node(
        metadata=ObjectMeta(
            name=name,
            labels={"kubernetes.io/hostname": name, **(labels or {})},
            annotations=annotations or {},
        ),
        spec=NodeSpec(taints=tuple(taints), unschedulable=cordoned),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


def gpu_node(name, gpus, *, model=H100, ill=0, replicas=1, labels=None, **options):
    """`gpus` equal GPUs, of which the last `ill` are unhealthy; `replicas` of each by time-slicing."""
    found = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.count": str(gpus), **(labels or {})}
    if replicas > 1:
        found |= {"nvidia.com/gpu.replicas": str(replicas), "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    made = node(name, labels=found, **options, **{GPU: gpus * replicas})
    if not ill:
        return made
    left = {**made.status.allocatable, GPU: str((gpus - ill) * replicas)}
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, allocatable=left))


def layout_node(name, *groups, annotations=None, **options):
    """Groups of devices as dicts: model, count, and island, memory or mig where it matters."""
    whole = sum(group["count"] for group in groups if not group.get("mig"))
    extra = {GPU: whole} if whole else {}
    return node(name, annotations={LAYOUT: json.dumps(groups), **(annotations or {})}, **options, **extra)


def mig_node(name, gpus, *, model=H100, **options):
    """GPUs on which MIG instances are created on demand."""
    return layout_node(name, {"model": model, "count": gpus, "mig": "dynamic"}, **options)


def pod(
    name,
    gpus=0,
    *,
    share=None,
    memory_mib=None,
    devices=None,
    models=None,
    mig=None,
    cpu="1",
    asks=None,
    labels=None,
    annotations=None,
    priority=0,
    created="",
    group=None,
    on="",
    namespace="default",
    phase="",
    **spec,
):
    """A pod with a GPU request in one of the common forms; `group` is (name, total), `on` a node name."""
    notes = dict(annotations or {})
    if share is not None:
        notes["gpu-fraction"] = str(share)
    if memory_mib is not None:
        notes["gpu-memory"] = str(memory_mib)
    if devices is not None:
        notes["gpu-fraction-num-devices"] = str(devices)
    if models is not None:
        notes["alibabacloud.com/gpu-card-model"] = "|".join(models)
    tags = dict(labels or {})
    if group is not None:
        tags["kueue.x-k8s.io/pod-group-name"] = group[0]
        notes["kueue.x-k8s.io/pod-group-total-count"] = str(group[1])
    limits = {"cpu": cpu, **(asks or {})}
    if gpus:
        limits[GPU] = str(gpus)
    if mig is not None:
        limits[f"nvidia.com/mig-{mig[0]}"] = str(mig[1])
    spec.setdefault("containers", (Container(resources=ResourceRequirements(limits=limits)),))
    made = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels=tags,
            annotations=notes,
            uid=name,
            creation_timestamp=created,
        ),
        spec=PodSpec(priority=priority, node_name=on, **spec),
    )
    if phase:
        made = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, phase=phase))
    return made


def bound(waiting, name, **annotations):
    """The same pod as the API server shows it once it is bound; annotations with underscores for dashes."""
    notes = {f"windlass.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = msgspec.structs.replace(waiting.metadata, annotations={**waiting.metadata.annotations, **notes})
    return msgspec.structs.replace(waiting, metadata=meta, spec=msgspec.structs.replace(waiting.spec, node_name=name))


def in_bytes(plan):
    """The plan as JSON, for comparisons byte by byte."""
    return msgspec.json.encode((list(plan.binds), list(plan.holds)))


class Desk:
    """A store and the engine: put objects in, `run` decides and assumes the binds."""

    def __init__(self, *objects, policy="windlass", mix=None, seed=0, ranks=None, explain=0):
        self.store, self.memo = Store(ranks), EngineCache()
        self.config = EngineConfig(PlacementConfig(policy, seed), mix, max_explained_holds=explain)
        self.put(*objects)

    def put(self, *objects):
        self.store.apply([Put(obj) for obj in objects])
        return self

    def apply(self, *deltas):
        self.store.apply(deltas)
        return self

    def plan(self):
        return decide(self.store.snapshot(), self.config, 0, self.memo)

    def run(self):
        """{pod name: node name} of the new binds, which are assumed in the store."""
        plan = self.plan()
        self.store.apply([Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds])
        return {bind.pod.partition("/")[2]: bind.node for bind in plan.binds}

    def devices(self, name, namespace="default"):
        """The devices that the pod would get now: (index, milli), or (index, profile, start) for MIG."""
        (bind,) = [bind for bind in self.plan().binds if bind.pod == f"{namespace}/{name}"]
        return [
            (grant.index, grant.profile, grant.start) if grant.profile else (grant.index, grant.milli)
            for grant in bind.devices
        ]

    def verdict(self, name, namespace="default"):
        """Of the pod, or of the gang that it is a member of."""
        snapshot = self.store.snapshot()
        key = f"{namespace}/{name}"
        pods = [pod for pod in snapshot.pods.objects if pod.key == key]
        label = "kueue.x-k8s.io/pod-group-name"
        names = {key, *(f"{namespace}/{pod.metadata.labels.get(label)}" for pod in pods)}
        (hold,) = [hold for hold in self.plan().holds if hold.workload in names]
        return hold.verdict

    def room(self, name):
        """Free milli-GPU by device."""
        snapshot = self.store.snapshot()
        rows = snapshot.node_state.devices(snapshot.nodes.index[name])
        return snapshot.node_state.device_occupancy[rows.start : rows.stop, 0].tolist()

    def free(self, name, resource="cpu"):
        snapshot = self.store.snapshot()
        return int(snapshot.node_state.free[snapshot.nodes.index[name], snapshot.resources.column(resource)])
