"""A small API server for tests of `kube` and `scheduler`: list, watch, patch, bind and evict, with faults on demand.

It keeps objects as plain trees and a history of events; what it doesn't check, the real API server in `tests/live`
does.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.model.unstructured import Unstructured

CORE = ("pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims", "events")
BUILT_IN = {
    "batch/v1": ("jobs",),
    "policy/v1": ("poddisruptionbudgets",),
    "scheduling.k8s.io/v1": ("priorityclasses",),
    "storage.k8s.io/v1": ("storageclasses", "csinodes", "volumeattachments"),
    "events.k8s.io/v1": ("events",),
    "coordination.k8s.io/v1": ("leases",),
}


class FakeServer:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Unstructured]] = {}
        """Plural → key → object."""
        self.groups: dict[str, tuple[str, ...]] = dict(BUILT_IN)
        self.history: list[tuple[int, str, str, Unstructured]] = []
        """resourceVersion, plural, type, object."""
        self.version = 100
        self.compacted = 0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[tuple[str, str, Any]] = []
        self.faults: list[Callable[[web.Request], web.StreamResponse | None]] = []
        """Asked before each request; an answer of theirs is the answer."""
        self.hang_up = asyncio.Event()
        """Set: all watches end."""
        self._changed = asyncio.Condition()
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
        async with self._changed:
            self._changed.notify_all()
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def access(self) -> ClientConfig:
        return ClientConfig(f"http://127.0.0.1:{self.port}", StaticCredentials())

    # What tests do

    async def put(self, plural: str, tree: Unstructured) -> Unstructured:
        made = copy.deepcopy(tree)
        key = key_of(made)
        self.version += 1
        meta = made.setdefault("metadata", {})
        known = self.objects.setdefault(plural, {}).get(key)
        meta.setdefault("uid", known["metadata"]["uid"] if known else f"uid-{self.version}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta["resourceVersion"] = str(self.version)
        self.objects[plural][key] = made
        await self._tell(plural, "MODIFIED" if known else "ADDED", made)
        return made

    async def delete(self, plural: str, key: str) -> None:
        gone = copy.deepcopy(self.objects[plural].pop(key))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        await self._tell(plural, "DELETED", gone)

    def compact(self) -> None:
        """Watches from before now get 410."""
        self.compacted = self.version

    def get(self, plural: str, key: str) -> Unstructured:
        return self.objects[plural][key]

    async def _tell(self, plural: str, kind: str, tree: Unstructured) -> None:
        self.history.append((self.version, plural, kind, copy.deepcopy(tree)))
        async with self._changed:
            self._changed.notify_all()

    # HTTP

    @web.middleware
    async def _fault(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        return await handler(request)  # type: ignore[no-any-return]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts == ["apis"]:
            return self._group_list()
        base = 2 if parts[0] == "api" else 3
        version = "/".join(parts[1:base])
        if len(parts) == base:
            return self._resource_list(version)
        rest = parts[base:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        if plural not in (CORE if version == "v1" else self.groups.get(version, ())):
            return refusal(404, "the server could not find the requested resource")
        return await self._resource(
            request, plural, f"{namespace}/{name}" if namespace else name, subresource
        )

    async def _resource(
        self, request: web.Request, plural: str, key: str, subresource: str
    ) -> web.StreamResponse:
        store = self.objects.setdefault(plural, {})
        single = bool(key) and not key.endswith("/")
        if request.method == "GET" and not single:
            return await (self._watch if "watch" in request.query else self._list)(request, plural)
        body = json.loads(await request.read() or b"null")
        self.bodies.append((request.method, request.path, body))
        if request.method == "POST" and subresource == "binding":
            return await self._bind(key, body)
        if request.method == "POST" and subresource == "eviction":
            return await self._evict(request, key)
        if request.method == "POST":
            namespace = key.rstrip("/")
            if namespace:
                body["metadata"]["namespace"] = namespace
            if key_of(body) in store:
                return refusal(409, "already exists", "AlreadyExists")
            return web.json_response(await self.put(plural, body), status=201)
        if key not in store:
            return refusal(404, f"{plural} {key} not found")
        if request.method == "PATCH":
            merged = merge(copy.deepcopy(store[key]), body)
            return web.json_response(await self.put(plural, merged))
        if request.method == "PUT":
            sent = body["metadata"].get("resourceVersion")
            if sent and sent != store[key]["metadata"]["resourceVersion"]:
                return refusal(409, "the object has been modified", "Conflict")
            return web.json_response(await self.put(plural, body))
        return web.json_response(store[key])

    async def _bind(self, key: str, body: Unstructured) -> web.StreamResponse:
        pod = self.objects["pods"].get(key)
        if pod is None:
            return refusal(404, f'pods "{key}" not found', "NotFound")
        if pod["spec"].get("nodeName"):
            return refusal(
                409, f"pod {key} is already assigned to node {pod['spec']['nodeName']}", "Conflict"
            )
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = body["target"]["name"]
        given = (body.get("metadata") or {}).get("annotations") or {}
        bound["metadata"].setdefault("annotations", {}).update(given)
        await self.put("pods", bound)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _evict(self, request: web.Request, key: str) -> web.StreamResponse:
        pod = self.objects["pods"].get(key)
        if pod is None:
            return refusal(404, "not found", "NotFound")
        if "dryRun" not in request.query:
            leaving = copy.deepcopy(pod)
            leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            await self.put("pods", leaving)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _list(self, request: web.Request, plural: str) -> web.StreamResponse:
        items = [self.objects[plural][key] for key in sorted(self.objects.get(plural, {}))]
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0))
        end = start + limit if limit else len(items)
        token = str(end) if end < len(items) else ""
        meta = {"resourceVersion": str(self.version), "continue": token}
        return web.json_response({"metadata": meta, "items": items[start:end]})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self.compacted:
            status = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": "too old resource version",
            }
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return response
        at = 0
        while not self.hang_up.is_set():
            for version, one, kind, tree in self.history[at:]:
                if one == plural and version > since:
                    await response.write(json.dumps({"type": kind, "object": tree}).encode() + b"\n")
            at = len(self.history)
            async with self._changed:
                if at == len(self.history) and not self.hang_up.is_set():
                    await self._changed.wait()
        return response

    def _group_list(self) -> web.StreamResponse:
        versions: dict[str, list[str]] = {}
        for one in self.groups:
            group, _, version = one.partition("/")
            versions.setdefault(group, []).append(version)
        return web.json_response(
            {"groups": [{"name": g, "versions": [{"version": v} for v in vs]} for g, vs in versions.items()]}
        )

    def _resource_list(self, version: str) -> web.StreamResponse:
        plurals = CORE if version == "v1" else self.groups.get(version)
        if plurals is None:
            return refusal(404, "not found")
        return web.json_response({"resources": [{"name": one, "kind": ""} for one in plurals]})


def refusal(code: int, message: str, reason: str = "", retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason}
    return web.json_response(body, status=code, headers=headers)


def merge(tree: Unstructured, patch: Unstructured) -> Unstructured:
    """Enough of a merge patch; lists of conditions are merged by type, as the strategic one does."""
    for key, value in patch.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            tree[key] = merge(tree.get(key) or {}, value)
        elif key == "conditions":
            kept = {one["type"]: one for one in tree.get(key, [])}
            kept.update({one["type"]: one for one in value})
            tree[key] = list(kept.values())
        else:
            tree[key] = value
    return tree


def key_of(tree: Unstructured) -> str:
    meta = tree["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
