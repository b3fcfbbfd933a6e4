"""A shape: all that a single node can see of a pod.

Thousands of pods have a few dozen shapes, and everything node-local (filters, scores) is worked out once a shape.
The store interns every pod it meets; `placement.score_table` keeps one row a shape. What ties a pod to *other* pods
(inter-pod affinity, spread, host ports) is not part of it.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.node_state import MAX_REQUESTS
from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest, gpu_request
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

_IDENTITIES = 4096


NOT_INTERNED = -1
STRATEGY_ANNOTATION = "windlass.dev/placement"
STRATEGIES = ("pack", "spread", "balanced")


class Shape(msgspec.Struct, frozen=True):
    """`number` is its index in the book (NO_NUMBER: in none); `pod` is any pod of the shape, for the filters."""

    number: int
    pod: Pod
    requests: tuple[tuple[str, int], ...]
    """Effective request in base units, sorted by name, zeros left out."""
    gpu: GpuRequest | None
    key: bytes
    strategy: str = ""
    """`pack`, `spread` or `balanced` where the pod's annotation says so."""

    @property
    def gpu_milli(self) -> int:
        """Milli-GPU asked for in all (0 where it is known only once a device is chosen)."""
        return self.gpu.count * self.gpu.milli if self.gpu and not self.gpu.profile else 0


def shape_key(pod: Pod, requests: tuple[tuple[str, int], ...], gpu: GpuRequest | None) -> bytes:
    """Equal for two pods exactly where a node can't tell them apart."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    claims = tuple(v for v in spec.volumes if v.persistent_volume_claim or v.ephemeral)
    # Claims are looked up by namespace, and an ephemeral volume's claim by the pod's name as well.
    where = (pod.metadata.namespace, pod.metadata.name if any(v.ephemeral for v in claims) else "")
    return msgspec.json.encode(
        (requests, gpu, spec.node_selector, affinity, spec.tolerations, claims, where if claims else ()),
        order="deterministic",
    )


def read_requests(pod: Pod) -> tuple[tuple[tuple[str, int], ...], GpuRequest | None]:
    """What the pod asks for: resources sorted by name, and GPUs. Raises InputError, naming the field, if that can't be
    read; whoever has called this once with success can make a shape of the pod."""
    amounts = pod_requests(pod)
    gpu = gpu_request(pod, amounts)
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
    if len(requests) > MAX_REQUESTS:
        raise InputError(
            f"asks for {len(requests)} different resources; {MAX_REQUESTS} is the most",
            object=f"Pod {pod.key}",
            path="spec.containers",
            remedy="split the work into several pods",
            code="INVALID_OBJECT",
        )
    return requests, gpu


def make_shape(pod: Pod) -> Shape:
    """The pod's shape, in no book. Raises InputError, naming the field, if the pod can't be read."""
    requests, gpu = read_requests(pod)
    # The filters must not take the node that this one pod happens to be on for a wish of the shape.
    loose = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    strategy = pod.metadata.annotations.get(STRATEGY_ANNOTATION, "")
    strategy = strategy if strategy in STRATEGIES else ""
    key = shape_key(pod, requests, gpu) + strategy.encode()
    return Shape(NOT_INTERNED, loose, requests, gpu, key, strategy)


def is_node_local(pod: Pod) -> bool:
    """Whether only a node's own state decides where the pod can go, and nothing makes it wait or prefer."""
    spec = pod.spec
    if spec.scheduling_gates or spec.resource_claims or spec.topology_spread_constraints:
        return False
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return False
    if any(
        port.host_port for container in (*spec.init_containers, *spec.containers) for port in container.ports
    ):
        return False
    affinity = spec.affinity
    if affinity is None:
        return not spec.host_network
    if affinity.pod_affinity or affinity.pod_anti_affinity:
        return False
    node = affinity.node_affinity
    return not spec.host_network and not (node and node.preferred_during_scheduling_ignored_during_execution)


def has_pod_affinity(pod: Pod) -> bool:
    """Whether the pod, once bound, can keep others off nodes, or draw them, by more than what it takes."""
    affinity = pod.spec.affinity
    return affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)


class ShapeRegistry:
    """Interns pods by shape; only ever grows."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self._by_key: dict[bytes, Shape] = {}
        self._by_identity: dict[tuple[int, int, str], tuple[Pod, Shape, bool]] = {}

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, number: int) -> Shape:
        return self.shapes[number]

    def intern(self, pod: Pod) -> tuple[Shape, bool]:
        """The pod's shape, and whether it is plain. Raises InputError, naming the field, if it can't be read."""
        # A trace's pods share their spec and annotations: the same two objects can only mean the same shape.
        identity = (id(pod.spec), id(pod.metadata.annotations), pod.metadata.namespace)
        known = self._by_identity.get(identity)
        if known is not None:
            return known[1], known[2]
        shape, plain = self._intern(pod), is_node_local(pod)
        if plain:
            if len(self._by_identity) >= _IDENTITIES:
                self._by_identity.clear()
            self._by_identity[identity] = (
                pod,
                shape,
                plain,
            )  # holding the pod keeps its ids from being reused
        return shape, plain

    def _intern(self, pod: Pod) -> Shape:
        shape = make_shape(pod)
        known = self._by_key.get(shape.key)
        if known is None:
            known = self._by_key[shape.key] = msgspec.structs.replace(shape, number=len(self.shapes))
            self.shapes.append(known)
        return known
