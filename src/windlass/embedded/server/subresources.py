"""What is created but not stored, and what is streamed: bindings, evictions, tokens, reviews, logs, exec, attach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.registry.metadata import format_time
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import KubeletApi, KubeletApiError
from windlass.embedded.server import request_body, reviews
from windlass.embedded.server.authentication import Authenticator
from windlass.embedded.server.query import delete_options, write_options
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import method_not_allowed, respond_with_object
from windlass.embedded.server.streams import serve_exec_or_attach, serve_logs
from windlass.model.unstructured import Unstructured

Handler = Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]

_NO_PORTS = (
    "pods of this cluster have no network of their own: nothing listens on a simulated pod, and a pod that is a local "
    "process (--gpus real) is reached on this machine's own ports"
)
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Subresources:
    def __init__(
        self, registry: Registry, kubelet_api: KubeletApi | None, authenticator: Authenticator
    ) -> None:
        self._registry, self.kubelet_api, self._doors = registry, kubelet_api, authenticator

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
        if target.kind.kind in reviews.REVIEW_HANDLERS:
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
        self._registry.pod_subresources.bind(target.namespace, name, binding, options.dry_run)
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
        self._registry.pod_subresources.evict(target.namespace, target.name, options)
        return await self._done(request)

    async def _done(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._registry.store.wait_durable()
        return await respond_with_object(request, _DONE, 201)

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        review = await _body(request, target.kind.kind)
        made = reviews.REVIEW_HANDLERS[target.kind.kind](review, reviews.requesting_user(request))
        made = {"kind": target.kind.kind, "apiVersion": target.kind.api_version, **made}
        return await respond_with_object(request, made, 201)

    async def _token(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """A token of a service account. It opens the same door as any: there are no authorisation rules here."""
        asked = await _body(request, "TokenRequest")
        account = self._registry.context.get(target.kind, target.namespace, target.name).tree
        user = reviews.service_account_user(target.namespace, target.name, account["metadata"].get("uid", ""))
        until = self._registry.context.clock() + reviews.token_lifetime(asked)
        status = {"token": self._doors.issue_token(user, until), "expirationTimestamp": format_time(until)}
        spec = asked.get("spec")
        made = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name},
        }
        made |= {"spec": spec if isinstance(spec, dict) else {}, "status": status}
        return await respond_with_object(request, made, 201)

    async def _logs(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_logs(request, pod, runtime)
        except KubeletApiError as refused:
            raise ApiError(refused.code, refused.reason, refused.message) from None

    async def _ports(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        self._registry.context.get(target.kind, target.namespace, target.name)
        raise ApiError.bad_request(_NO_PORTS)

    async def _session(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_exec_or_attach(request, pod, runtime, target.subresource)
        except KubeletApiError as refused:
            raise ApiError(refused.code, refused.reason, refused.message) from None

    def _pod(self, target: Target) -> tuple[Unstructured, KubeletApi]:
        pod = self._registry.context.get(target.kind, target.namespace, target.name).tree
        if self.kubelet_api is None:
            raise ApiError(503, "ServiceUnavailable", "there is no runtime that runs pods here")
        return pod, self.kubelet_api


async def _not_allowed(request: web.BaseRequest, target: Target) -> web.StreamResponse:
    raise method_not_allowed()


async def _body(request: web.BaseRequest, kind: str) -> Unstructured:
    tree = request_body.decode_object(
        await request_body.read_body(request), request_body.content_type(request)
    )
    if tree.get("kind") not in (None, "", kind):
        raise ApiError.bad_request(f"no kind {tree['kind']!r} is expected here (must be of type {kind})")
    return tree
