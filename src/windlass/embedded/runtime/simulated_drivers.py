"""Drivers of simulated nodes: loaded by driver containers, exchanged by a label, well or ill as the sandbox says.

A controller on the controllers' loop. It plays what driver, device plugin and node agent do on a real node for the
operator: the driver of the revision that the node's label names becomes loaded once its DaemonSet's pod runs, held
devices are not handed out, and requests (reset, reboot, validate) are answered. Nodes without that label have the
driver of their image, as before.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import annotations_of, is_deleting, labels_of, name_of
from windlass.embedded.controllers.pod_state import is_ready, node_name
from windlass.embedded.runtime.device_manager import DeviceManager
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.simulated_fleet import SimulatedFleet
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.model.names.windlass import (
    DRIVER_REVISION_LABEL,
    HELD_DEVICES_ANNOTATION,
    NODE_ANSWER_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
)
from windlass.model.repair_state import held_devices
from windlass.model.unstructured import Unstructured
from windlass.node.operator_link import NodeAnswer, NodeRequest, decode_request, rung_of_action
from windlass.node.xid import lookup_xid

DRIVER_VERSION_LABEL = "nvidia.com/cuda.driver-version.full"
RESET_SECONDS, REBOOT_SECONDS, VALIDATE_SECONDS = 2.0, 6.0, 1.0


class DriverBehaviour(msgspec.Struct, frozen=True):
    """How a driver version behaves on every node."""

    load_seconds: float = 2.0
    is_broken: bool = False
    """It never becomes ready."""
    xid: int = 0
    """Reported by GPU 0 after it was loaded; 0: none."""
    xid_after: float = 5.0


class SimulatedDrivers:
    name = "simulated-drivers"
    resources = ("nodes", "pods")

    def __init__(
        self, client: Client, cache: Cache, fleet: SimulatedFleet, heartbeat: Heartbeat, faults: Faults
    ) -> None:
        self._client, self._cache, self._fleet = client, cache, fleet
        self._heartbeat, self._faults = heartbeat, faults
        self.behaviours: dict[str, DriverBehaviour] = {}
        """By version; any other loads in two seconds and is well."""
        self._loading: dict[str, tuple[str, float]] = {}
        """Node → the version that is loading, and since when."""
        self._xid_at: dict[str, tuple[str, float]] = {}
        self._requests: dict[str, tuple[NodeRequest, float]] = {}
        """Node → the request that is carried out, and when that is done."""

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if event_type == "DELETED" and resource == "nodes":
            return
        if resource == "nodes":
            yield name_of(new)
        elif labels_of(new).get(APP_COMPONENT_LABEL) == "driver" and node_name(new):
            yield node_name(new)

    def sync(self, key: str, now: float) -> float | None:
        machine, node = self._fleet.device_manager(key), self._cache.get("nodes", key)
        if machine is None or node is None or self._is_idle(key, node, machine):
            return None
        due = [
            self._drive(node, machine, now),
            self._report_xid(key, now),
            self._answer(node, now),
        ]
        held = set(held_devices(annotations_of(node)))
        if held != machine.held:
            machine.held = held
            self._heartbeat.update_node_status(key, now)
        return min((at for at in due if at is not None), default=None)

    def _is_idle(self, name: str, node: Unstructured, machine: DeviceManager) -> bool:
        """Nearly always: asked at every change of every node."""
        annotations = annotations_of(node)
        asks = NODE_REQUEST_ANNOTATION in annotations or HELD_DEVICES_ANNOTATION in annotations or machine.held
        return not asks and DRIVER_REVISION_LABEL not in labels_of(node) and name not in self._requests

    def _drive(self, node: Unstructured, machine: DeviceManager, now: float) -> float | None:
        """Loads and unloads; when to look again."""
        name, labels = name_of(node), labels_of(node)
        revision = labels.get(DRIVER_REVISION_LABEL, "")
        if not revision:
            return None
        runs = any(self._is_driver(pod, revision) for pod in self._cache.pods_on_node(name))
        if runs and labels.get(DRIVER_VERSION_LABEL) == revision:
            if not machine.has_driver:
                machine.has_driver = True
                self._heartbeat.update_node_status(name, now)
            self._loading.pop(name, None)
            return None
        if machine.has_driver:
            machine.has_driver = False
            self._heartbeat.update_node_status(name, now)
        if DRIVER_VERSION_LABEL in labels:
            self._label(name, None)
        if not runs:
            self._loading.pop(name, None)
            return None
        if self._loading.get(name, ("",))[0] != revision:
            self._loading[name] = revision, now
        return self._load(name, machine, revision, now)

    def _load(self, name: str, machine: DeviceManager, revision: str, now: float) -> float | None:
        behaviour = self.behaviours.get(revision, DriverBehaviour())
        ready_at = self._loading[name][1] + behaviour.load_seconds
        if behaviour.is_broken:
            return None
        if now < ready_at:
            return ready_at
        machine.has_driver = True
        machine.unhealthy.clear()  # a driver that is loaded anew has reset its GPUs
        self._label(name, revision)
        self._heartbeat.update_node_status(name, now)
        if behaviour.xid:
            self._xid_at[name] = revision, now + behaviour.xid_after
            return self._xid_at[name][1]
        return None

    def _report_xid(self, name: str, now: float) -> float | None:
        version, at = self._xid_at.get(name, ("", 0.0))
        if not version or now < at:
            return at or None
        del self._xid_at[name]
        node = self._cache.get("nodes", name)
        if node is not None and labels_of(node).get(DRIVER_VERSION_LABEL) == version:
            self._faults.fail(f"gpu/{name}:0", self.behaviours[version].xid)
        return None

    def _answer(self, node: Unstructured, now: float) -> float | None:
        """Carries one request out; its answer is written once."""
        name, annotations = name_of(node), annotations_of(node)
        request = decode_request(annotations.get(NODE_REQUEST_ANNOTATION, ""))
        if request is None or request.id in annotations.get(NODE_ANSWER_ANNOTATION, ""):
            return None
        known, done_at = self._requests.get(name, (None, 0.0))
        if known != request:
            seconds = {"reset": RESET_SECONDS, "reboot": REBOOT_SECONDS}.get(request.action, VALIDATE_SECONDS)
            done_at = now + seconds
            self._requests[name] = request, done_at
            if request.action == "reboot":
                self._faults.fail(f"node/{name}")
        if now < done_at:
            return done_at
        del self._requests[name]
        answer = self._carry_out(name, request, now)
        merge = {"metadata": {"annotations": {NODE_ANSWER_ANNOTATION: msgspec.json.encode(answer).decode()}}}
        self._client.patch("nodes", "", name, merge)
        return None

    def _carry_out(self, name: str, request: NodeRequest, now: float) -> NodeAnswer:
        machine = self._fleet.device_manager(name)
        assert machine is not None  # sync has found it
        devices = range(len(machine.devices)) if request.device < 0 else (request.device,)
        if request.action == "reboot":
            self._faults.heal(f"node/{name}")
            self._new_boot_id(name)
        cures = {"reset": ("reset",), "reboot": ("reset", "reboot")}.get(request.action, ())
        if request.action == "reset" and any(machine.pods_using(device) for device in devices):
            return NodeAnswer(request.id, "Failed", "a pod still uses the GPU")
        for device in devices:
            fault = machine.unhealthy.get(device)
            if fault is not None and rung_of_action(lookup_xid(fault.xid).action.value) in cures:
                self._faults.heal(f"gpu/{name}:{device}")
        ill = [device for device in devices if device in machine.unhealthy]
        if request.action == "validate" and (ill or not machine.has_driver):
            return NodeAnswer(request.id, "Failed", f"the validator fails on GPU {', '.join(map(str, ill)) or 'all'}")
        return NodeAnswer(request.id, "Done")

    def _new_boot_id(self, name: str) -> None:
        node = self._client.get("nodes", "", name)
        info = dict(node["status"].get("nodeInfo") or {})
        base, _, number = str(info.get("bootID", "")).partition("#")
        info["bootID"] = f"{base}#{int(number or '1') + 1}"
        self._client.update("nodes", "", name, {**node, "status": {**node["status"], "nodeInfo": info}}, "status")

    def _is_driver(self, pod: Unstructured, revision: str) -> bool:
        labels = labels_of(pod)
        is_ours = labels.get(APP_NAME_LABEL) == "windlass" and labels.get(APP_COMPONENT_LABEL) == "driver"
        return is_ours and labels.get(DRIVER_REVISION_LABEL) == revision and is_ready(pod) and not is_deleting(pod)

    def _label(self, name: str, version: str | None) -> None:
        try:
            self._client.patch("nodes", "", name, {"metadata": {"labels": {DRIVER_VERSION_LABEL: version}}})
        except ApiError as error:
            raise InputError(f"node {name}: {error.message}") from None
