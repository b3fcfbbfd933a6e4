"""A fleet whose nodes NVIDIA's operator looks after: it gives every node to an NVIDIADriver, pauses its parts while a
driver is exchanged, and runs a device plugin where the node's label is `true`. As its code of 26.7 has it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from tests.operator.world import LOAD_SECONDS, SimNode, World

from windlass.model.names.windlass import DRIVER_REVISION_LABEL, NOT_READY_GPU_TAINT
from windlass.operator.decide.gpu_operator import NVIDIA_OWNER_LABEL
from windlass.operator.observed import NvidiaDriver, Observed
from windlass.operator.pods import PodView
from windlass.operator.writes import CreateNvidiaDriver, DeleteNvidiaDriver, PatchNode, Write

OPERANDS = ("driver", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "mig-manager")
DEPLOY = {f"nvidia.com/gpu.deploy.{operand}": "true" for operand in (*OPERANDS, "operator-validator")}
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
PAUSED = "paused-for-driver-upgrade"
OLD = "580.95.05"
REACTION_SECONDS, SWAP_SECONDS = 3, 12


class GpuOperatorWorld(World):
    def __init__(self, count: int = 6, **stack: Any) -> None:
        super().__init__()
        spec = {"default": True, "driverType": "gpu", "image": "nvcr.io/nvidia/driver", "version": OLD, "env": []}
        self.drivers = {"default": NvidiaDriver("default", "uid-default", spec, "ready")}
        self.plugin_pods: set[str] = set()
        self.swapped_open: list[str] = []
        """Nodes whose plugins changed places while they took new pods."""
        for number in range(count):
            labels = {"pool": "h100", "nvidia.com/gpu.present": "true", NVIDIA_OWNER_LABEL: "default", **DEPLOY}
            node = self.add_node(f"gpu-{number:03d}", labels=labels, loaded=OLD)
            self.plugin_pods.add(node.name)
        whole = {"nodes": {"matchLabels": {"pool": "h100"}}, "driver": {"source": "gpu-operator"}, "maxUnavailable": 2}
        self.add("GPUStack", "h100", whole | stack)

    def observe(self) -> Observed:
        observed = super().observe()
        pods = {
            name: (*there, *self._nvidia_pods(self.nodes[name]))
            for name, there in observed.pods.items()
            if name in self.nodes
        }
        return msgspec.structs.replace(observed, nvidia_drivers=dict(self.drivers), pods=pods)

    def _nvidia_pods(self, node: SimNode) -> list[PodView]:
        where = {"node": node.name, "owner_kind": "DaemonSet"}
        labels = {"app.kubernetes.io/component": "nvidia-driver"}
        is_loaded = not node.loading
        pods = [PodView(key=f"gpu-operator/driver-{node.name}", labels=labels, is_ready=is_loaded, **where)]
        if node.name in self.plugin_pods:
            app = {"app": "nvidia-device-plugin-daemonset"}
            pods.append(PodView(key=f"gpu-operator/plugin-{node.name}", labels=app, **where))
        return pods

    def apply(self, write: Write) -> bool:
        match write:
            case CreateNvidiaDriver(name, body):
                assert name not in self.drivers
                self.drivers[name] = NvidiaDriver(name, f"uid-{name}", body["spec"], "ready", is_ours=True)
                self.later(REACTION_SECONDS, self._assign)
                return True
            case DeleteNvidiaDriver(name, uid):
                assert self.drivers[name].uid == uid
                used = [node.name for node in self.nodes.values() if node.labels[NVIDIA_OWNER_LABEL] == name]
                assert not used, f"{name} was deleted under {used}"
                del self.drivers[name]
                return True
        done = super().apply(write)
        if done and isinstance(write, PatchNode):
            self.later(REACTION_SECONDS, self._assign)
            if PLUGIN in write.labels:
                self._swap_plugin(self.nodes[write.name])
        return done

    def _assign(self) -> None:
        """Every node belongs to the one NVIDIADriver that selects it, else to the default one."""
        for node in self.nodes.values():
            owners = [
                name
                for name, driver in self.drivers.items()
                if not driver.is_default and driver.spec["nodeSelector"].items() <= node.labels.items()
            ]
            assert len(owners) <= 1, f"multiple NVIDIADrivers match the same node {node.name}: {owners}"
            owner = owners[0] if owners else "default"
            if node.labels[NVIDIA_OWNER_LABEL] != owner:
                node.labels[NVIDIA_OWNER_LABEL] = owner
                node.version += 1
                self._exchange(node, self.drivers[owner].version)

    def _exchange(self, node: SimNode, version: str) -> None:
        """Its driver manager pauses every part, remembering values of others, and restores them afterwards."""
        assert not any(pod.node == node.name for pod in self.pods.values()), "a driver was exchanged under a pod"
        for key in DEPLOY:
            if node.labels[key] != "false" and PAUSED not in node.labels[key]:
                node.labels[key] = PAUSED if node.labels[key] == "true" else f"{node.labels[key]}_{PAUSED}"
        node.loading, node.has_plugin = version, False
        node.version += 1

        def finish() -> None:
            if node.loading == version:
                node.version += 1
                if version in node.bad_versions:
                    return
                for key in DEPLOY:
                    node.labels[key] = node.labels[key].removesuffix(PAUSED).removesuffix("_") or "true"
                node.loading, node.loaded, node.has_plugin = "", version, True
                self.on_loaded(self, node)

        self.later(LOAD_SECONDS, finish)

    def _swap_plugin(self, node: SimNode) -> None:
        if not any(taint.key == NOT_READY_GPU_TAINT for taint in node.taints):
            self.swapped_open.append(node.name)

        def stop() -> None:
            self.plugin_pods.discard(node.name)
            node.has_plugin = False
            node.version += 1
            self.later(SWAP_SECONDS, start)

        def start() -> None:
            if node.labels[PLUGIN] == "true":
                self.plugin_pods.add(node.name)
            node.has_plugin = True
            node.version += 1

        self.later(SWAP_SECONDS, stop)

    def _reload(self, node: SimNode) -> None:
        """No DaemonSet of ours is there."""

    def loaded(self) -> list[str]:
        return [node.loaded for node in self.nodes.values()]

    def chosen(self) -> set[str]:
        return {node.labels.get(DRIVER_REVISION_LABEL, "") for node in self.nodes.values()}
