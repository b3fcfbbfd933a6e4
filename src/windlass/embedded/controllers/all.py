"""All controllers on one loop. `embedded.up` makes them, adds the nodes' kubelets, and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.disruption import BudgetWorker
from windlass.embedded.controllers.events import EventsExpire
from windlass.embedded.controllers.garbage import Everything, GarbageCollector
from windlass.embedded.controllers.loop import Loop, Worker
from windlass.embedded.controllers.namespaces import NamespaceDeletion, NamespaceFurniture
from windlass.embedded.controllers.node_lifecycle import LostPods, NodeLifecycle, TaintEviction
from windlass.embedded.controllers.owners import WORKERS
from windlass.embedded.controllers.quota import QuotaWorker


class Controllers:
    """`further` are workers that share the loop and the cache: the kubelets."""

    def __init__(
        self,
        verbs: Everything,
        cache: Cache,
        *,
        ca: str = "",
        further: Sequence[Worker] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._garbage, self._quotas = GarbageCollector(verbs), QuotaWorker(verbs, cache)
        workers: list[Worker] = [
            *(make(verbs, cache) for make in WORKERS),
            BudgetWorker(verbs, cache),
            self._quotas,
            NodeLifecycle(verbs, cache),
            TaintEviction(verbs, cache),
            LostPods(verbs, cache),
            NamespaceDeletion(verbs, verbs, cache),
            NamespaceFurniture(verbs, cache, ca),
            EventsExpire(verbs),
            self._garbage,
            *further,
        ]
        self.loop = Loop(cache, workers, clock)

    def start(self) -> None:
        self.loop.start()
        for worker in (self._garbage, self._quotas):
            worker.start(partial(self.loop.add, worker))

    def stop(self) -> None:
        self._garbage.stop()
        self._quotas.stop()
        self.loop.cache.close()
