"""Objects of the operator, and what nodes, agents, tenants and kubelets write beside them, through its decision.

What an API server would refuse by the printed CRDs does not come in; what it takes must be decided on.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from tests.fuzz.mutate import Mutator
from tests.fuzz.target import Finding, Target, few

from windlass.cli.install_operator_crds import operator_crds
from windlass.cluster.delta import Put
from windlass.embedded.api.structural_schema import TooExpensive, Walk, schema_errors
from windlass.model.names.nvidia import GPU_COUNT_LABEL, GPU_PRODUCT_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.names.windlass import (
    DEVICE_FAULTS_ANNOTATION,
    DRIVER_REVISION_LABEL,
    HELD_DEVICES_ANNOTATION,
    LEAVE_ANNOTATION,
    NODE_ANSWER_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
)
from windlass.model.unstructured import Unstructured
from windlass.operator.cache import OperatorCache, decode_observed
from windlass.operator.decide.main import decide
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL

GROUP = "windlass.dev/v1alpha1"
NOW = 1_800_000_000
WHEN = "2027-01-15T07:50:00Z"


def _own(kind: str, name: str, spec: Unstructured, status: Unstructured | None = None) -> Unstructured:
    metadata = {"name": name, "uid": name, "generation": 1, "creationTimestamp": WHEN, "resourceVersion": "5"}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec, "status": status or {}}


NODES: list[Unstructured] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "5",
            "labels": {
                "pool": "a",
                DRIVER_VERSION_LABEL: "580.1",
                DRIVER_REVISION_LABEL: "580.1",
                GPU_PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3",
                GPU_COUNT_LABEL: "8",
                MIG_CONFIG_STATE_LABEL: "success",
            },
            "annotations": {
                HELD_DEVICES_ANNOTATION: "0,1",
                NODE_REQUEST_ANNOTATION: '{"id":"r1","action":"reset","device":0}',
                NODE_ANSWER_ANNOTATION: '{"id":"r1","state":"Done"}',
                DEVICE_FAULTS_ANNOTATION: '[{"device":1,"fault":"Xid 79","action":"reset"}]',
            },
        },
        "spec": {"taints": [{"key": "windlass.dev/maintenance", "value": "x", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "7", "cpu": "8"},
            "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": WHEN}],
            "nodeInfo": {"bootID": "b", "kernelVersion": "6.1", "osImage": "x", "architecture": "amd64"},
        },
    }
    for name in ("n0", "n1", "n2")
]
PODS: list[Unstructured] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{number}",
            "namespace": "t",
            "uid": f"p{number}",
            "labels": {"app": "nvidia-driver-daemonset"},
            "annotations": {
                "windlass.dev/on-preemption": "ask",
                "windlass.dev/checkpoint-grace": "60s",
                LEAVE_ANNOTATION: f'{{"at":"{WHEN}"}}',
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}],
        },
        "spec": {
            "nodeName": f"n{number}",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": "Running"},
    }
    for number in range(3)
]
WAVE = {"nodes": "50%", "bake": "10m"}
OBJECTS: list[Unstructured] = [
    _own(
        "GPUStack",
        "a",
        {
            "nodes": {"matchLabels": {"pool": "a"}},
            "driver": {"source": "container", "image": "r/driver", "version": "580.1"},
            "maxUnavailable": "50%",
            "repair": {"settle": "1m", "breakerPercent": 20},
        },
        {"phase": "Ready", "observedGeneration": 1},
    ),
    _own(
        "FleetChange",
        "c",
        {
            "stack": "a",
            "driver": {"version": "590.1"},
            "waves": [{"nodes": 1, "bake": "10m"}, WAVE],
            "gates": [{"name": "p99", "query": "x", "max": 1}],
            "windows": [{"start": "22:00", "end": "04:00"}],
        },
        {"phase": "Running", "wave": 1},
    ),
    _own("GPURepair", "r", {"node": "n1", "device": 1}, {"phase": "Running"}),
    _own("GPUNode", "n0", {}, {"phase": "Ready"}),
]


class Operators(Target):
    name, share = "operator", 5

    def __init__(self) -> None:
        self._mutator = Mutator([*NODES, *PODS, *OBJECTS])
        self._schemas = {
            crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for crd in operator_crds()
        }

    def draw(self, rng: Random) -> Any:
        trees = [*NODES, *PODS, *(tree for tree in OBJECTS if rng.random() < 0.8)]
        bent = set(rng.sample(range(len(trees)), rng.choice((1, 1, 2, 3))))
        return [self._mutator.tree(tree, rng, few(rng)) if i in bent else tree for i, tree in enumerate(trees)]

    def play(self, drawn: Any) -> None:
        cache = OperatorCache("windlass-node")
        for tree in drawn:
            if self._is_taken(tree):
                cache.push([Put(decode_observed(msgspec.json.encode(tree), tree["kind"], tree["apiVersion"]))])
        for now in (NOW, NOW + 600, NOW + 86_400):
            decision = decide(cache.observed(), now)
            if decision != decide(cache.observed(), now):
                raise Finding("the same objects are decided on in two ways")

    def _is_taken(self, tree: Any) -> bool:
        """Whether an API server would store it: the envelope, and the schema of a custom kind."""
        if not isinstance(tree, dict) or not isinstance(tree.get("metadata"), dict):
            return False
        metadata = tree["metadata"]
        if not isinstance(metadata.get("name"), str) or not metadata["name"].isascii():
            return False
        known = {(each["kind"], each["apiVersion"]) for each in (*NODES, *PODS, *OBJECTS)}
        if (str(tree.get("kind")), str(tree.get("apiVersion"))) not in known:
            return False
        schema = self._schemas.get(tree["kind"])
        if schema is None:
            return True
        try:
            return not list(schema_errors(tree, schema, "", Walk(100_000)))
        except TooExpensive:
            return False
