"""The simulated nodes put together: park, kubelet, signs of life, faults, and the answers to logs and exec.

`embedded.up` makes one, registers a Fleet's nodes, and gives its workers to the controllers' loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.doors import Door
from windlass.embedded.controllers.loop import Loop, Worker
from windlass.embedded.controllers.objects import Tree, annotations_of, name_of
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet
from windlass.embedded.runtime.park import OURS, SimulatedPark
from windlass.embedded.runtime.simulated import Delays, SimulatedContainers, SimulatedRuntime
from windlass.model.errors import InputError


class SimulatedNodes:
    def __init__(
        self,
        door: Door,
        cache: Cache,
        nodes: Sequence[FleetNode] = (),
        *,
        delays: Delays | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._door = door
        delays = delays or Delays()
        self._nodes = list(nodes)
        self.park = SimulatedPark(cache, {name_of(node.tree): node.parts for node in nodes if node.parts})
        self.park.down |= {name_of(node.tree) for node in nodes if node.down}
        containers = SimulatedContainers(self.park, delays)
        self.kubelet = Kubelet(door, cache, self.park, containers, delays.start)
        self.heartbeat = Heartbeat(door, self.park)
        self.runtime = SimulatedRuntime(containers, self.park, clock)
        self.faults = Faults(door, self.park, self.kubelet, self.heartbeat, self._wake, clock)
        self._loop: Loop | None = None

    @property
    def workers(self) -> Sequence[Worker]:
        return (self.kubelet, self.heartbeat)

    def join(self, loop: Loop) -> None:
        self._loop = loop

    def register(self, now: float) -> None:
        """Create the Node objects; one that is there from an earlier run stays as it is, and is alive again."""
        known = {name_of(node): node for node in self._door.list("nodes")}
        for node in self._nodes:
            if name_of(node.tree) not in known:
                self._create(node.tree)
        self._nodes.clear()
        for name, tree in known.items():
            if OURS in annotations_of(tree) and not self.park.is_down(name):
                self.heartbeat.renew(name, now)

    def _create(self, node: Tree) -> None:
        try:
            self._door.create("nodes", "", node)
        except ApiError as error:
            raise InputError(f"node {name_of(node)} can't be made: {error.message}") from None

    def _wake(self, what: str, key: str) -> None:
        assert self._loop is not None, "faults come only after the loop has started"
        worker: Worker = self.heartbeat if what == "node" else self.kubelet
        self._loop.add(worker, key)
