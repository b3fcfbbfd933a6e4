"""The fake API over HTTP, for tests of the client itself and of what goes wrong on a connection; faults on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from tests.kube.fake_api import FakeApi

from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.kube.errors import ApiError
from windlass.model.unstructured import Unstructured


class FakeServer(FakeApi):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[tuple[str, str, Any]] = []
        self.faults: list[Callable[[web.Request], web.StreamResponse | None]] = []
        """Asked before each request; an answer of theirs is the answer."""
        self.hang_up = asyncio.Event()
        """Set: all watches end."""
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> FakeServer:
        app = web.Application(middlewares=[self._fault])
        app.router.add_route("*", "/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        self.hang_up.set()
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def access(self) -> ClientConfig:
        return ClientConfig(f"http://127.0.0.1:{self.port}", StaticCredentials())

    async def put(self, plural: str, tree: Unstructured) -> Unstructured:
        return self.store(plural, tree)

    async def delete(self, plural: str, key: str) -> None:
        self.remove(plural, key)

    @web.middleware
    async def _fault(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        return await handler(request)  # type: ignore[no-any-return]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and "watch" in request.query:
            return await self._watch(request)
        body = json.loads(await request.read() or b"null")
        self.bodies.append((request.method, request.path, body))
        try:
            answer = self.respond(request.method, request.path, request.query, body, request.content_type)
        except ApiError as error:
            return refusal(error.code, error.status.message, error.status.reason)
        return web.json_response(answer, status=201 if request.method == "POST" else 200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events = self.watch(request.path, int(request.query["resourceVersion"]))
        ended = asyncio.create_task(self.hang_up.wait())
        try:
            while True:
                following = asyncio.create_task(anext(events))  # type: ignore[arg-type]
                await asyncio.wait((following, ended), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    return response
                await response.write(json.dumps(following.result()).encode() + b"\n")
        except StopAsyncIteration:
            return response
        finally:
            ended.cancel()


def refusal(code: int, message: str, reason: str = "", retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason}
    return web.json_response(body, status=code, headers=headers)
