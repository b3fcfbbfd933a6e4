"""A small cluster on which plans are carried out at once: what is asked is annotated, what is evicted is pending again.

Shared by the tests of asks. The order is that of `execute_plan`; time only moves when a test says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.apply.asks import request_of
from windlass.apply.decision_sink import execute_plan
from windlass.cluster.delta import Assume, Deleted, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, Ask, Bind, Evict, Hold, Reserve, Resize, WithdrawAsk
from windlass.model.leaving import Answer, read_request, write
from windlass.model.names.windlass import ASK_ANNOTATION, ASK_ANSWER_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp

NOW = 1_767_226_000
GPU = "nvidia.com/gpu"
ASKS = {"windlass.dev/on-preemption": "ask"}
GANG = "kueue.x-k8s.io/pod-group-name"


def node(name: str, gpus: int = 1, taint: str = "") -> Any:
    room = {GPU: str(gpus), "cpu": "64", "memory": "64Gi", "pods": "20"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}
    return decode_object(tree | {"status": status})


def pod(
    name: str, on: str = "", *, priority: int = 0, gang: str = "", gpus: int = 1, size: int = 2, **annotations: str
) -> Any:
    """Annotations without their prefix and with `_` for `-`."""
    own = {f"windlass.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata: dict[str, Any] = {"name": name, "namespace": "a", "uid": name, "annotations": own}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if gang:
        metadata["labels"] = {GANG: gang}
        own["kueue.x-k8s.io/pod-group-total-count"] = str(size)
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"priority": priority, "nodeName": on, "containers": [container]}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


class Cluster:
    def __init__(self, *objects: Any, config: EngineConfig | None = None) -> None:
        self.store, self.config, self._cache = Store(), config or EngineConfig(), EngineCache()
        self.pods: dict[str, Pod] = {}
        self.now = NOW
        self.evicted: list[str] = []
        self.put(*objects)

    def put(self, *objects: Any) -> None:
        self.pods |= {obj.key: obj for obj in objects if isinstance(obj, Pod)}
        self.store.apply([Put(obj) for obj in objects])

    def delete(self, key: str) -> None:
        del self.pods[key]
        self.store.apply([Deleted("Pod", key)])

    def annotate(self, key: str, name: str, value: str | None) -> None:
        pod = self.pods[key]
        kept = {known: text for known, text in pod.metadata.annotations.items() if known != name}
        kept |= {name: value} if value is not None else {}
        self.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept)))

    def answer(self, key: str, checkpoint: int | None = None, where: str = "", identity: str = "") -> None:
        request = read_request([self.pods[key].metadata])
        assert request is not None, "it was asked"
        at = format_timestamp(self.now if checkpoint is None else checkpoint)
        self.annotate(key, ASK_ANSWER_ANNOTATION, write(Answer(identity or request.id, at, where)))

    def asked(self) -> list[str]:
        return sorted(key for key, pod in self.pods.items() if ASK_ANNOTATION in pod.metadata.annotations)

    def running(self) -> list[str]:
        return sorted(key for key, pod in self.pods.items() if pod.spec.node_name)

    def decide(self) -> Plan:
        return decide(self.store.snapshot(self.now), self.config, self.now, self._cache)

    def step(self, seconds: int = 0) -> Plan:
        """The next plan, carried out."""
        self.now += seconds
        plan = self.decide()
        execute_plan(plan, _Sink(self))
        return plan

    def settle(self, most: int = 12) -> list[Plan]:
        """Plans until one changes nothing; fails where that never comes."""
        plans = []
        for _ in range(most):
            before = dict(self.pods)
            plans.append(self.step())
            if self.pods == before:
                return plans
        raise AssertionError(f"still changing after {most} plans: {plans[-1]}")


class _Sink:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        for ask in asks:
            for key in ask.pods:
                self._cluster.annotate(key, ASK_ANNOTATION, write(request_of(ask)))
        for key in (pod for withdrawal in withdrawals for pod in withdrawal.pods):
            self._cluster.annotate(key, ASK_ANNOTATION, None)
            self._cluster.annotate(key, ASK_ANSWER_ANNOTATION, None)

    def evict(self, evicts: Sequence[Evict]) -> None:
        for key in (pod for evict in evicts for pod in evict.pods):
            pod = self._cluster.pods[key]
            assert pod.spec.node_name, "nothing is evicted twice"
            self._cluster.evicted.append(key)
            self._cluster.delete(key)
            kept = {
                name: text
                for name, text in pod.metadata.annotations.items()
                if name not in (ASK_ANNOTATION, ASK_ANSWER_ANNOTATION)
            }
            metadata = msgspec.structs.replace(pod.metadata, annotations=kept)
            spec = msgspec.structs.replace(pod.spec, node_name="")
            self._cluster.put(msgspec.structs.replace(pod, metadata=metadata, spec=spec))

    def is_terminating(self, key: str) -> bool:
        return False  # evicted pods end at once

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self._cluster.store.apply([Assume(bind.pod, bind.node, bind.devices) for bind in binds])
        for bind in binds:
            pod = self._cluster.pods[bind.pod]
            self._cluster.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=bind.node)))

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None: ...

    def resize(self, resizes: Sequence[Resize]) -> None: ...

    def reserve(self, reserves: Sequence[Reserve]) -> None: ...

    def hold(self, holds: Sequence[Hold]) -> None: ...
