"""Serves /healthz, /livez, /readyz and /metrics over plain HTTP, for the kubelet and Prometheus.

`scheduler.scheduler` starts and stops it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass.model.errors import InputError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HealthServer:
    """`healthy` and `ready` return what is wrong, or an empty string; `metrics` returns Prometheus text."""

    def __init__(self, healthy: Callable[[], str], ready: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        self._app = web.Application()
        self._app.router.add_get("/healthz", _health_handler(healthy))
        self._app.router.add_get("/livez", _health_handler(healthy))
        self._app.router.add_get("/readyz", _health_handler(ready))
        self._app.router.add_get("/metrics", _metrics_handler(metrics))
        self._runner = web.AppRunner(self._app, access_log=None)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            problem = f"can't listen on this address: {error.strerror or error}"
            raise InputError(problem, object=f"{host}:{port}", remedy="check --listen") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


def _health_handler(check: Callable[[], str]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    return handle


def _metrics_handler(metrics: Callable[[], bytes]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return handle
