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
from windlass.embedded.controllers.all import Controllers
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.loop import Worker
from windlass.embedded.controllers.objects import Tree
from windlass.embedded.pki import Identity, kept_identity, make_identity, write_kubeconfig
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.embedded.runtime.machine import Machine
from windlass.embedded.runtime.nodes import SimulatedNodes
from windlass.embedded.runtime.process.nodes import ProcessNodes
from windlass.embedded.runtime.sandbox_routes import PREFIX, sandbox_handler
from windlass.embedded.runtime.simulated import Delays
from windlass.embedded.scheduling import SchedulerThread
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import Journal, open_state
from windlass.embedded.store.store import Store
from windlass.embedded.verbs import Verbs
from windlass.model.configuration import Settings
from windlass.model.convert import convert
from windlass.model.node import Node


@dataclass(frozen=True)
class UpOptions:
    nodes: Sequence[FleetNode] = ()
    """The simulated machines; none where `real` brings this machine."""
    real: bool = False
    """Pods run as processes of this machine, on its GPUs."""
    replicas: int = 1
    """With `real`: into how many each GPU is shared."""
    mps: bool = False
    """With `real` and replicas: share by MPS instead of time-slicing."""
    crds: Sequence[Tree] = ()
    address: str = "127.0.0.1"
    port: int = 0
    state: Path | None = None
    delays: Delays = field(default_factory=Delays)
    clock: Callable[[], float] = time.time
    settings: Settings = field(default_factory=Settings)
    """What the scheduler is configured with."""


class EmbeddedCluster:
    def __init__(self, options: UpOptions | None = None) -> None:
        options = options or UpOptions()
        self._options = options
        self._journal: Journal | None = None
        self.identity = self._identity()
        store = self._store()
        self.verbs = Verbs(Registry(store, clock=options.clock))
        self.cache = Cache(self.verbs)
        self.server = ApiServer(self.verbs.registry, self.identity, hosts=self._names())
        self.simulated: SimulatedNodes | None = None
        self._process: ProcessNodes | None = None
        self.scheduler: SchedulerThread | None = None
        self._controllers: Controllers | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def faults(self) -> Faults | None:
        """What can be broken on purpose; nothing where the GPUs are real."""
        return self.simulated.faults if self.simulated is not None else None

    async def start(self, fill: Callable[[Verbs], None] | None = None) -> None:
        """Everything but the scheduler; `fill` puts objects in before controllers and nodes see the cluster.

        A cluster that was kept from an earlier run is not filled again: what was deleted since stays deleted.
        """
        options = self._options
        is_kept = bool(self.verbs.list("namespaces"))
        if self._journal is not None:
            self._journal.start()
        bootstrap(self.verbs, options.crds)
        workers = self._nodes()
        if fill is not None and not is_kept:
            fill(self.verbs)
        self._controllers = Controllers(
            self.verbs, self.cache, ca=self.identity.authority, further=workers, clock=options.clock
        )
        self._controllers.start()
        for nodes in (self.simulated, self._process):
            if nodes is not None:
                nodes.join(self._controllers.loop)
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
        nodes = self.verbs.list("nodes")
        gpus = sum(gpus_of(node) for node in nodes)
        how = "this machine's" if self._options.real else "simulated"
        return f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'} with {gpus} GPUs ({how})"

    def _nodes(self) -> Sequence[Worker]:
        options = self._options
        if options.real:
            self._process = ProcessNodes(
                self.verbs, self.cache, replicas=options.replicas, mps=options.mps, clock=options.clock
            )
            self._process.register(options.clock())
            self.server.serve_pods_of(self._process.runtime)
            return self._process.workers
        nodes = SimulatedNodes(
            self.verbs, self.cache, options.nodes, delays=options.delays, clock=options.clock
        )
        nodes.register(options.clock())
        self._options = replace(options, nodes=())  # they are in the store now, and may be many
        self.simulated = nodes
        self.server.serve_pods_of(nodes.runtime)
        self.server.mount(PREFIX, sandbox_handler(nodes.faults, nodes.park.names))
        return nodes.workers

    def start_scheduler(self) -> None:
        """Loads the engine and begins to schedule; returns at once."""
        self.scheduler = SchedulerThread(
            self.server.url,
            self.identity.token,
            self.identity.authority,
            nodes=len(self.verbs.list("nodes")),
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
        state = self._options.state
        if state is None:
            return make_identity(self._names())
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        return kept_identity(state, self._names())

    def _store(self) -> Store:
        if self._options.state is None:
            return Store()
        store, self._journal = open_state(self._options.state)
        return store


def gpus_of(node: Tree) -> int:
    """GPUs that the node's machine has, whole or cut or shared."""
    decoded = convert(node, Node)
    assert isinstance(decoded, Node)
    return len(Machine.of_node(decoded).devices)
