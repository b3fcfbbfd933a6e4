"""Subresources that are not stored objects: bindings, evictions, tokens, reviews, logs, exec, attach. `server`
routes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import KubeletApi, KubeletApiError
from windlass.embedded.server import request_body
from windlass.embedded.server.authentication import USER_KEY, Authenticator
from windlass.embedded.server.authorization import Authorizer
from windlass.embedded.server.query import delete_options, write_options
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import method_not_allowed, respond_with_object
from windlass.embedded.server.reviews import REVIEWS, Reviewer, service_account_user, token_lifetime
from windlass.embedded.server.streams import serve_exec_or_attach, serve_logs
from windlass.model.unstructured import Unstructured

Handler = Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]

_NO_PORT_FORWARD = (
    "pods of this cluster have no network of their own: nothing listens on a simulated pod, and a pod that is a local "
    "process (--gpus real) is reached on this machine's own ports"
)
_BOUND_RESOURCES = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Subresources:
    def __init__(
        self,
        registry: Registry,
        kubelet_api: KubeletApi | None,
        authenticator: Authenticator,
        authorizer: Authorizer,
    ) -> None:
        self._registry, self.kubelet_api, self._authenticator = registry, kubelet_api, authenticator
        self._reviewer = Reviewer(authenticator, authorizer)

    def handler(self, target: Target, method: str) -> Handler | None:
        """None if the subresource is read and written like the object itself."""
        name = target.subresource
        if name in ("exec", "attach"):
            return self._exec_or_attach if method in ("GET", "POST") else _not_allowed
        if name == "portforward":
            return self._port_forward if method in ("GET", "POST") else _not_allowed
        if name == "log":
            return self._logs if method == "GET" else _not_allowed
        if name == "binding" or target.kind.resource == "bindings":
            return self._bind if method == "POST" else _not_allowed
        if name == "eviction":
            return self._evict if method == "POST" else _not_allowed
        if name == "token":
            return self._token if method == "POST" else _not_allowed
        if target.kind.kind in REVIEWS:
            return self._review if method == "POST" else _not_allowed
        return None

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        binding = await _body(request, "Binding")
        options = write_options(request.query, "", "", "CreateOptions", [])
        metadata = binding.get("metadata")
        name_in_body = metadata.get("name") if isinstance(metadata, dict) else None
        name = target.name or name_in_body
        if not isinstance(name, str) or (name_in_body and name_in_body != name):
            raise ApiError.bad_request("name in URL does not match name in Binding object")
        self._registry.pod_subresources.bind(target.namespace, name, binding, options.dry_run)
        return await self._respond_success(request)

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        eviction = await _body(request, "Eviction")
        metadata, body = eviction.get("metadata"), eviction.get("deleteOptions")
        name_in_body = metadata.get("name") if isinstance(metadata, dict) else None
        if name_in_body and name_in_body != target.name:
            raise ApiError.bad_request("name in URL does not match name in Eviction object")
        if body is not None and not isinstance(body, dict):
            raise ApiError.bad_request("deleteOptions is not an object")
        options = delete_options(request.query, body)
        self._registry.pod_subresources.evict(target.namespace, target.name, options)
        return await self._respond_success(request)

    async def _respond_success(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._registry.store.wait_durable()
        return await respond_with_object(request, _SUCCESS, 201)

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        review = await _body(request, target.kind.kind)
        result = self._reviewer.review(target.kind.kind, target.namespace, review, request[USER_KEY])
        result = {"kind": target.kind.kind, "apiVersion": target.kind.api_version, **result}
        return await respond_with_object(request, result, 201)

    async def _token(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """A token of a service account, valid while the account, and the object that it is bound to, are there."""
        token_request = await _body(request, "TokenRequest")
        account = self._registry.context.get(target.kind, target.namespace, target.name).tree
        uid = account["metadata"].get("uid", "")
        user = service_account_user(target.namespace, target.name, uid)
        end = self._registry.context.clock() + token_lifetime(token_request)
        is_bound = self._binding_check(target, uid, token_request)
        status = {
            "token": self._authenticator.issue_token(user, end, is_bound),
            "expirationTimestamp": format_time(end),
        }
        spec = token_request.get("spec")
        result = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name},
        }
        result |= {"spec": spec if isinstance(spec, dict) else {}, "status": status}
        return await respond_with_object(request, result, 201)

    def _binding_check(self, target: Target, uid: str, token_request: Unstructured) -> Callable[[], bool]:
        store, spec = self._registry.store, token_request.get("spec")
        reference = (spec.get("boundObjectRef") if isinstance(spec, dict) else None) or {}
        needed = [("serviceaccounts", target.name, uid)]
        if isinstance(reference, dict) and reference.get("kind") in _BOUND_RESOURCES:
            resource = _BOUND_RESOURCES[reference["kind"]]
            needed.append((resource, str(reference.get("name", "")), str(reference.get("uid") or "")))

        def is_bound() -> bool:
            for resource, name, wanted in needed:
                key = ("" if resource == "nodes" else target.namespace, name)
                found = store.storage(resource).items.get(key)
                if found is None or (wanted and found.tree["metadata"].get("uid") != wanted):
                    return False
            return True

        if not is_bound():
            raise ApiError(409, "Conflict", "the object that the token is to be bound to does not exist")
        return is_bound

    async def _logs(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_logs(request, pod, runtime)
        except KubeletApiError as error:
            raise ApiError(error.code, error.reason, error.message) from None

    async def _port_forward(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        self._registry.context.get(target.kind, target.namespace, target.name)
        raise ApiError.bad_request(_NO_PORT_FORWARD)

    async def _exec_or_attach(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        pod, runtime = self._pod(target)
        try:
            return await serve_exec_or_attach(request, pod, runtime, target.subresource)
        except KubeletApiError as error:
            raise ApiError(error.code, error.reason, error.message) from None

    def _pod(self, target: Target) -> tuple[Unstructured, KubeletApi]:
        pod = self._registry.context.get(target.kind, target.namespace, target.name).tree
        if self.kubelet_api is None:
            raise ApiError(503, "ServiceUnavailable", "this server has no nodes that run pods")
        return pod, self.kubelet_api


async def _not_allowed(request: web.BaseRequest, target: Target) -> web.StreamResponse:
    raise method_not_allowed()


async def _body(request: web.BaseRequest, kind: str) -> Unstructured:
    tree = await request_body.off_loop(
        request_body.decode_object, await request_body.read_body(request), request_body.content_type(request)
    )
    if tree.get("kind") not in (None, "", kind):
        raise ApiError.bad_request(f"no kind {tree['kind']!r} is expected here (must be of type {kind})")
    return tree
