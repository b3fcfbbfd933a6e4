"""The cluster in one process, put together: store, API server, controllers, nodes and scheduler; and taken down
again.

`windlass up` starts an `EmbeddedCluster` and adds the page; tests and benchmarks start one as they need it.
Everything runs on the loop that `start` is called on, except the scheduler, which has a thread with a loop of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from windlass.embedded.bootstrap import bootstrap
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.controller_loop import Controller
from windlass.embedded.controllers.controller_manager import ControllerManager
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.pki import Identity, load_or_create_identity, make_identity, write_kubeconfig
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.device_manager import DeviceManager
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.embedded.runtime.process.nodes import ProcessNodes
from windlass.embedded.runtime.sandbox_routes import PREFIX, sandbox_handler
from windlass.embedded.runtime.simulated_containers import Delays
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.embedded.scheduler_thread import SchedulerThread
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import Journal, open_state
from windlass.embedded.store.store import Store
from windlass.model.configuration import Settings
from windlass.model.convert import convert
from windlass.model.node import Node
from windlass.model.unstructured import Unstructured


@dataclass(frozen=True)
class EmbeddedClusterOptions:
    nodes: Sequence[FleetNode] = ()
    """The simulated machines; none where `real` brings this machine."""
    real_gpus: bool = False
    """Pods run as processes of this machine, on its GPUs."""
    gpu_replicas: int = 1
    """With `real`: into how many each GPU is shared."""
    mps: bool = False
    """With `real` and replicas: share by MPS instead of time-slicing."""
    crds: Sequence[Unstructured] = ()
    address: str = "127.0.0.1"
    port: int = 0
    state_dir: Path | None = None
    delays: Delays = field(default_factory=Delays)
    clock: Callable[[], float] = time.time
    settings: Settings = field(default_factory=Settings)
    """What the scheduler is configured with."""


class EmbeddedCluster:
    def __init__(self, options: EmbeddedClusterOptions | None = None) -> None:
        options = options or EmbeddedClusterOptions()
        self._options = options
        self._journal: Journal | None = None
        self.identity = self._identity()
        store = self._store()
        self.client = InProcessClient(Registry(store, clock=options.clock))
        self.cache = Cache(self.client)
        self.server = ApiServer(self.client.registry, self.identity, hosts=self._names())
        self.simulated_nodes: SimulatedNodes | None = None
        self._process: ProcessNodes | None = None
        self.scheduler: SchedulerThread | None = None
        self._controllers: ControllerManager | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def faults(self) -> Faults | None:
        """What can be broken on purpose; nothing where the GPUs are real."""
        return self.simulated_nodes.faults if self.simulated_nodes is not None else None

    async def start(self, populate: Callable[[InProcessClient], None] | None = None) -> None:
        """Everything but the scheduler; `fill` puts objects in before controllers and nodes see the cluster.

        A cluster that was kept from an earlier run is not filled again: what was deleted since stays deleted.
        """
        options = self._options
        is_kept = bool(self.client.list("namespaces"))
        if self._journal is not None:
            self._journal.start()
        bootstrap(self.client, options.crds)
        workers = self._nodes()
        if populate is not None and not is_kept:
            populate(self.client)
        self._controllers = ControllerManager(
            self.client,
            self.cache,
            ca=self.identity.authority,
            extra_controllers=workers,
            clock=options.clock,
        )
        self._controllers.start()
        for nodes in (self.simulated_nodes, self._process):
            if nodes is not None:
                nodes.attach_loop(self._controllers.loop)
        self._task = asyncio.create_task(self._controllers.loop.run(), name="windlass-controllers")
        await self.listen(options.port)

    async def listen(self, port: int) -> None:
        """Open the door; again with another port, where `start` found its own taken."""
        await self.server.start(self._options.address, port)

    def notes(self) -> list[str]:
        """What a person should know about the nodes."""
        return self._process.notes if self._process is not None else []

    def summary(self) -> str:
        """The machines, in a line."""
        nodes = self.client.list("nodes")
        gpus = sum(gpu_count(node) for node in nodes)
        how = "this machine's" if self._options.real_gpus else "simulated"
        return f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'} with {gpus} GPUs ({how})"

    def _nodes(self) -> Sequence[Controller]:
        options = self._options
        if options.real_gpus:
            self._process = ProcessNodes(
                self.client, self.cache, replicas=options.gpu_replicas, mps=options.mps, clock=options.clock
            )
            self._process.register(options.clock())
            self.server.set_kubelet_api(self._process.kubelet_api)
            return self._process.controllers
        nodes = SimulatedNodes(
            self.client, self.cache, options.nodes, delays=options.delays, clock=options.clock
        )
        nodes.register(options.clock())
        self._options = replace(options, nodes=())  # they are in the store now, and may be many
        self.simulated_nodes = nodes
        self.server.set_kubelet_api(nodes.kubelet_api)
        self.server.mount(PREFIX, sandbox_handler(nodes.faults, nodes.fleet.node_names))
        return nodes.controllers

    def start_scheduler(self) -> None:
        """Loads the engine and begins to schedule; returns at once."""
        self.scheduler = SchedulerThread(
            self.server.url,
            self.identity.token,
            self.identity.authority,
            node_count=len(self.client.list("nodes")),
            settings=self._options.settings,
        )
        self.scheduler.start()

    def write_kubeconfig(self, path: Path) -> None:
        write_kubeconfig(path, self.server.url, self.identity)

    async def stop(self) -> None:
        """In the order in which things depend on each other; nothing that was acknowledged is lost."""
        if self.scheduler is not None:
            await asyncio.to_thread(self.scheduler.stop)
            await asyncio.to_thread(self.scheduler.join)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._controllers is not None:
            self._controllers.stop()
        if self._process is not None:
            self._process.close()
        await self.server.stop()
        if self._journal is not None:
            await self._journal.close()

    def _names(self) -> tuple[str, ...]:
        """Names besides loopback's under which the server answers."""
        address = self._options.address
        return () if address in ("127.0.0.1", "::1", "localhost") else (address,)

    def _identity(self) -> Identity:
        state = self._options.state_dir
        if state is None:
            return make_identity(self._names())
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        return load_or_create_identity(state, self._names())

    def _store(self) -> Store:
        if self._options.state_dir is None:
            return Store()
        store, self._journal = open_state(self._options.state_dir)
        return store


def gpu_count(node: Unstructured) -> int:
    """GPUs that the node's machine has, whole or cut or shared."""
    decoded = convert(node, Node)
    assert isinstance(decoded, Node)
    return len(DeviceManager.from_node(decoded).devices)
