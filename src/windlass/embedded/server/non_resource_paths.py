"""Paths that are not about objects: discovery, OpenAPI, version, health, metrics.

`server` routes here. `embedded.api` makes the documents from the served kinds; they are cached until those change.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable

import msgspec
from aiohttp import web

from windlass import __version__
from windlass.embedded.api import discovery, openapi, openapi_protobuf
from windlass.embedded.api.errors import ApiError
from windlass.embedded.registry.registry import Registry
from windlass.embedded.server.responses import method_not_allowed, respond, respond_with_object
from windlass.model.unstructured import Unstructured

KUBERNETES_VERSION = "1.36.3"
"""The Kubernetes release whose API is served."""
_HEALTH = ("/healthz", "/livez", "/readyz")
_AGGREGATED = "APIGroupDiscoveryList"
_AGGREGATED_TYPE = f"application/json;g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED}"
_PATHS = ("/api", "/api/v1", "/apis", *_HEALTH, "/metrics", "/openapi/v2", "/openapi/v3", "/version")


class NonResourceHandler:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[tuple[str, ...], bytes] = {}
        self._generation = -1

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed() if path in _PATHS else ApiError.no_such_path()
        if path in ("/api", "/apis"):
            return await self._groups(request, path)
        if path == "/openapi/v2":
            return await self._v2(request)
        if path.startswith("/openapi/v3"):
            return await self._v3(request, path.removeprefix("/openapi/v3").strip("/"))
        if path.startswith(("/api/", "/apis/")):
            return await self._resources(request, path.split("/")[2:])
        if path == "/version":
            return await respond_with_object(request, version_info())
        if path.startswith(_HEALTH):
            return self._health(path.split("/")[1], "verbose" in request.query)
        if path == "/metrics":
            return _text(self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
        if path == "/":
            return await respond_with_object(request, {"paths": self._paths()})
        raise ApiError.no_such_path()

    async def _groups(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Aggregated discovery for clients that support it, else the plain list of groups."""
        kinds, core = self._registry.kinds, path == "/api"
        if _wants_aggregated(request):
            body = self._cached(("aggregated", path), lambda: discovery.aggregated(kinds, core))
            return await self._respond(request, body, _AGGREGATED_TYPE)
        if core:
            return await respond_with_object(request, discovery.versions(request.headers.get("Host", "")))
        return await respond(request, self._cached(("groups",), lambda: discovery.groups(kinds)))

    async def _resources(self, request: web.BaseRequest, parts: list[str]) -> web.StreamResponse:
        """`/api/v1`, `/apis/batch`, `/apis/batch/v1`."""
        kinds, core = self._registry.kinds, request.path.startswith("/api/")
        if len(parts) == (1 if core else 2):
            group, version = ("", parts[0]) if core else (parts[0], parts[1])
            key = ("resources", group, version)
            body = self._cached(key, lambda: discovery.resources(kinds, group, version))
            return await respond(request, body)
        if core or len(parts) != 1:
            raise ApiError.no_such_path()
        body = self._cached(("group", parts[0]), lambda: discovery.group(kinds, parts[0]))
        return await respond(request, body)

    async def _v2(self, request: web.BaseRequest) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        machinery = self._registry.machinery
        if openapi_protobuf.PROTOBUF_MARKER in accept:
            return await self._respond(request, openapi_protobuf.v2(machinery), openapi_protobuf.MEDIA_TYPE)
        if accept and "json" not in accept and "*/*" not in accept:
            raise ApiError.not_acceptable(("application/json",))
        return await self._respond(request, self._cached(("v2",), lambda: openapi.v2(machinery)))

    async def _v3(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        machinery = self._registry.machinery
        if not rest:
            return await respond(request, self._cached(("v3",), lambda: openapi.v3_index(machinery)))
        group, _, version = rest.removeprefix("apis/").removeprefix("api/").rpartition("/")
        body = self._cached(("v3", group, version), lambda: openapi.v3(machinery, group, version))
        return await self._respond(request, body)

    def _cached(self, name: tuple[str, ...], make: Callable[[], Unstructured | None]) -> bytes:
        """A document about the served kinds; 404 if there is none."""
        if self._generation != self._registry.kinds.generation:
            self._cache, self._generation = {}, self._registry.kinds.generation
        body = self._cache.get(name)
        if body is None:
            document = make()
            if document is None:
                raise ApiError.no_such_path()
            body = self._cache[name] = msgspec.json.encode(document)
        return body

    async def _respond(
        self, request: web.BaseRequest, body: bytes, media_type: str = "application/json"
    ) -> web.StreamResponse:
        """With an ETag: 304 if the client has it already."""
        tag = f'"{hashlib.sha256(body).hexdigest()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"Etag": tag})
        return await respond(request, body, media_type, headers={"Etag": tag, "Vary": "Accept"})

    def _paths(self) -> list[str]:
        kinds = self._registry.kinds
        groups = [f"/apis/{group}" for group in kinds.groups()]
        versions = [f"/apis/{group}/{version}" for group in kinds.groups() for version in kinds.versions(group)]
        return sorted((*_PATHS, *groups, *versions))

    def _health(self, name: str, is_verbose: bool) -> web.StreamResponse:
        """Everything is in this process; what can fail is the disk. That is not cured by a restart (livez)."""
        failure = self._registry.store.failure if name != "livez" else ""
        store = f"[-]store failed: {failure}" if failure else "[+]store ok"
        verdict = f"{name} check {'failed' if failure else 'passed'}"
        text = f"[+]ping ok\n{store}\n{verdict}\n" if is_verbose or failure else "ok"
        return _text(text, status=500 if failure else 200)

    def _metrics(self) -> str:
        lines = ["# TYPE apiserver_storage_objects gauge"]
        for storage in self._registry.store.storages():
            lines.append(f'apiserver_storage_objects{{resource="{storage.resource}"}} {len(storage)}')
        lines.append("# TYPE windlass_store_resource_version counter")
        lines.append(f"windlass_store_resource_version {self._registry.store.version}")
        return "\n".join(lines) + "\n"


def version_info() -> Unstructured:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}+windlass.{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"python{platform.python_version()}",
        "platform": f"{platform.system().lower()}/{machine}",
    }


def _wants_aggregated(request: web.BaseRequest) -> bool:
    accepted = request.headers.get("Accept", "").split(",")
    return any(
        f"as={_AGGREGATED}" in media_type and "g=apidiscovery.k8s.io" in media_type and "v=v2beta1" not in media_type
        for media_type in accepted
    )


def _text(body: str, media_type: str = "text/plain; charset=utf-8", status: int = 200) -> web.Response:
    headers = {"Content-Type": media_type, "X-Content-Type-Options": "nosniff"}
    return web.Response(body=body.encode(), headers=headers, status=status)
