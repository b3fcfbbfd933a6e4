"""A simulated fleet on a clock that the test advances, without a scheduler: tests bind pods themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from tests.embedded.in_process_cluster import InProcessCluster

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.fleet import default_fleet
from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.embedded.runtime.kubelet_api import ExecRequest, LogRequest
from windlass.embedded.runtime.simulated_containers import Delays
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.model.fleet_spec import Fleet
from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"


class Sandbox(InProcessCluster):
    def __init__(self, pools: list[Unstructured] | None = None, delays: Delays = Delays(0, 0, 0)) -> None:  # noqa: B008
        super().__init__()
        self._delays = delays
        fleet = default_fleet() if pools is None else msgspec.convert({"spec": {"pools": pools}}, Fleet)
        self._machines = fleet_nodes(fleet, self.now)
        self._begin()

    def _begin(self) -> None:
        self.nodes = SimulatedNodes(self.verbs, self.cache, self._machines, delays=self._delays, clock=lambda: self.now)
        self.nodes.register(self.now)
        self.run(*self.nodes.controllers)
        assert self.controllers is not None
        self.nodes.attach_loop(self.controllers.loop)

    def restart(self) -> None:
        """All that is not in the store is forgotten."""
        assert self.controllers is not None
        self.controllers.stop()
        self.cache = Cache(self.verbs)
        self._begin()

    def start(self, name: str, node: str, *, wish: str = "", **spec: Any) -> Unstructured:
        """Create a pod, bind it, and let its kubelet have it."""
        annotations = spec.pop("annotations", {})
        limits, command = spec.pop("limits", {}), spec.pop("command", None)
        container: Unstructured = {"name": "main", "image": "train", "resources": {"limits": limits}}
        if command is not None:
            container["command"] = command
        whole = {"restartPolicy": "Never", "containers": [container], **spec}
        self.verbs.create("pods", "default", {"metadata": {"name": name, "annotations": annotations}, "spec": whole})
        self.verbs.bind("default", name, node, {"windlass.dev/devices": wish} if wish else None)
        self.step()
        return self.get("pods", name)

    def phase(self, name: str) -> str:
        return str(self.get("pods", name)["status"]["phase"])

    def logs(self, name: str, **request: Any) -> str:
        async def read() -> str:
            pieces = [
                piece async for piece in self.nodes.kubelet_api.logs(self.get("pods", name), LogRequest(**request))
            ]
            return b"".join(pieces).decode()

        return asyncio.run(read())

    def exec(self, name: str, *command: str) -> tuple[str, int]:
        async def run() -> tuple[str, int]:
            session = await self.nodes.kubelet_api.exec(self.get("pods", name), ExecRequest(command=command))
            try:
                text = b"".join([piece async for _, piece in session.output()])
                return text.decode(), await session.exit_code()
            finally:
                await session.close()

        return asyncio.run(run())
