"""Compiled kernels before the first pod waits for them.

`scheduler.scheduler` calls it once, while the informers list. Small clusters would do without compiled code for a
single question; a scheduler answers thousands.
"""

from __future__ import annotations

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.cluster.workloads.units import KUEUE_GROUP
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.codec import decode_object

_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def warm_up(config: EngineConfig) -> None:
    """Load every kernel that a decision uses; compiles those that nobody has compiled here before."""
    jit.compiled()
    store, memo = Store(), EngineCache()
    store.apply([Put(decode_object(_NODE))])
    alone = [[_pod(f"p{number}", gpus)] for number, gpus in enumerate((1, 16, 2))]
    gang = [_pod(f"g{gpus}", gpus, "g") for gpus in (1, 2)]
    for pods in (*alone, gang):
        store.apply([Put(decode_object(pod)) for pod in pods])
        snapshot = store.snapshot(1)
        list(decide(snapshot, config, 1, memo).holds)
        store.mark_decided(snapshot.pods.pending())


def _pod(name: str, gpus: int, gang: str = "") -> dict[str, object]:
    container = {
        "name": "c",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "1"}},
    }
    metadata: dict[str, object] = {
        "name": name,
        "namespace": "warm",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if gang:
        metadata["labels"] = {KUEUE_GROUP: gang}
        metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
