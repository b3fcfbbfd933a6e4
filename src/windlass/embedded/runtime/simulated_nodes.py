"""The simulated nodes: fleet, kubelet, heartbeats, faults, and the answers to logs and exec.

`embedded_cluster` creates it, registers a Fleet's nodes, and adds its controllers to the controllers' loop.
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
from windlass.embedded.runtime.simulated_drivers import SimulatedDrivers
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
        self._client = client
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
        self.faults = Faults(client, self.fleet, self.kubelet, self.heartbeat, self._enqueue, clock)
        self.drivers = SimulatedDrivers(client, cache, self.fleet, self.heartbeat, self.faults)
        self._loop: ControllerLoop | None = None

    @property
    def controllers(self) -> Sequence[Controller]:
        return (self.kubelet, self.heartbeat, self.drivers)

    def attach_loop(self, loop: ControllerLoop) -> None:
        self._loop = loop

    def register(self, now: float) -> None:
        """Creates the Node objects. Those of an earlier run stay unchanged, and their leases are renewed."""
        known = {name_of(node): node for node in self._client.list("nodes")}
        for node in self._nodes:
            if name_of(node.tree) not in known:
                self._create(node.tree)
        self._nodes.clear()
        for name, tree in known.items():
            if SIMULATED_NODE_ANNOTATION in annotations_of(tree) and not self.fleet.is_down(name):
                self.heartbeat.renew_lease(name, now)

    def _create(self, node: Unstructured) -> None:
        try:
            self._client.create("nodes", "", node)
        except ApiError as error:
            raise InputError(f"node {name_of(node)} can't be created: {error.message}") from None

    def _enqueue(self, kind: str, key: str) -> None:
        assert self._loop is not None, "faults are injected only after the loop has started"
        controller: Controller = self.heartbeat if kind == "node" else self.kubelet
        self._loop.enqueue(controller, key)
