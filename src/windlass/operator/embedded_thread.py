"""Runs the operator beside the cluster of `windlass up`: the code of `windlass operator`, over HTTPS, in a thread.

`cli.up` makes one; it starts when the first GPUStack is created, since a cluster without one has nothing for it to do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading

from windlass.embedded.embedded_cluster import EmbeddedCluster
from windlass.embedded.server.authentication import User
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.model.unstructured import Unstructured

log = logging.getLogger(__name__)

OPERATOR = User("system:windlass-operator", ("system:masters", "system:authenticated"))
STACKS = "gpustacks.windlass.dev"
STOP_SECONDS = 5.0


class OperatorThread:
    def __init__(self, cluster: EmbeddedCluster, prometheus: str = "") -> None:
        self._cluster, self._prometheus = cluster, prometheus
        self._thread = threading.Thread(target=self._run, name="windlass-operator", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start_with_first_stack(self) -> None:
        """Called when the server listens."""
        if self._cluster.client.list(STACKS):
            self._start()
        self._cluster.client.subscribe(STACKS, self._on_stack)

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(STOP_SECONDS)

    def _on_stack(self, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        if kind == "ADDED":
            self._start()

    def _start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._operate())
        except Exception as error:  # thread boundary: the cluster goes on without an operator
            log.error("the operator has stopped: %s: %s", type(error).__name__, error)
            log.debug("traceback of the operator", exc_info=True)

    async def _operate(self) -> None:
        from windlass.operator.controller import OperatorOptions, run_operator

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        token = self._cluster.server.authenticator.issue_token(OPERATOR, math.inf)
        config = ClientConfig(
            server=self._cluster.server.url,
            credentials=StaticCredentials({"Authorization": f"Bearer {token}"}),
            ca=self._cluster.identity.authority.encode(),
            name="windlass-up",
        )
        options = OperatorOptions(
            leader_elect=False,
            identity="windlass-up",
            prometheus=self._prometheus,
            driver_namespace="windlass-system",  # one of those that every embedded cluster has
        )
        await run_operator(config, options, self._stop)
