"""The simulated nodes put together: park, kubelet, signs of life, faults, and the answers to logs and exec.

`embedded.embedded_cluster` makes one, registers a Fleet's nodes, and gives its workers to the controllers' loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.controller_loop import Controller, ControllerLoop
from windlass.embedded.controllers.objects import annotations_of, name_of
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet
from windlass.embedded.runtime.simulated_containers import (
    Delays,
    SimulatedContainerRuntime,
    SimulatedKubeletApi,
)
from windlass.embedded.runtime.simulated_fleet import SIMULATED_NODE_ANNOTATION, SimulatedFleet
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured


class SimulatedNodes:
    def __init__(
        self,
        client: Client,
        cache: Cache,
        nodes: Sequence[FleetNode] = (),
        *,
        delays: Delays | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._door = client
        delays = delays or Delays()
        self._nodes = list(nodes)
        self.fleet = SimulatedFleet(
            cache, {name_of(node.tree): node.mig_instances for node in nodes if node.mig_instances}
        )
        self.fleet.down_nodes |= {name_of(node.tree) for node in nodes if node.is_down}
        containers = SimulatedContainerRuntime(self.fleet, delays)
        self.kubelet = Kubelet(client, cache, self.fleet, containers, delays.start)
        self.heartbeat = Heartbeat(client, self.fleet)
        self.kubelet_api = SimulatedKubeletApi(containers, self.fleet, clock)
        self.faults = Faults(client, self.fleet, self.kubelet, self.heartbeat, self._wake, clock)
        self._loop: ControllerLoop | None = None

    @property
    def controllers(self) -> Sequence[Controller]:
        return (self.kubelet, self.heartbeat)

    def attach_loop(self, loop: ControllerLoop) -> None:
        self._loop = loop

    def register(self, now: float) -> None:
        """Create the Node objects; one that is there from an earlier run stays as it is, and is alive again."""
        known = {name_of(node): node for node in self._door.list("nodes")}
        for node in self._nodes:
            if name_of(node.tree) not in known:
                self._create(node.tree)
        self._nodes.clear()
        for name, tree in known.items():
            if SIMULATED_NODE_ANNOTATION in annotations_of(tree) and not self.fleet.is_down(name):
                self.heartbeat.renew_lease(name, now)

    def _create(self, node: Unstructured) -> None:
        try:
            self._door.create("nodes", "", node)
        except ApiError as error:
            raise InputError(f"node {name_of(node)} can't be made: {error.message}") from None

    def _wake(self, what: str, key: str) -> None:
        assert self._loop is not None, "faults come only after the loop has started"
        worker: Controller = self.heartbeat if what == "node" else self.kubelet
        self._loop.enqueue(worker, key)
