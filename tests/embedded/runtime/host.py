"""A machine whose pods are local processes: the process runtime and the controllers, without a server or a scheduler.

Tests bind pods themselves. The GPUs are those of a simulated back end that plays the driver, or none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.controller_manager import ControllerManager
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import STDERR, STDOUT, ExecRequest, LogRequest
from windlass.embedded.runtime.process.cgroups import Cgroups
from windlass.embedded.runtime.process.nodes import ProcessNodes
from windlass.embedded.store.store import Store
from windlass.model.fleet_spec import FleetPool
from windlass.model.unstructured import Unstructured
from windlass.node.backend.protocol import DeviceError
from windlass.node.backend.simulated import SimulatedBackend

PATIENCE = 120.0


def no_driver() -> SimulatedBackend:
    raise DeviceError("NVML can't be used: Driver Not Loaded")


def one_gpu() -> SimulatedBackend:
    return SimulatedBackend(msgspec.convert({"name": "n", "gpus": [{"model": "H200", "count": 1}]}, FleetPool))


class Host:
    def __init__(self, folder: Path, backend: Callable[[], Any] = no_driver, replicas: int = 1, **watch: Any) -> None:
        """`watch`: the rules and the timing of looking at GPUs."""
        self.verbs = InProcessClient(Registry(Store()))
        for name in ("default", "kube-node-lease"):
            self.verbs.create("namespaces", "", {"metadata": {"name": name}})
        cache = Cache(self.verbs)
        # A folder that is no cgroup file system: these tests must not depend on what this user may limit.
        cgroups = Cgroups(folder / "none")
        self.nodes = ProcessNodes(self.verbs, cache, backend=backend, replicas=replicas, cgroups=cgroups, **watch)
        self.nodes.register(time.time())
        self._controllers = ControllerManager(self.verbs, cache, extra_controllers=self.nodes.controllers)
        self._controllers.start()
        self.nodes.attach_loop(self._controllers.loop)
        self._task = asyncio.create_task(self._controllers.loop.run())
        self.name = self.nodes.fleet.node_names()[0]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._controllers.stop()
        self.nodes.close()

    def start(self, name: str, *command: str, limits: dict[str, str] | None = None, **spec: Any) -> None:
        box: Unstructured = {"name": "main", "image": "x", "resources": {"limits": limits or {}}}
        if command:
            box["command"] = list(command)
        env = spec.pop("env", None)
        if env:
            box["env"] = [{"name": key, "value": value} for key, value in env.items()]
        whole = {"restartPolicy": "Never", "containers": [box], **spec}
        self.verbs.create("pods", "default", {"metadata": {"name": name}, "spec": whole})
        self.verbs.bind("default", name, self.name)

    def pod(self, name: str) -> Unstructured:
        return self.verbs.get("pods", "default", name)

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "not in time"
            await asyncio.sleep(0.02)

    async def until_phase(self, name: str, phase: str) -> Unstructured:
        await self.until(lambda: self.pod(name)["status"]["phase"] == phase)
        return self.pod(name)

    async def logs(self, name: str, **request: Any) -> str:
        pieces = [piece async for piece in self.nodes.kubelet_api.logs(self.pod(name), LogRequest(**request))]
        return b"".join(pieces).decode()

    async def until_logged(self, name: str, text: str) -> None:
        await self.until(lambda: self.nodes._runtime.processes(self.pod(name), "main"))
        deadline = time.monotonic() + PATIENCE
        while text not in await self.logs(name):
            assert time.monotonic() < deadline, "not in time"
            await asyncio.sleep(0.02)

    async def exec(self, name: str, *command: str, **request: Any) -> tuple[str, str, int]:
        session = await self.nodes.kubelet_api.exec(self.pod(name), ExecRequest(command=command, **request))
        streams = {STDOUT: b"", STDERR: b""}
        try:
            async for channel, piece in session.output():
                streams[channel] += piece
            return streams[STDOUT].decode(), streams[STDERR].decode(), await session.exit_code()
        finally:
            await session.close()
