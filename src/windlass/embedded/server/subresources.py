"""What is created but not stored, and what is streamed: bindings, evictions, tokens, reviews, logs, exec, attach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.registry.metadata import rfc3339
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.interface import Refused, Runtime
from windlass.embedded.server import bodies, reviews
from windlass.embedded.server.answers import document, not_allowed
from windlass.embedded.server.doors import Doors
from windlass.embedded.server.paths import Target
from windlass.embedded.server.query import delete_options, write_options
from windlass.embedded.server.streams import serve_logs, serve_session

Tree = dict[str, Any]
Handler = Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]

_NO_PORTS = (
    "pods of this cluster have no network of their own: nothing listens on a simulated pod, and a pod that is a local "
    "process (--gpus real) is reached on this machine's own ports"
)
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Subresources:
    def __init__(self, registry: Registry, runtime: Runtime | None, doors: Doors) -> None:
        self._registry, self.runtime, self._doors = registry, runtime, doors

    def handler(self, target: Target, method: str) -> Handler | None:
        """None where the subresource is read and written like the object itself."""
        name = target.subresource
        if name in ("exec", "attach"):
            return self._session if method in ("GET", "POST") else _not_allowed
        if name == "portforward":
            return self._ports if method in ("GET", "POST") else _not_allowed
        if name == "log":
            return self._logs if method == "GET" else _not_allowed
        if name == "binding" or target.kind.resource == "bindings":
            return self._bind if method == "POST" else _not_allowed
        if name == "eviction":
            return self._evict if method == "POST" else _not_allowed
        if name == "token":
            return self._token if method == "POST" else _not_allowed
        if target.kind.kind in reviews.ANSWERS:
            return self._review if method == "POST" else _not_allowed
        return None

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        binding = await _body(request, "Binding")
        options = write_options(request.query, "", "", "CreateOptions", [])
        metadata = binding.get("metadata")
        given = metadata.get("name") if isinstance(metadata, dict) else None
        name = target.name or given
        if not isinstance(name, str) or (given and given != name):
            raise ApiError.bad_request("name in URL does not match name in Binding object")
        self._registry.placing.bind(target.namespace, name, binding, options.dry_run)
        return await self._done(request)

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        eviction = await _body(request, "Eviction")
        metadata, body = eviction.get("metadata"), eviction.get("deleteOptions")
        given = metadata.get("name") if isinstance(metadata, dict) else None
        if given and given != target.name:
            raise ApiError.bad_request("name in URL does not match name in Eviction object")
        if body is not None and not isinstance(body, dict):
            raise ApiError.bad_request("deleteOptions is not an object")
        options = delete_options(request.query, body)
        self._registry.placing.evict(target.namespace, target.name, options)
        return await self._done(request)

    async def _done(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._registry.store.wait()
        return await document(request, _DONE, 201)

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        review = await _body(request, target.kind.kind)
        made = reviews.ANSWERS[target.kind.kind](review, reviews.asking(request))
        made = {"kind": target.kind.kind, "apiVersion": target.kind.api_version, **made}
        return await document(request, made, 201)

    async def _token(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """A token of a service account. It opens the same door as any: there are no authorisation rules here."""
        asked = await _body(request, "TokenRequest")
        account = self._registry.context.stored(target.kind, target.namespace, target.name).tree
        user = reviews.account_user(target.namespace, target.name, account["metadata"].get("uid", ""))
        until = self._registry.context.clock() + reviews.token_seconds(asked)
        status = {"token": self._doors.admit(user, until), "expirationTimestamp": rfc3339(until)}
        spec = asked.get("spec")
        made = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name},
        }
        made |= {"spec": spec if isinstance(spec, dict) else {}, "status": status}
        return await document(request, made, 201)

    async def _logs(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_logs(request, pod, runtime)
        except Refused as refused:
            raise ApiError(refused.code, refused.reason, refused.message) from None

    async def _ports(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        self._registry.context.stored(target.kind, target.namespace, target.name)
        raise ApiError.bad_request(_NO_PORTS)

    async def _session(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_session(request, pod, runtime, target.subresource)
        except Refused as refused:
            raise ApiError(refused.code, refused.reason, refused.message) from None

    def _pod(self, target: Target) -> tuple[Tree, Runtime]:
        pod = self._registry.context.stored(target.kind, target.namespace, target.name).tree
        if self.runtime is None:
            raise ApiError(503, "ServiceUnavailable", "there is no runtime that runs pods here")
        return pod, self.runtime


async def _not_allowed(request: web.BaseRequest, target: Target) -> web.StreamResponse:
    raise not_allowed()


async def _body(request: web.BaseRequest, kind: str) -> Tree:
    tree = bodies.tree_of(await bodies.read(request), bodies.content_type(request))
    if tree.get("kind") not in (None, "", kind):
        raise ApiError.bad_request(f"no kind {tree['kind']!r} is expected here (must be of type {kind})")
    return tree
