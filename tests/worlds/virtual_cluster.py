"""A cluster on the virtual clock: store, API server, controllers, kubelets and the live scheduler, all of them the
production code, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Sequence
from random import Random

from tests.worlds.virtual_client import InProcessKubeClient, Network

from windlass.cli.install_crds import crds
from windlass.embedded.bootstrap import bootstrap
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.controller_manager import ControllerManager
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.pki import Identity, make_identity
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.embedded.scheduler_thread import with_default_scheduler
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.store import Store
from windlass.model.configuration import Settings
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler


@functools.cache
def identity() -> Identity:
    return make_identity(())


class VirtualCluster:
    def __init__(self, nodes: Sequence[FleetNode], settings: Settings, random: Random) -> None:
        self.network = Network(random)
        self.client = InProcessClient(Registry(Store(), clock=time.time))
        cache = Cache(self.client)
        bootstrap(self.client, crds())
        self.nodes = SimulatedNodes(self.client, cache, nodes, clock=time.time)
        self.nodes.register(time.time())
        self._controllers = ControllerManager(
            self.client, cache, extra_controllers=self.nodes.controllers, clock=time.time
        )
        self._server = ApiServer(self.client.registry, identity())
        self._options = SchedulerOptions(
            settings=with_default_scheduler(settings), warm_up=False, leader_elect=False, identity="world"
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.scheduler: Scheduler | None = None
        self._scheduling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._controllers.start()
        self.nodes.attach_loop(self._controllers.loop)
        self._tasks.append(asyncio.create_task(self._controllers.loop.run()))
        self.start_scheduler()

    def start_scheduler(self) -> None:
        self.scheduler = Scheduler(InProcessKubeClient(self._server, self.network), self._options)
        self._scheduling = asyncio.create_task(self.scheduler.run(asyncio.Event()))

    async def kill_scheduler(self) -> None:
        """As a machine does that loses power: nothing is finished."""
        if self._scheduling is not None:
            task, self._scheduling = self._scheduling, None
            assert self.scheduler is not None
            self.scheduler._shut_down = _nothing  # type: ignore[method-assign]
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def stop(self) -> None:
        await self.kill_scheduler()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._controllers.stop()


async def _nothing() -> None: ...
