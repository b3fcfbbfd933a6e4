"""Starts and stops a whole cluster in one process: store, API server, controllers, nodes and scheduler.

`windlass up` starts an `EmbeddedCluster` and adds the page; tests and benchmarks start one as they need it.
Everything runs on the event loop on which `start` is called, except the scheduler, which has a thread with its own
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
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
from windlass.embedded.server.authentication import User
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import Journal, open_state
from windlass.embedded.store.store import Store
from windlass.model.configuration import Settings
from windlass.model.convert import convert
from windlass.model.node import Node
from windlass.model.unstructured import Unstructured

SCHEDULER = User("system:windlass-scheduler", ("system:masters", "system:authenticated"))
"""Its token is not that of the kubeconfig, so that its requests are counted apart from other clients'."""


@dataclass(frozen=True)
class EmbeddedClusterOptions:
    nodes: Sequence[FleetNode] = ()
    """The simulated nodes; empty with `real_gpus`, which adds this machine."""
    real_gpus: bool = False
    """Whether pods run as processes of this machine, on its GPUs."""
    gpu_replicas: int = 1
    """With `real_gpus`: how many replicas each GPU is shared into."""
    mps: bool = False
    """With `gpu_replicas`: share by MPS instead of time-slicing."""
    crds: Sequence[Unstructured] = ()
    address: str = "127.0.0.1"
    port: int = 0
    state_dir: Path | None = None
    delays: Delays = field(default_factory=Delays)
    clock: Callable[[], float] = time.time
    settings: Settings = field(default_factory=Settings)
    """The scheduler's settings."""


class EmbeddedCluster:
    def __init__(self, options: EmbeddedClusterOptions | None = None) -> None:
        options = options or EmbeddedClusterOptions()
        self._options = options
        self._journal: Journal | None = None
        store = self._open_store()  # before anything is written: the folder may be in use, or damaged
        self.identity = self._load_identity()
        self.client = InProcessClient(Registry(store, clock=options.clock))
        self.cache = Cache(self.client)
        self.server = ApiServer(self.client.registry, self.identity, hosts=self._server_names())
        self.simulated_nodes: SimulatedNodes | None = None
        self._process_nodes: ProcessNodes | None = None
        self.scheduler: SchedulerThread | None = None
        self._controllers: ControllerManager | None = None
        self._controller_task: asyncio.Task[None] | None = None

    @property
    def faults(self) -> Faults | None:
        """Fault injection; None with real GPUs."""
        return self.simulated_nodes.faults if self.simulated_nodes is not None else None

    async def start(self, populate: Callable[[InProcessClient], None] | None = None) -> None:
        """Starts everything but the scheduler. `populate` creates objects before controllers and nodes see the
        cluster.

        A cluster that was kept from an earlier run is not populated again: what was deleted since stays deleted.
        """
        options = self._options
        is_restored = bool(self.client.list("namespaces"))
        if self._journal is not None:
            self._journal.start()
        bootstrap(self.client, options.crds)
        node_controllers = self._make_nodes()
        if populate is not None and not is_restored:
            populate(self.client)
        self._controllers = ControllerManager(
            self.client,
            self.cache,
            ca=self.identity.authority,
            extra_controllers=node_controllers,
            clock=options.clock,
        )
        self._controllers.start()
        for nodes in (self.simulated_nodes, self._process_nodes):
            if nodes is not None:
                nodes.attach_loop(self._controllers.loop)
        self._controller_task = asyncio.create_task(self._controllers.loop.run(), name="windlass-controllers")
        await self.listen(options.port)

    async def listen(self, port: int) -> None:
        """Starts listening; called again with another port if the first was taken."""
        await self.server.start(self._options.address, port)

    def notes(self) -> list[str]:
        """Remarks about the nodes for the user."""
        return self._process_nodes.notes if self._process_nodes is not None else []

    def summary(self) -> str:
        """Nodes and GPUs in one line."""
        nodes = self.client.list("nodes")
        gpus = sum(gpu_count(node) for node in nodes)
        source = "this machine's" if self._options.real_gpus else "simulated"
        return f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'} with {gpus} GPUs ({source})"

    def _make_nodes(self) -> Sequence[Controller]:
        options = self._options
        if options.real_gpus:
            self._process_nodes = ProcessNodes(
                self.client, self.cache, replicas=options.gpu_replicas, mps=options.mps, clock=options.clock
            )
            self._process_nodes.register(options.clock())
            self.server.set_kubelet_api(self._process_nodes.kubelet_api)
            return self._process_nodes.controllers
        nodes = SimulatedNodes(self.client, self.cache, options.nodes, delays=options.delays, clock=options.clock)
        nodes.register(options.clock())
        self._options = replace(options, nodes=())  # they are in the store now; free the memory
        self.simulated_nodes = nodes
        self.server.set_kubelet_api(nodes.kubelet_api)
        self.server.mount(PREFIX, sandbox_handler(nodes))
        return nodes.controllers

    def start_scheduler(self, history: Path | None = None, prometheus: str = "") -> None:
        """Starts the scheduler in its thread and returns at once. `history`: a folder for its ledger."""
        self.scheduler = SchedulerThread(
            self.server.url,
            self.server.authenticator.issue_token(SCHEDULER, math.inf),
            self.identity.authority,
            node_count=len(self.client.list("nodes")),
            settings=self._options.settings,
            history=history,
            prometheus=prometheus,
        )
        self.scheduler.start()

    def write_kubeconfig(self, path: Path) -> None:
        write_kubeconfig(path, self.server.url, self.identity)

    async def stop(self) -> None:
        """Stops in the order of dependencies; acknowledged writes are on disk at the end."""
        if self.scheduler is not None:
            await asyncio.to_thread(self.scheduler.stop)
            await asyncio.to_thread(self.scheduler.join)
        if self._controller_task is not None:
            self._controller_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._controller_task
        if self._controllers is not None:
            self._controllers.stop()
        if self._process_nodes is not None:
            self._process_nodes.close()
        await self.server.stop()
        if self._journal is not None:
            await self._journal.close()

    def _server_names(self) -> tuple[str, ...]:
        """Host names besides loopback under which the server answers."""
        address = self._options.address
        return () if address in ("127.0.0.1", "::1", "localhost") else (address,)

    def _load_identity(self) -> Identity:
        state = self._options.state_dir
        if state is None:
            return make_identity(self._server_names())
        return load_or_create_identity(state, self._server_names())

    def _open_store(self) -> Store:
        if self._options.state_dir is None:
            return Store()
        store, self._journal = open_state(self._options.state_dir)
        return store


def gpu_count(node: Unstructured) -> int:
    """The GPUs of the node's machine, whether whole, shared or in MIG mode."""
    decoded = convert(node, Node)
    assert isinstance(decoded, Node)
    return len(DeviceManager.from_node(decoded).devices)
