"""The kubelets of all nodes of the embedded cluster, as one controller on the controllers' loop.

For pods bound to its nodes: admits or rejects them (`kubelet_admission`), allocates devices (`device_manager`),
runs their containers (`pod_worker`), writes their status (`pod_status`) and deletes them in the end. Containers run
on a `ContainerRuntime`: simulated, or processes of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter, EventRecorder
from windlass.embedded.controllers.objects import (
    annotations_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    split_key,
    uid_of,
    with_condition,
)
from windlass.embedded.controllers.pod_state import is_finished, node_name
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
from windlass.embedded.runtime.simulated_answer import answer_due_at, answer_text
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, ASK_ANSWER_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.unstructured import Unstructured


class NodeFleet(Protocol):
    """The nodes that this kubelet serves."""

    def device_manager(self, node: str) -> DeviceManager | None:
        """None for a node that is not ours."""

    def is_ours(self, node: str) -> bool: ...

    def is_down(self, node: str) -> bool:
        """Whether the node has failed and sends no heartbeat."""

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
        self._client, self._cache, self._fleet, self._runtime = client, cache, fleet, container_runtime
        self._events = EventRecorder(client, self.name, EventRateLimiter())
        self._allocatable = AllocatableCache()
        self._start_seconds = start_seconds
        self._addresses = PodAddresses()
        self.pod_workers: dict[str, PodWorker] = {}
        self._requests: dict[str, dict[str, PodRequests]] = {}
        """Node → pod key → its requests."""
        self._shared_requests: dict[tuple[object, ...], PodRequests] = {}
        """One `PodRequests` object for all pods with equal requests, to save memory."""
        self._now = 0.0

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "ADDED":
                yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))
            return
        node = (new.get("spec") or {}).get("nodeName")
        if node and self._fleet.device_manager(node) is not None:
            yield key_of(new)

    def sync(self, key: str, now: float) -> float | None:
        self._now = now
        pod = self._cache.get("pods", key)
        worker = self.pod_workers.get(key)
        if worker is not None and (pod is None or uid_of(pod) != worker.uid):
            self._remove_worker(key, worker, now)
            worker = None
        machine = self._fleet.device_manager(node_name(pod)) if pod is not None else None
        if pod is None or machine is None or self._fleet.is_down(machine.name):
            return None
        if worker is None:
            worker = self._start_worker(key, pod, machine, now)
            if worker is None:
                return None
        requeue_at = worker.sync(pod, now)
        self._write_status(key, worker, pod, now)
        answer_at = answer_due_at(pod)
        if answer_at is None:
            return requeue_at
        if answer_at <= now:
            answer = {"uid": uid_of(pod), "annotations": {ASK_ANSWER_ANNOTATION: answer_text(pod, now)}}
            self._client.patch("pods", *split_key(key), {"metadata": answer})
            return requeue_at
        return answer_at if requeue_at is None else min(requeue_at, answer_at)

    def pod_keys_on_node(self, node: str) -> list[str]:
        """Keys of the pods that run there, or were bound to it while it was down."""
        bound = (key_of(pod) for pod in self._cache.pods_on_node(node))
        return [*dict.fromkeys((*self._running_on_node(node), *bound))]

    def _running_on_node(self, node: str) -> list[str]:
        return [key for key, worker in self.pod_workers.items() if node_name(worker.pod) == node]

    def fail_pod(self, key: str, reason: str, message: str, now: float, ended: ContainerExit) -> None:
        """Fails a pod whose device is broken; its owner creates another."""
        worker = self.pod_workers.get(key)
        pod = self._cache.get("pods", key)
        if worker is None or pod is None:
            return
        self._events.record(pod, reason, message, now, type="Warning", host=node_name(pod))
        worker.fail(reason, message, now, ended)
        self._write_status(key, worker, pod, now, disrupted=message)

    def crash_node(self, node: str, now: float) -> None:
        """Stops everything on the node; no status is written until the node is back."""
        for key in self._running_on_node(node):
            self.pod_workers[key].kill_all(ContainerExit(255, "Unknown", "the node was restarted"), now)

    def _start_worker(self, key: str, pod: Unstructured, machine: DeviceManager, now: float) -> PodWorker | None:
        """Handles a pod that is new here; None if it is finished or rejected."""
        if is_finished(pod):
            return None
        was_running = bool((pod.get("status") or {}).get("startTime"))
        if is_deleting(pod) and not was_running:
            self._client.delete("pods", *split_key(key), grace=0, uid=uid_of(pod))
            return None
        try:
            devices = self._admit(key, pod, machine, was_running)
        except PodRejected as rejection:
            self._reject(pod, rejection, now)
            return None
        worker = PodWorker(pod, self._runtime, self._make_launch, self._event_callback(key), self._start_seconds)
        self.pod_workers[key] = worker
        self._addresses.allocate(machine.name, key, str((pod.get("status") or {}).get("podIP") or ""))
        if was_running:
            worker.restore(now)
        if devices and annotations_of(pod).get(ALLOCATED_DEVICES_ANNOTATION) != _indices(devices):
            merge = {
                "metadata": {
                    "uid": uid_of(pod),
                    "annotations": {ALLOCATED_DEVICES_ANNOTATION: _indices(devices)},
                }
            }
            self._client.patch("pods", *split_key(key), merge)
            worker.pod = self._cache.get("pods", key) or pod
        return worker

    def _admit(
        self, key: str, pod: Unstructured, machine: DeviceManager, was_running: bool
    ) -> tuple[AllocatableDevice, ...]:
        requests = PodRequests(pod)
        requests = self._shared_requests.setdefault(requests.shape, requests)
        node = self._cache.get("nodes", machine.name)
        if node is not None and not was_running:
            running = self._requests.get(machine.name, {})
            others = [other_requests for other_key, other_requests in running.items() if other_key != key]
            admit(self._allocatable.allocatable(node), requests, others)
        allocated = annotations_of(pod).get(ALLOCATED_DEVICES_ANNOTATION) if was_running else ""
        texts = (allocated or annotations_of(pod).get(DEVICES_ANNOTATION, "")).split(",")
        preferred = [index for text in texts if (index := parse_decimal(text)) is not None]
        try:
            devices = machine.allocate(key, requests.devices, preferred)
        except DevicesUnavailable as error:
            if not was_running:
                raise PodRejected("UnexpectedAdmissionError", f"{REJECTED_PREFIX}{error}") from None
            devices = ()
        self._requests.setdefault(machine.name, {})[key] = requests
        return devices

    def _reject(self, pod: Unstructured, rejection: PodRejected, now: float) -> None:
        failure = {"phase": "Failed", "reason": rejection.reason, "message": rejection.message}
        merge = {"status": {**failure, "startTime": format_time(now)}}
        self._client.patch("pods", namespace_of(pod), name_of(pod), merge, "status")
        self._events.record(
            pod,
            rejection.reason,
            rejection.message.removeprefix(REJECTED_PREFIX),
            now,
            type="Warning",
            host=node_name(pod),
        )

    def _write_status(self, key: str, worker: PodWorker, pod: Unstructured, now: float, disrupted: str = "") -> None:
        pod = self._cache.get("pods", key) or pod
        host = self._host_ip(node_name(pod))
        status = pod_status(worker, pod, now, host, self._addresses.get(node_name(pod), key))
        if disrupted:
            new = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            status["conditions"] = with_condition(status["conditions"], {**new, "message": disrupted}, now)
        try:
            if status != pod.get("status"):
                self._client.update("pods", namespace_of(pod), name_of(pod), {**pod, "status": status}, "status")
            if worker.is_finished:
                self._finish(key, worker, pod)
        except ApiError as error:
            if error.code != 404:
                raise

    def _finish(self, key: str, worker: PodWorker, pod: Unstructured) -> None:
        """Releases the devices of a finished pod, and deletes the pod if it has a deletion timestamp."""
        self._release(key, worker)
        if is_deleting(pod):
            self._client.delete("pods", *split_key(key), grace=0, uid=worker.uid)

    def _release(self, key: str, worker: PodWorker) -> None:
        node = node_name(worker.pod)
        self._requests.get(node, {}).pop(key, None)
        device_manager = self._fleet.device_manager(node)
        if device_manager is not None:
            device_manager.release(key)
        self._addresses.release(node, key)

    def _remove_worker(self, key: str, worker: PodWorker, now: float) -> None:
        """The pod object no longer exists, perhaps by a forced deletion: kills what still runs."""
        worker.kill_all(ContainerExit(137), now)
        self._release(key, worker)
        del self.pod_workers[key]
        self._runtime.remove_pod(worker.pod)

    def _make_launch(self, pod: Unstructured, run: ContainerRun) -> ContainerLaunch:
        environment = container_environment(pod, run.spec, self._lookup)
        device_manager = self._fleet.device_manager(node_name(pod))
        allocated = device_manager.allocated_to(key_of(pod)) if device_manager is not None else ()
        own = _devices_of_container(pod, run.spec, allocated)
        uuids = [device_manager.uuid_of(device) for device in own] if device_manager is not None else []
        return ContainerLaunch(pod, run.spec, run.restarts + (run.ended is not None), environment, tuple(uuids))

    def _lookup(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        try:
            return self._client.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _event_callback(self, key: str) -> Callable[[str, str, str, str], None]:
        def record(kind: str, reason: str, message: str, container: str) -> None:
            pod = self._cache.get("pods", key)
            if pod is not None:
                init_names = {init["name"] for init in pod["spec"].get("initContainers") or ()}
                field = f"spec.{'initContainers' if container in init_names else 'containers'}{{{container}}}"
                self._events.record(pod, reason, message, self._now, type=kind, host=node_name(pod), field=field)

        return record

    def _host_ip(self, node: str) -> str:
        node_object = self._cache.get("nodes", node) if self._cache.is_watching("nodes") else None
        for address in ((node_object or {}).get("status") or {}).get("addresses") or ():
            if address["type"] == "InternalIP":
                return str(address["address"])
        return ""


def _indices(devices: tuple[AllocatableDevice, ...]) -> str:
    return ",".join(str(device.gpu_index) for device in devices)


def _devices_of_container(
    pod: Unstructured, container: Unstructured, devices: tuple[AllocatableDevice, ...]
) -> list[AllocatableDevice]:
    """The devices of one container, assigned in the order of containers; init containers may use all."""
    if not any(other["name"] == container["name"] for other in pod["spec"]["containers"]):
        return list(devices)
    if any(device.resource == "share" for device in devices):
        return list(devices)
    remaining = list(devices)
    for other in pod["spec"]["containers"]:
        limits: Mapping[str, object] = (other.get("resources") or {}).get("limits") or {}
        own: list[AllocatableDevice] = []
        for resource, amount in limits.items():
            matching = [device for device in remaining if device.resource == resource][: _count(amount)]
            own += matching
            remaining = [device for device in remaining if device not in matching]
        if other["name"] == container["name"]:
            return own
    return []


def _count(amount: object) -> int:
    return parse_decimal(str(amount)) or 0
