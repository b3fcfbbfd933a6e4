"""All controllers on one loop. `embedded.embedded_cluster` creates it, adds the nodes' kubelets, and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.controller_loop import Controller, ControllerLoop
from windlass.embedded.controllers.disruption import DisruptionController
from windlass.embedded.controllers.events import EventTtlController
from windlass.embedded.controllers.garbage_collector import AllKindsClient, GarbageCollector
from windlass.embedded.controllers.namespaces import NamespaceController, ServiceAccountController
from windlass.embedded.controllers.node_lifecycle import (
    NodeLifecycleController,
    PodGarbageCollector,
    TaintEvictionController,
)
from windlass.embedded.controllers.resource_quota import ResourceQuotaController
from windlass.embedded.controllers.role_aggregation import RoleAggregationController
from windlass.embedded.controllers.workload_controllers import WORKLOAD_CONTROLLERS


class ControllerManager:
    """`extra_controllers` share the loop and the cache: the kubelets."""

    def __init__(
        self,
        client: AllKindsClient,
        cache: Cache,
        *,
        ca: str = "",
        extra_controllers: Sequence[Controller] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._garbage, self._quotas = GarbageCollector(client), ResourceQuotaController(client, cache)
        controllers: list[Controller] = [
            *(make(client, cache) for make in WORKLOAD_CONTROLLERS),
            DisruptionController(client, cache),
            self._quotas,
            NodeLifecycleController(client, cache),
            TaintEvictionController(client, cache),
            PodGarbageCollector(client, cache),
            NamespaceController(client, cache),
            ServiceAccountController(client, cache, ca),
            EventTtlController(client),
            RoleAggregationController(client, cache),
            self._garbage,
            *extra_controllers,
        ]
        self.loop = ControllerLoop(cache, controllers, clock)

    def start(self) -> None:
        self.loop.start()
        for controller in (self._garbage, self._quotas):
            controller.start(partial(self.loop.enqueue, controller))

    def stop(self) -> None:
        self._garbage.stop()
        self._quotas.stop()
        self.loop.cache.close()
