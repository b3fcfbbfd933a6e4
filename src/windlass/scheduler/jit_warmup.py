"""Compiles the kernels before the first decision, by deciding on a small made-up cluster.

`scheduler.scheduler` calls `warm_up` once, in a thread, while the informers list. A single decision on a small cluster
is faster interpreted, but a scheduler makes thousands.
"""

from __future__ import annotations

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.names.nvidia import GPU_RESOURCE

_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {HOSTNAME_LABEL: "n"}},
    "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", GPU_RESOURCE: "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def warm_up(config: EngineConfig) -> None:
    """Loads every kernel that a decision uses, and compiles those that are not cached on disk."""
    jit.compiled()
    store, engine_cache = Store(), EngineCache()
    store.apply([Put(decode_object(_NODE))])
    # The pod of 16 GPUs is held, so that the kernels of verdicts are compiled, too.
    single_pods = [[_pod(f"p{number}", gpus)] for number, gpus in enumerate((1, 16, 2))]
    gang = [_pod(f"g{gpus}", gpus, "g") for gpus in (1, 2)]
    for pods in (*single_pods, gang):
        store.apply([Put(decode_object(pod)) for pod in pods])
        snapshot = store.snapshot(1)
        list(decide(snapshot, config, 1, engine_cache).holds)
        store.mark_decided(snapshot.pods.pending())


def _pod(name: str, gpus: int, gang: str = "") -> dict[str, object]:
    container = {"name": "c", "resources": {"limits": {GPU_RESOURCE: str(gpus)}, "requests": {"cpu": "1"}}}
    metadata: dict[str, object] = {
        "name": name,
        "namespace": "warm",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if gang:
        metadata["labels"] = {KUEUE_POD_GROUP_NAME: gang}
        metadata["annotations"] = {POD_GROUP_TOTAL_COUNT_ANNOTATION: "2"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
