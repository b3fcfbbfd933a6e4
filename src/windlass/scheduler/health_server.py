"""/healthz, /readyz and /metrics over plain HTTP, for the kubelet and for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass.model.errors import InputError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HealthServer:
    """`healthy` and `ready` return what is wrong, or nothing; `metrics` the text to show."""

    def __init__(
        self, healthy: Callable[[], str], ready: Callable[[], str], metrics: Callable[[], bytes]
    ) -> None:
        self._app = web.Application()
        self._app.router.add_get("/healthz", _check(healthy))
        self._app.router.add_get("/livez", _check(healthy))
        self._app.router.add_get("/readyz", _check(ready))
        self._app.router.add_get("/metrics", _shown(metrics))
        self._runner = web.AppRunner(self._app, access_log=None)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            why = f"nothing can be served there: {error.strerror or error}"
            raise InputError(why, object=f"{host}:{port}", remedy="check --listen") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


def _check(question: Callable[[], str]) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        wrong = question()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    return answer


def _shown(metrics: Callable[[], bytes]) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    return answer
