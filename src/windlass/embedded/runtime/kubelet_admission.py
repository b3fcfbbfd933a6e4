"""The kubelet's admission of a pod that was bound to its node: whether it still fits.

Called by `kubelet`. A scheduler may have decided on old state, or two schedulers may have raced. The kubelet then
fails the pod with a reason that schedulers and the Job controller understand; nodes are never overcommitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.embedded.runtime.device_manager import FRACTIONAL_GPU
from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import node_quantities, pod_requests
from windlass.model.unstructured import Unstructured

_CHECKED = ("cpu", "memory", "ephemeral-storage")
REJECTED_PREFIX = "Pod was rejected: "


class PodRejected(Exception):
    """The kubelet does not admit the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class PodRequests:
    """A pod's requests, in the integers of `model.requests`."""

    __slots__ = ("devices", "requests")

    def __init__(self, pod: Unstructured) -> None:
        try:
            decoded = convert(pod, Pod)
            assert isinstance(decoded, Pod)
            self.requests = pod_requests(decoded)
            request = gpu_request(decoded, self.requests)
        except InputError as error:
            raise PodRejected("InvalidRequest", f"{REJECTED_PREFIX}{error}") from None
        self.devices: dict[str, int] = {
            name: amount
            for name, amount in self.requests.items()
            if name in (GPU_RESOURCE, SHARED_GPU_RESOURCE) or name.startswith(MIG_RESOURCE_PREFIX)
        }
        if request is not None and not self.devices:
            self.devices[FRACTIONAL_GPU] = request.count

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for pods with equal requests."""
        return (*sorted(self.requests.items()), *sorted(self.devices.items()))


class AllocatableCache:
    """Allocatable resources of nodes, decoded again only when a node's status has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Unstructured, dict[str, int]]] = {}

    def allocatable(self, node: Unstructured) -> Mapping[str, int]:
        name, status = node["metadata"]["name"], node.get("status") or {}
        raw = status.get("allocatable") or status.get("capacity") or {}
        known = self._known.get(name)
        if known is None or known[0] != raw:
            decoded = convert(node, Node)
            assert isinstance(decoded, Node)
            known = self._known[name] = (raw, dict(node_quantities(decoded)[1]))
        return known[1]


def admit(allocatable: Mapping[str, int], requests: PodRequests, others: Iterable[PodRequests]) -> None:
    """Raises `PodRejected` if the node lacks room besides the pods that it runs."""
    running = list(others)
    if "pods" in allocatable and len(running) + 1 > allocatable["pods"]:
        raise _out_of("pods", 1, len(running), allocatable["pods"])
    used = _sum(other.requests for other in running)
    for name in _CHECKED:
        wanted = requests.requests.get(name, 0)
        if wanted and used.get(name, 0) + wanted > allocatable.get(name, 0):
            raise _out_of(name, wanted, used.get(name, 0), allocatable.get(name, 0))


def _out_of(name: str, wanted: int, used: int, capacity: int) -> PodRejected:
    message = f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {capacity}"
    return PodRejected(f"OutOf{name}", REJECTED_PREFIX + message)


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for requests in amounts:
        for name, amount in requests.items():
            total[name] = total.get(name, 0) + amount
    return total
