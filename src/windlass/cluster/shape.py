"""A shape: everything of a pod that matters to a single node.

Thousands of pods have a few dozen shapes, and everything node-local (filters, scores) is computed once per shape. The
store interns every pod; `placement.score_table` has one row per shape. Relations to *other* pods (inter-pod affinity,
spread, host ports) are not part of it.

The filters run on one pod of the shape, whichever came first. So `shape_key` must contain every pod field that a filter
reads: a field that is missing there makes the filter answer for another pod.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.node_state import MAX_REQUESTS
from windlass.cluster.pod_table import UNREADABLE, PodTraits
from windlass.model.bug import bug_of
from windlass.model.configuration import PLACEMENT_STRATEGIES
from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest, gpu_request
from windlass.model.names.windlass import PLACEMENT_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.requests import Amounts, pod_requests

MAX_CACHED_PODS = 4096
NOT_INTERNED = -1


class Shape(msgspec.Struct, frozen=True):
    """`number` is its index in the registry, or NOT_INTERNED."""

    number: int
    pod: Pod
    """Any pod of the shape, unbound. The filters read it for all of them, so only the fields of `shape_key` count."""
    requests: tuple[tuple[str, int], ...]
    """Effective request in base units, sorted by name, zeros left out."""
    gpu: GpuRequest | None
    key: bytes
    strategy: str = ""
    """Placement strategy of the pod's annotation: `pack`, `spread`, `balanced`; empty: none."""

    @property
    def gpu_milli(self) -> int:
        """Milli-GPU requested in total; 0 for MIG profiles."""
        return self.gpu.count * self.gpu.milli if self.gpu and not self.gpu.profile else 0


def shape_key(pod: Pod, requests: tuple[tuple[str, int], ...], gpu: GpuRequest | None) -> bytes:
    """Equal only for pods that every node treats alike; it must contain every pod field that a filter reads.

    Annotations count through what is read from them: the GPU request and the placement strategy. `spec.nodeName` does
    not count, since a shape's pod has none.
    """
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    claims = tuple(v for v in spec.volumes if v.persistent_volume_claim or v.ephemeral)
    # Claims are looked up by namespace, and an ephemeral volume's claim by the pod's name as well.
    owner = (pod.metadata.namespace, pod.metadata.name if any(v.ephemeral for v in claims) else "")
    return msgspec.json.encode(
        (
            requests,
            gpu,
            spec.node_selector,
            affinity,
            spec.tolerations,
            claims,
            owner if claims else (),
            placement_strategy(pod),
        ),
        order="deterministic",
    )


def placement_strategy(pod: Pod) -> str:
    """The strategy of the pod's annotation; empty where there is none, or none that exists."""
    strategy = pod.metadata.annotations.get(PLACEMENT_ANNOTATION, "")
    return strategy if strategy in PLACEMENT_STRATEGIES else ""


def read_requests(
    pod: Pod, known_amounts: Amounts | None = None
) -> tuple[tuple[tuple[str, int], ...], GpuRequest | None]:
    """The pod's requests sorted by resource name, and its GPU request. Raises InputError, naming the field, if they
    can't be read; if it succeeds, so does `make_shape`. A bound pod that can't be read blocks its node, so raise only
    where what the pod uses is unknown."""
    amounts = pod_requests(pod) if known_amounts is None else known_amounts
    gpu = gpu_request(pod, amounts)
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
    if len(requests) > MAX_REQUESTS:
        raise InputError(
            f"requests {len(requests)} different resources; the limit is {MAX_REQUESTS}",
            object=f"Pod {pod.key}",
            path="spec.containers",
            remedy="split the work into several pods",
            code="INVALID_OBJECT",
        )
    return requests, gpu


def make_shape(pod: Pod, known_amounts: Amounts | None = None) -> Shape:
    """The pod's shape, not interned. Raises InputError, naming the field, if the pod can't be read. `known_amounts`:
    its effective request, where the caller has it."""
    requests, gpu = read_requests(pod, known_amounts)
    # The filters must not take the node of this pod for a requirement of the shape.
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    key = shape_key(pod, requests, gpu)
    return Shape(NOT_INTERNED, unbound, requests, gpu, key, placement_strategy(pod))


def is_node_local(pod: Pod) -> bool:
    """Whether only a node's own state decides where the pod can go: no gates, claims, host ports, relations to other
    pods, or preferences among nodes. Such pods skip `placement.filters.prefilter`, too."""
    spec = pod.spec
    if spec.scheduling_gates or spec.resource_claims or spec.topology_spread_constraints:
        return False
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return False
    if any(port.host_port for container in (*spec.init_containers, *spec.containers) for port in container.ports):
        return False
    affinity = spec.affinity
    if affinity is None:
        return not spec.host_network
    if affinity.pod_affinity or affinity.pod_anti_affinity:
        return False
    node = affinity.node_affinity
    return not spec.host_network and not (node and node.preferred_during_scheduling_ignored_during_execution)


def has_pod_affinity(pod: Pod) -> bool:
    """Whether the pod, once bound, can repel or attract other pods."""
    affinity = pod.spec.affinity
    return affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)


class ShapeRegistry:
    """Interns pods by shape; shapes are never removed."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self._by_key: dict[bytes, Shape] = {}
        self._by_identity: dict[tuple[int, int, str], tuple[Pod, Shape, bool]] = {}

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, number: int) -> Shape:
        return self.shapes[number]

    def forget(self, pod: Pod) -> None:
        """Lets the pod go, which `intern` may have kept."""
        identity = _identity(pod)
        known = self._by_identity.get(identity)
        if known is not None and known[0] is pod:
            del self._by_identity[identity]

    def intern(self, pod: Pod) -> tuple[Shape, bool]:
        """The pod's shape, and whether it is node-local. Raises InputError, naming the field, if it can't be read."""
        # Pods of a trace share their spec and annotations: the same two objects give the same shape.
        identity = _identity(pod)
        known = self._by_identity.get(identity)
        if known is not None:
            return known[1], known[2]
        shape, node_local = self._intern(pod), is_node_local(pod)
        if node_local:
            if len(self._by_identity) >= MAX_CACHED_PODS:
                self._by_identity.clear()
            # Keeping the pod keeps its ids from being reused.
            self._by_identity[identity] = (pod, shape, node_local)
        return shape, node_local

    def _intern(self, pod: Pod) -> Shape:
        shape = make_shape(pod)
        known = self._by_key.get(shape.key)
        if known is None:
            known = self._by_key[shape.key] = msgspec.structs.replace(shape, number=len(self.shapes))
            self.shapes.append(known)
        return known


def _identity(pod: Pod) -> tuple[int, int, str]:
    return id(pod.spec), id(pod.metadata.annotations), pod.metadata.namespace


class PodTraitsCache:
    """The traits of every pod that the store adds. Pods that share all that matters by identity are read once. Nothing
    is kept of pods that the store has removed: live, every version of every pod is an object of its own."""

    def __init__(self, shapes: ShapeRegistry, unreadable: dict[str, str]) -> None:
        """`unreadable`: pod → error; the errors of pods that can't be read are added to it."""
        self._shapes, self._unreadable = shapes, unreadable
        self._known: dict[tuple[int, int, int, str], tuple[Pod, PodTraits]] = {}

    def forget(self, pod: Pod) -> None:
        identity = (id(pod.metadata.labels), *_identity(pod))
        known = self._known.get(identity)
        if known is not None and known[0] is pod:
            del self._known[identity]
        self._shapes.forget(pod)

    def of(self, key: str, pod: Pod) -> PodTraits:
        identity = (id(pod.metadata.labels), *_identity(pod))
        known = self._known.get(identity)
        if known is not None:
            return known[1]
        traits = self._read(key, pod)
        if traits.node_local:  # other shapes may depend on the pod's name
            if len(self._known) >= MAX_CACHED_PODS:
                self._known.clear()
            self._known[identity] = (pod, traits)  # keeping the pod keeps its ids from being reused
        return traits

    def _read(self, key: str, pod: Pod) -> PodTraits:
        number, node_local = UNREADABLE, 0
        try:
            shape, is_local = self._shapes.intern(pod)
            number, node_local = shape.number, int(is_local)
        except InputError as error:
            self._unreadable[key] = str(error)
        except Exception as error:  # whatever it is: it concerns this pod, and must not concern the others
            self._unreadable[key] = bug_of(error).message
        return PodTraits(number, node_local, pod.spec.priority)
