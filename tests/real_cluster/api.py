"""A small synchronous client of an API server, for tests that set a scene and look at what came of it.

Deliberately not the scheduler's own client: a test must not believe the code that it tests. Fed by a kubeconfig.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

Object = dict[str, Any]
_PATIENCE = 120.0
"""Seconds for which 429 is taken for "not yet". To an eviction it is an answer."""
_Value = TypeVar("_Value")

PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """The server said no. `code` is the HTTP status, `reason` Kubernetes' word for it."""

    def __init__(self, code: int, body: bytes, request: str) -> None:
        try:
            status = json.loads(body)
            self.reason, message = status.get("reason", ""), status.get("message", "")
        except (ValueError, AttributeError):
            self.reason, message = "", body.decode(errors="replace")[:500]
        self.code = code
        super().__init__(f"{request}: {code} {self.reason}: {message}")


class Api:
    """Requests by path; `create` and `path_of` find the path of an object by themselves. Safe to use from threads."""

    def __init__(self, kubeconfig: Path, connections: int = 16) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self.url = cluster["server"]
        context = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=_inline(cluster, "certificate-authority-data")
        )
        if "client-certificate" in user:
            context.load_cert_chain(user["client-certificate"], user["client-key"])
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._pool = urllib3.PoolManager(
            maxsize=connections, block=False, ssl_context=context, headers=headers, retries=False
        )
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Object:
        """One request; the decoded answer, or `ApiError`."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._pool.request(
                method,
                self.url + path,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self._pool.headers, "Content-Type": content_type, "Accept": "application/json"},
                timeout=urllib3.Timeout(connect=5, read=60),
            )
            if answer.status != 429 or path.endswith("/eviction") or time.monotonic() > deadline:
                break
            time.sleep(0.2)  # a kind whose storage is being set up, say
        if answer.status >= 400:
            raise ApiError(answer.status, answer.data, f"{method} {path}")
        is_text = "application/json" not in answer.headers.get("Content-Type", "")  # a log, which may look like JSON
        return {"text": answer.data.decode()} if is_text else dict(json.loads(answer.data))

    def get(self, path: str, **query: object) -> Object:
        return self.request("GET", path + ("?" + urlencode(query) if query else ""))

    def items(self, path: str, **query: object) -> list[Object]:
        """The items of a list, all of them at once."""
        return list(self.get(path, **query).get("items") or ())

    def post(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.request("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: object, kind: str = "merge") -> Object:
        return self.request("PATCH", path, body, PATCHES[kind])

    def delete(self, path: str, **options: object) -> Object:
        """Delete; `gracePeriodSeconds=0` and the like go into DeleteOptions."""
        return self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except ApiError as problem:
            if problem.code == 404:
                return False
            raise
        return True

    def create(self, *objects: Mapping[str, Any]) -> list[Object]:
        """Create objects, and write their status too where they have one (the server drops it otherwise)."""
        made = []
        for each in objects:
            collection, path = self.collection_of(each), self.path_of(each)
            answer = self.post(collection, each)
            if each.get("status"):
                answer = self.patch(f"{path}/status", {"status": each["status"]})
            made.append(answer)
        return made

    def collection_of(self, each: Mapping[str, Any]) -> str:
        """The path that lists objects of this one's kind, in its namespace."""
        version = each["apiVersion"]
        resource, namespaced = self._resource(version, each["kind"])
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        namespace = each["metadata"].get("namespace", "default")
        return f"{root}/namespaces/{namespace}/{resource}" if namespaced else f"{root}/{resource}"

    def path_of(self, each: Mapping[str, Any]) -> str:
        return f"{self.collection_of(each)}/{each['metadata']['name']}"

    def watch(self, path: str, seconds: int = 300, **query: object) -> Iterator[Object]:
        """Events of a watch until the server ends it."""
        asked = urlencode({"watch": "true", "timeoutSeconds": seconds, **query})
        answer = self._pool.request(
            "GET",
            f"{self.url}{path}?{asked}",
            headers={**self._pool.headers, "Accept": "application/json"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=seconds + 10),
        )
        if answer.status >= 400:
            raise ApiError(answer.status, answer.data, f"WATCH {path}")
        rest = b""
        try:
            for chunk in answer.stream(1 << 16, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            answer.close()

    def healthy(self, path: str = "/readyz") -> bool:
        try:
            self.get(path)
        except (ApiError, urllib3.exceptions.HTTPError, OSError):
            return False
        return True

    def _resource(self, version: str, kind: str) -> tuple[str, bool]:
        if (version, kind) not in self._paths:
            root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
            for found in self.get(root)["resources"]:
                if "/" not in found["name"]:
                    self._paths[version, found["kind"]] = (found["name"], found["namespaced"])
        return self._paths[version, kind]


def _inline(cluster: Mapping[str, str], field: str) -> str | None:
    return base64.b64decode(cluster[field]).decode() if field in cluster else None


_BUSY = 4
"""How many times slower than a quiet machine a busy one may be. Only a test that fails waits so long."""


def until(look: Callable[[], _Value], seconds: float = 30.0, what: str | Callable[[], str] = "") -> _Value:
    """What `look` returns once that is true; a failed test if it isn't within `seconds` of a quiet machine.
    `what` as a function is called when that time is over: a log says then what happened until then."""
    seconds *= _BUSY
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {(what() if callable(what) else what) or look}")
        time.sleep(0.05)
