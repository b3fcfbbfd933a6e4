"""The kubelets of all nodes of the embedded cluster, as one worker of the controllers' loop.

Hears of pods that are bound to one of its nodes, lets them in or not (`admission`), hands out devices (`machine`),
lives their lives (`podrun`), writes their status (`podstatus`) and deletes them in the end. What it runs them on is a
`ContainerRuntime`: simulated, or processes of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter, EventRecorder
from windlass.embedded.controllers.objects import (
    annotations_of,
    format_time,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    split_key,
    uid_of,
    with_condition,
)
from windlass.embedded.controllers.pod_state import is_finished
from windlass.embedded.runtime.container_run import ContainerRun
from windlass.embedded.runtime.container_runtime import ContainerExit, ContainerLaunch, ContainerRuntime
from windlass.embedded.runtime.device_manager import AllocatableDevice, DeviceManager, DevicesUnavailable
from windlass.embedded.runtime.environment import container_environment
from windlass.embedded.runtime.kubelet_admission import (
    REJECTED_PREFIX,
    AllocatableCache,
    PodRejected,
    PodRequests,
    admit,
)
from windlass.embedded.runtime.pod_addresses import PodAddresses
from windlass.embedded.runtime.pod_status import pod_status
from windlass.embedded.runtime.pod_worker import PodWorker
from windlass.model.unstructured import Unstructured
from windlass.node.preferred_devices import ALLOCATED_DEVICES_ANNOTATION, PREFERRED_DEVICES_ANNOTATION


class NodeFleet(Protocol):
    """The machines that this kubelet stands for."""

    def device_manager(self, node: str) -> DeviceManager | None:
        """None for a node that is somebody else's."""

    def is_ours(self, node: str) -> bool: ...

    def is_down(self, node: str) -> bool:
        """Whether the node has failed and says nothing."""

    def node_names(self) -> list[str]: ...


class Kubelet:
    name = "kubelet"
    resources = ("pods", "nodes")

    def __init__(
        self,
        client: Client,
        cache: Cache,
        fleet: NodeFleet,
        container_runtime: ContainerRuntime,
        start_seconds: float = 0.0,
    ) -> None:
        self._door, self._cache, self._park, self._containers = client, cache, fleet, container_runtime
        self._events = EventRecorder(client, self.name, EventRateLimiter())
        self._room = AllocatableCache()
        self._start_seconds = start_seconds
        self._addresses = PodAddresses()
        self.pod_workers: dict[str, PodWorker] = {}
        self._needs: dict[str, dict[str, PodRequests]] = {}
        """Node → pod → what it needs there."""
        self._shapes: dict[tuple[object, ...], PodRequests] = {}
        """What pods need, once for all that need the same."""
        self._now = 0.0

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "ADDED":
                yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))
            return
        node = (new.get("spec") or {}).get("nodeName")
        if node and self._park.device_manager(node) is not None:
            yield key_of(new)

    def sync(self, key: str, now: float) -> float | None:
        self._now = now
        pod = self._cache.get("pods", key)
        run = self.pod_workers.get(key)
        if run is not None and (pod is None or uid_of(pod) != run.uid):
            self._forget(key, run, now)
            run = None
        machine = self._park.device_manager(_node_of(pod)) if pod is not None else None
        if pod is None or machine is None or self._park.is_down(machine.name):
            return None
        if run is None:
            run = self._take_in(key, pod, machine, now)
            if run is None:
                return None
        again = run.sync(pod, now)
        self._report(key, run, pod, now)
        return again

    def pod_keys_on_node(self, node: str) -> list[str]:
        """Keys of the pods that run there."""
        return [key for key, run in self.pod_workers.items() if _node_of(run.pod) == node]

    def fail_pod(self, key: str, reason: str, message: str, now: float, ended: ContainerExit) -> None:
        """A device of the pod is broken: the whole pod fails, and whoever owns it makes another."""
        run = self.pod_workers.get(key)
        pod = self._cache.get("pods", key)
        if run is None or pod is None:
            return
        self._events.record(pod, reason, message, now, type="Warning", host=_node_of(pod))
        run.fail(reason, message, now, ended)
        self._report(key, run, pod, now, disrupted=message)

    def crash_node(self, node: str, now: float) -> None:
        """Everything on the node stops; nobody hears of it until the node is back."""
        for key in self.pod_keys_on_node(node):
            self.pod_workers[key].kill_all(ContainerExit(255, "Unknown", "the node was restarted"), now)

    def _take_in(self, key: str, pod: Unstructured, machine: DeviceManager, now: float) -> PodWorker | None:
        """A pod that is new here; None where it has ended or is refused."""
        if is_finished(pod):
            return None
        known = bool((pod.get("status") or {}).get("startTime"))
        if is_deleting(pod) and not known:
            self._door.delete("pods", *split_key(key), grace=0, uid=uid_of(pod))
            return None
        try:
            units = self._admit(key, pod, machine, known)
        except PodRejected as refused:
            self._refuse(pod, refused, now)
            return None
        run = PodWorker(pod, self._containers, self._launch, self._teller(key), self._start_seconds)
        self.pod_workers[key] = run
        self._addresses.allocate(machine.name, key, str((pod.get("status") or {}).get("podIP") or ""))
        if known:
            run.restore(now)
        if units and annotations_of(pod).get(ALLOCATED_DEVICES_ANNOTATION) != _indices(units):
            merge = {
                "metadata": {
                    "uid": uid_of(pod),
                    "annotations": {ALLOCATED_DEVICES_ANNOTATION: _indices(units)},
                }
            }
            self._door.patch("pods", *split_key(key), merge)
            run.pod = self._cache.get("pods", key) or pod
        return run

    def _admit(
        self, key: str, pod: Unstructured, machine: DeviceManager, known: bool
    ) -> tuple[AllocatableDevice, ...]:
        need = PodRequests(pod)
        need = self._shapes.setdefault(need.shape, need)
        node = self._cache.get("nodes", machine.name)
        if node is not None and not known:
            running = self._needs.get(machine.name, {})
            others = [each for other, each in running.items() if other != key]
            admit(self._room.allocatable(node), need, others)
        given = annotations_of(pod).get(ALLOCATED_DEVICES_ANNOTATION) if known else ""
        wish = [
            int(word)
            for word in (given or annotations_of(pod).get(PREFERRED_DEVICES_ANNOTATION, "")).split(",")
            if word.isdigit()
        ]
        try:
            units = machine.allocate(key, need.devices, wish)
        except DevicesUnavailable as refused:
            if not known:
                raise PodRejected("UnexpectedAdmissionError", f"{REJECTED_PREFIX}{refused}") from None
            units = ()
        self._needs.setdefault(machine.name, {})[key] = need
        return units

    def _refuse(self, pod: Unstructured, refused: PodRejected, now: float) -> None:
        said = {"phase": "Failed", "reason": refused.reason, "message": refused.message}
        merge = {"status": {**said, "startTime": format_time(now)}}
        self._door.patch("pods", namespace_of(pod), name_of(pod), merge, "status")
        self._events.record(
            pod,
            refused.reason,
            refused.message.removeprefix(REJECTED_PREFIX),
            now,
            type="Warning",
            host=_node_of(pod),
        )

    def _report(self, key: str, run: PodWorker, pod: Unstructured, now: float, disrupted: str = "") -> None:
        pod = self._cache.get("pods", key) or pod
        host = self._host_ip(_node_of(pod))
        status = pod_status(run, pod, now, host, self._addresses.get(_node_of(pod), key))
        if disrupted:
            new = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            status["conditions"] = with_condition(status["conditions"], {**new, "message": disrupted}, now)
        try:
            if status != pod.get("status"):
                self._door.update(
                    "pods", namespace_of(pod), name_of(pod), {**pod, "status": status}, "status"
                )
            if run.is_finished:
                self._end(key, run, pod)
        except ApiError as error:
            if error.code != 404:
                raise

    def _end(self, key: str, run: PodWorker, pod: Unstructured) -> None:
        """The pod is over: its devices are free again, and if it is to be deleted, it goes."""
        self._leave(key, run)
        if is_deleting(pod):
            self._door.delete("pods", *split_key(key), grace=0, uid=run.uid)

    def _leave(self, key: str, run: PodWorker) -> None:
        node = _node_of(run.pod)
        self._needs.get(node, {}).pop(key, None)
        machine = self._park.device_manager(node)
        if machine is not None:
            machine.release(key)
        self._addresses.release(node, key)

    def _forget(self, key: str, run: PodWorker, now: float) -> None:
        """The object is gone, perhaps by force: whatever still runs is killed."""
        run.kill_all(ContainerExit(137), now)
        self._leave(key, run)
        del self.pod_workers[key]
        self._containers.remove_pod(run.pod)

    def _launch(self, pod: Unstructured, box: ContainerRun) -> ContainerLaunch:
        environment = container_environment(pod, box.spec, self._lookup)
        machine = self._park.device_manager(_node_of(pod))
        units = machine.allocated_to(key_of(pod)) if machine is not None else ()
        mine = _share_of(pod, box.spec, units)
        devices = [machine.uuid_of(unit) for unit in mine] if machine is not None else []
        return ContainerLaunch(
            pod, box.spec, box.restarts + (box.ended is not None), environment, tuple(devices)
        )

    def _lookup(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        try:
            return self._door.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _teller(self, key: str) -> Callable[[str, str, str, str], None]:
        def tell(kind: str, reason: str, message: str, container: str) -> None:
            pod = self._cache.get("pods", key)
            if pod is not None:
                firsts = {each["name"] for each in pod["spec"].get("initContainers") or ()}
                field = f"spec.{'initContainers' if container in firsts else 'containers'}{{{container}}}"
                self._events.record(
                    pod, reason, message, self._now, type=kind, host=_node_of(pod), field=field
                )

        return tell

    def _host_ip(self, node: str) -> str:
        found = self._cache.get("nodes", node) if self._cache.is_watching("nodes") else None
        for address in ((found or {}).get("status") or {}).get("addresses") or ():
            if address["type"] == "InternalIP":
                return str(address["address"])
        return ""


def _node_of(pod: Unstructured) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _indices(units: tuple[AllocatableDevice, ...]) -> str:
    return ",".join(str(unit.gpu_index) for unit in units)


def _share_of(
    pod: Unstructured, container: Unstructured, units: tuple[AllocatableDevice, ...]
) -> list[AllocatableDevice]:
    """The devices of one container, dealt out in the order of containers; init containers use those of all."""
    if not any(each["name"] == container["name"] for each in pod["spec"]["containers"]):
        return list(units)
    if any(unit.resource == "share" for unit in units):
        return list(units)
    left = list(units)
    for each in pod["spec"]["containers"]:
        limits: Mapping[str, object] = (each.get("resources") or {}).get("limits") or {}
        mine: list[AllocatableDevice] = []
        for resource, amount in limits.items():
            same = [unit for unit in left if unit.resource == resource][: _count(amount)]
            mine += same
            left = [unit for unit in left if unit not in same]
        if each["name"] == container["name"]:
            return mine
    return []


def _count(amount: object) -> int:
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() else 0
