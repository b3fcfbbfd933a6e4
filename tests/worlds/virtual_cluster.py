"""A cluster on the virtual clock: store, API server, controllers, kubelets and the live scheduler, all of them the
production code, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.live.owner_kinds import crd, crds_of_others
from tests.worlds.draw_work import GROUP_FORMS_DRAWN
from tests.worlds.judge import Judge
from tests.worlds.virtual_client import InProcessKubeClient, Network
from tests.worlds.virtual_time import Machine

from windlass.cli.install_crds import crds
from windlass.cluster.snapshot import Snapshot
from windlass.embedded.api.errors import ApiError
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
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

USED_KINDS = ("PyTorchJob", "JobSet", "RayCluster", "PodGroup")
OUTAGE_SECONDS, LEASE_SECONDS = 40.0, 30.0
"""Longer than the default, since renewing takes a quarter of the time of a world with two replicas."""


@functools.cache
def identity() -> Identity:
    return make_identity(())


class ObservedScheduler(Scheduler):
    """The scheduler, with a look at the plans that it carries out."""

    on_plan: Callable[[Plan], None]

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        self.on_plan(plan)
        super().execute(plan, snapshot)


@dataclass
class Replica:
    scheduler: ObservedScheduler
    network: Network
    running: asyncio.Task[None]


class VirtualCluster:
    group_forms = tuple(GROUP_FORMS_DRAWN)

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        settings: Settings,
        random: Random,
        machine: Machine | None = None,
        replicas: int = 1,
    ) -> None:
        self._random, self._machine = random, machine or Machine()
        self.network = Network(random)
        """How it is now, for replicas that start; each has one of its own."""
        self.counts = self.network.counts
        self.client = InProcessClient(Registry(Store(), clock=time.time))
        cache = Cache(self.client)
        bootstrap(self.client, [*crds(), *_crds_of_others()])
        self.nodes = SimulatedNodes(self.client, cache, nodes, clock=time.time)
        self.nodes.register(time.time())
        self._hanging: set[str] = set()
        self._make_kubelets_hang()
        self._controllers = ControllerManager(
            self.client, cache, extra_controllers=self.nodes.controllers, clock=time.time
        )
        self._server = ApiServer(self.client.registry, identity())
        self._settings = with_default_scheduler(settings)
        self._replica_count = replicas
        self.cannot = frozenset() if self._replica_count > 1 else frozenset({"cut_off_leader"})
        self._loop_task: asyncio.Task[None] | None = None
        self._replicas: list[Replica] = []
        self._on_plan: Callable[[Plan], None] = lambda plan: None

    async def start(self, judge: Judge | None = None) -> None:
        if judge is not None:
            self._on_plan = judge.on_plan
            self.client.create("namespaces", "", {"metadata": {"name": "team"}})
            for node in self.client.list("nodes"):
                judge.on_change("nodes", "ADDED", node, None)
            self.client.subscribe_all(judge.on_change)
        self._controllers.start()
        self.nodes.attach_loop(self._controllers.loop)
        self._loop_task = asyncio.create_task(self._controllers.loop.run())
        for _ in range(self._replica_count):
            self._start_replica()

    # Objects

    async def create(self, resource: str, tree: Unstructured) -> None:
        try:
            self.client.create(resource, tree["metadata"].get("namespace", ""), tree)
        except ApiError as error:
            if error.code != 409:
                raise

    async def list(self, resource: str) -> list[Unstructured]:
        return self.client.list(resource)

    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None:
        meta = tree["metadata"]
        try:
            self.client.patch(resource, meta.get("namespace", ""), meta["name"], merge)
        except ApiError as error:
            if error.code not in (404, 409, 422):
                raise

    async def delete(self, resource: str, tree: Unstructured) -> None:
        meta = tree["metadata"]
        with contextlib.suppress(ApiError):
            self.client.delete(resource, meta.get("namespace", ""), meta["name"])

    # Machines

    def fail(self, target: str) -> None:
        self.nodes.faults.fail(target)

    def hang_kubelet(self, node: str) -> None:
        self._hanging.add(node)

    def heal(self) -> None:
        self.nodes.faults.heal()
        for node in self._hanging:
            for key in self.nodes.kubelet.pod_keys_on_node(node):
                self._controllers.loop.enqueue(self.nodes.kubelet, key)
        self._hanging.clear()

    def _make_kubelets_hang(self) -> None:
        """A kubelet that hangs goes on with its pods, starts none and ends none that is deleted."""
        kubelet, sync = self.nodes.kubelet, self.nodes.kubelet.sync

        def sync_unless_hanging(key: str, now: float) -> float | None:
            worker = kubelet.pod_workers.get(key)
            pod = self.client.find("pods", *key.split("/"))
            is_deleted = pod is not None and "deletionTimestamp" in pod["metadata"]
            if pod is not None and (worker is not None) == is_deleted and pod["spec"].get("nodeName") in self._hanging:
                return None
            return sync(key, now)

        kubelet.sync = sync_unless_hanging  # type: ignore[method-assign]

    # Schedulers

    def _start_replica(self) -> None:
        options = SchedulerOptions(
            settings=self._settings,
            warm_up=False,
            leader_elect=self._replica_count > 1,
            lease_seconds=LEASE_SECONDS,
            identity=f"world-{self._random.randrange(10**6)}",
        )
        network = replace(self.network)
        scheduler = ObservedScheduler(InProcessKubeClient(self._server, network), options)
        scheduler.on_plan = self._on_plan
        self._replicas.append(Replica(scheduler, network, asyncio.create_task(scheduler.run(asyncio.Event()))))

    async def restart_scheduler(self, pause: float) -> None:
        await self._kill(self._leader())
        await asyncio.sleep(pause)
        self._start_replica()

    async def cut_off_leader(self) -> None:
        leader = self._leader()
        leader.network.outage = True
        await asyncio.sleep(OUTAGE_SECONDS)
        leader.network.outage = False

    def _leader(self) -> Replica:
        leading = [replica for replica in self._replicas if replica.scheduler._may_write()]
        return (leading or self._replicas)[0]

    async def _kill(self, replica: Replica) -> None:
        """As a machine does that loses power: nothing is finished."""
        self._replicas.remove(replica)
        replica.scheduler._shut_down = _nothing  # type: ignore[method-assign]
        replica.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await replica.running

    def set_network(self, latency: float, failures: float, watch_lag: float, decision_seconds: float) -> None:
        for network in (self.network, *(replica.network for replica in self._replicas)):
            network.latency, network.failures, network.watch_lag = latency, failures, watch_lag
        self._machine.thread_seconds = decision_seconds

    async def stop(self) -> None:
        for replica in list(self._replicas):
            await self._kill(replica)
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        self._controllers.stop()


@functools.cache
def _crds_of_others() -> tuple[Unstructured, ...]:
    native = crd("PodGroup", "podgroups", "scheduling.k8s.io", "v1alpha2")
    return (*(one for one in crds_of_others() if one["spec"]["names"]["kind"] in USED_KINDS), native)


async def _nothing() -> None: ...
