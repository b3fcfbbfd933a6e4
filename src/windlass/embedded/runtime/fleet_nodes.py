"""Makes Node objects from a Fleet, as an API server would show them after kubelet, GPU Feature Discovery and device
plugin.

`model.fleet` expands the Fleet for placement; this adds what a kubelet writes, and the labels of the node agent,
computed on the simulated back end of one node per pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windlass.embedded.api.timestamps import format_time
from windlass.embedded.runtime.simulated_fleet import SIMULATED_NODE_ANNOTATION, MigInstances
from windlass.model.codec import to_unstructured
from windlass.model.fleet import Fleet, FleetPool, expand_fleet
from windlass.model.names.kubernetes import NOT_READY_TAINT
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import SIMULATED_MIG_INSTANCES_ANNOTATION
from windlass.model.unstructured import Unstructured
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.labels.features import node_labels
from windlass.sharing.plugin_config import resolve_config

KUBELET_VERSION = "v1.36.0"
_MACHINE = "windlass-sandbox"
_PRESSURE_CONDITIONS = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


@dataclass(frozen=True)
class FleetNode:
    tree: Unstructured
    mig_instances: MigInstances
    is_down: bool = False
    """Failed from the start: its kubelet sends no heartbeat."""


def fleet_nodes(fleet: Fleet, now: float) -> list[FleetNode]:
    """All nodes, in the order of the Fleet."""
    nodes = iter(expand_fleet(fleet))
    found: list[FleetNode] = []
    for pool in fleet.spec.pools:
        labels = discovered_labels(pool)
        instances = tuple(_mig_instances(pool))
        for number in range(pool.count):
            tree = to_unstructured(next(nodes))
            metadata = tree["metadata"]
            metadata["labels"] = {**labels, **metadata.get("labels", {})}
            if instances:
                text = ",".join(f"{index}:{profile}" for index, profile in instances)
                metadata["annotations"] = {
                    **(metadata.get("annotations") or {}),
                    SIMULATED_MIG_INSTANCES_ANNOTATION: text,
                }
            down = any(fault.not_ready for fault in pool.faults if fault.node == number)
            found.append(FleetNode(registered_node(tree, len(found), now, ready=not down), instances, down))
    return found


def registered_node(node: Unstructured, number: int, now: float, *, ready: bool = True) -> Unstructured:
    """The node as its kubelet registers it, with addresses, conditions and versions."""
    metadata = dict(node["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SIMULATED_NODE_ANNOTATION: "simulated"}
    spec = dict(node.get("spec") or {})
    spec["podCIDR"] = f"10.{128 + (number >> 8) % 128}.{number & 255}.0/24"
    spec["podCIDRs"], spec["providerID"] = [spec["podCIDR"]], f"windlass://{metadata['name']}"
    # The node lifecycle controller adds the not-ready taint from the Ready condition.
    spec["taints"] = [dict(taint) for taint in spec.get("taints") or () if taint["key"] != NOT_READY_TAINT]
    if not spec["taints"]:
        del spec["taints"]
    status = dict(node.get("status") or {})
    address = f"10.{number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"
    status["conditions"] = node_conditions(now, ready=ready)
    status["addresses"] = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": metadata["name"]},
    ]
    status["nodeInfo"] = node_info(metadata["name"])
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    for kind in ("capacity", "allocatable"):
        status[kind] = {name: str(amount) for name, amount in (status.get(kind) or {}).items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def node_conditions(now: float, *, ready: bool = True) -> list[Unstructured]:
    timestamp = format_time(now)
    times = {"lastHeartbeatTime": timestamp, "lastTransitionTime": timestamp}
    pressures = [
        {"type": kind, "status": "False", "reason": reason, "message": message, **times}
        for kind, (reason, message) in _PRESSURE_CONDITIONS.items()
    ]
    reason_and_message = ("KubeletReady", "kubelet is posting ready status")
    if not ready:
        reason_and_message = ("KubeletNotReady", "container runtime is down")
    state = {"type": "Ready", "status": "True" if ready else "False"}
    return [*pressures, {**state, "reason": reason_and_message[0], "message": reason_and_message[1], **times}]


def node_info(name: str) -> Unstructured:
    return {
        "architecture": "amd64",
        "bootID": f"simulated-{name}",
        "containerRuntimeVersion": "windlass://1.0.0",
        "kernelVersion": "6.8.0-simulated",
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": f"simulated-{name}",
        "operatingSystem": "linux",
        "osImage": "Windlass sandbox",
        "systemUUID": f"simulated-{name}",
    }


def discovered_labels(pool: FleetPool) -> dict[str, str]:
    """GPU Feature Discovery's labels for the pool's nodes, without the timestamp, which would never be renewed."""
    if not pool.gpus:
        return {}
    inventory = SimulatedBackend(pool).inventory()
    has_mig = any(not isinstance(group.mig, str) for group in pool.gpus)
    config: Unstructured = {"flags": {"migStrategy": pool.mig_strategy if has_mig else "none"}}
    if pool.sharing is not None:
        strategy = "mps" if pool.sharing.strategy == "mps" else "timeSlicing"
        shared = {"name": GPU_RESOURCE, "replicas": pool.sharing.replicas}
        config["sharing"] = {strategy: {"renameByDefault": pool.sharing.rename, "resources": [shared]}}
    return node_labels(inventory, resolve_config(config), machine=_MACHINE)


def _mig_instances(pool: FleetPool) -> Iterator[tuple[int, str]]:
    """The GPU and profile of each instance. Empty with strategy single, where every instance is a device."""
    if pool.mig_strategy == "single":
        return
    position = 0
    for group in pool.gpus:
        for _ in range(group.count):
            if not isinstance(group.mig, str):
                yield from ((position, profile) for profile in group.mig)
            position += 1
