"""The sidecar's API client: its own Node, the pods on it, Events, and its NodeFeature.

Plain blocking calls over one connection, since an agent on every node has to be small; server and credentials come
from `kube.client_config`. Every failure is a `ClusterUnreachable` with the server's message, or a `NotFound`; the
caller decides what it means.
"""

from __future__ import annotations

import http.client
import json
import math
import ssl
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from windlass.kube.client_config import ClientConfig
from windlass.kube.freeze import REFRESH_SECONDS, FreezeState, decode_freeze, freeze_path, is_stopped_by_freeze
from windlass.kube.request import JSON, MERGE_PATCH
from windlass.kube.tls import tls_context
from windlass.model.errors import ClusterUnreachable
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL
from windlass.model.times import format_timestamp

REQUEST_SECONDS = 15.0
WATCH_SECONDS = 300
Result = TypeVar("Result")


class NotFound(ClusterUnreachable):
    """There is no such object."""


class NodeApi:
    def __init__(self, access: ClientConfig, node: str, freeze_namespace: str = "") -> None:
        """`freeze_namespace`: where the ConfigMap of `windlass freeze` is; empty if this client is not a role's."""
        self.node = node
        self.access = access
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._freeze_namespace, self._freeze = freeze_namespace, FreezeState()
        self._freeze_read_at = -math.inf

    def get_node(self) -> dict[str, Any]:
        return self.request("GET", f"/api/v1/nodes/{self.node}")

    def patch_node(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, str | None] | None = None,
    ) -> dict[str, Any]:
        metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        body = {"metadata": {name: value for name, value in metadata.items() if value}}
        return self.request("PATCH", f"/api/v1/nodes/{self.node}", body, MERGE_PATCH)

    def list_pods(self) -> list[dict[str, Any]]:
        """The pods that are bound to this node."""
        query = urlencode({"fieldSelector": f"spec.nodeName={self.node}", "resourceVersion": "0"})
        found: list[dict[str, Any]] = self.request("GET", f"/api/v1/pods?{query}").get("items") or []
        return found

    def list_resource_slices(self, driver: str) -> list[dict[str, Any]]:
        """What a DRA driver offers on this node."""
        query = urlencode({"fieldSelector": f"spec.nodeName={self.node},spec.driver={driver}"})
        for version in ("v1", "v1beta2", "v1beta1"):
            try:
                answer = self.request("GET", f"/apis/resource.k8s.io/{version}/resourceslices?{query}")
            except NotFound:
                continue
            found: list[dict[str, Any]] = answer.get("items") or []
            return found
        return []

    def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        body = {"metadata": {"annotations": dict(annotations)}}
        self.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body, MERGE_PATCH)

    def create_event(self, *, reason: str, message: str, warning: bool, now: float, uid: str = "") -> None:
        """An Event on the node, in the namespace `default`, where Kubernetes keeps Events of nodes."""
        stamp = format_timestamp(int(now))
        node = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid or self.node}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.node}.", "namespace": "default"},
            "involvedObject": node,
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "windlass-node", "host": self.node},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        self.request("POST", "/api/v1/namespaces/default/events", body)

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        return self.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def apply_node_feature(
        self, namespace: str, labels: Mapping[str, str], owners: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Creates or replaces our NodeFeature object (NFD); it is garbage-collected with its owners."""
        name = f"nvidia-features-for-{self.node}"
        path = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{namespace}/nodefeatures"
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "labels": {"nfd.node.kubernetes.io/node-name": self.node, APP_MANAGED_BY_LABEL: "windlass"},
        }
        if owners:
            metadata["ownerReferences"] = [dict(owner) for owner in owners]
        body = {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeature",
            "metadata": metadata,
            "spec": {"labels": dict(labels), "features": {"flags": {}, "attributes": {}, "instances": {}}},
        }
        try:
            found = self.request("GET", f"{path}/{name}")
        except NotFound:
            self.request("POST", path, body)
            return
        is_owned = found["metadata"].get("ownerReferences") == metadata.get("ownerReferences")
        if found.get("spec") != body["spec"] or not is_owned:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
            self.request("PUT", f"{path}/{name}", body)

    def watch_node(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The node now, and again after each change, until the server ends the watch."""
        return self._watch("/api/v1/nodes", f"metadata.name={self.node}")

    def watch_pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The node's pods now, and each change of one, until the server ends the watch."""
        return self._watch("/api/v1/pods", f"spec.nodeName={self.node}")

    def _watch(self, path: str, selector: str) -> Iterator[tuple[str, dict[str, Any]]]:
        listed = self.request("GET", f"{path}?{urlencode({'fieldSelector': selector})}")
        yield "LISTED", listed
        query = {"watch": "1", "fieldSelector": selector, "timeoutSeconds": str(WATCH_SECONDS)}
        query["resourceVersion"] = listed["metadata"]["resourceVersion"]
        connection = self._connect(timeout=WATCH_SECONDS + REQUEST_SECONDS)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status != 200:
                raise ClusterUnreachable(f"the watch on {path}: {answer.status} {answer.reason}")
            while line := answer.readline():
                event = msgspec.json.decode(line)
                if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
                    return
                yield event["type"], event["object"]
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise ClusterUnreachable(f"the watch on {path}: {error}") from None
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> dict[str, Any]:
        """The decoded answer. Tries once more if a kept connection had died."""
        if self._freeze_namespace and is_stopped_by_freeze(method, path):
            self._check_freeze(f"{method} {path.partition('?')[0]}")
        text = self._request(method, path, body, content_type)
        found: dict[str, Any] = msgspec.json.decode(text) if text else {}
        return found

    def _check_freeze(self, request: str) -> None:
        """Raises if writes are frozen, and if that can't be read."""
        now = time.monotonic()
        if now - self._freeze_read_at > REFRESH_SECONDS:
            try:
                self._freeze = decode_freeze(self._request("GET", freeze_path(self._freeze_namespace)))
            except NotFound:
                self._freeze = FreezeState()
            self._freeze_read_at = now
        if self._freeze.is_frozen:
            raise ClusterUnreachable(f"{request} was not sent: writes are {self._freeze}")

    def _request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> bytes:
        with self._lock:
            for attempt in (1, 2):
                fresh = self._connection is None
                try:
                    return self._send(method, path, body, content_type)
                except (OSError, http.client.HTTPException) as error:
                    self._close_connection()
                    if fresh or attempt == 2:
                        raise ClusterUnreachable(f"{self.access.server}: {error}") from None
        raise AssertionError("the second attempt returns or raises")

    def _send(self, method: str, path: str, body: Any, content_type: str) -> bytes:
        if self._connection is None:
            self._connection = self._connect(REQUEST_SECONDS)
        headers = {**self._headers(), "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status < 300:
            return text
        message = _error_message(text) or answer.reason
        kind = NotFound if answer.status == 404 else ClusterUnreachable
        raise kind(f"{method} {path.partition('?')[0]}: {answer.status} {message}")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        server = urlsplit(self.access.server)
        host, port = server.hostname or "", server.port
        if server.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=timeout)
        identity = _run_coroutine(self.access.credentials.client_certificate())
        context: ssl.SSLContext = tls_context(self.access.ca, self.access.insecure, identity)
        return http.client.HTTPSConnection(host, port or 443, timeout=timeout, context=context)

    def _headers(self) -> dict[str, str]:
        headers = _run_coroutine(self.access.credentials.headers())
        return {"Accept": JSON, "User-Agent": "windlass-node", **headers, **dict(self.access.headers)}

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _run_coroutine(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine, without an event loop if possible: asyncio would cost two megabytes.

    Most credentials never wait. Those that run a program do, and they have imported asyncio already.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        result: Result = asyncio.run(work)
        return result
    try:
        work.send(None)
    except StopIteration as done:
        value: Result = done.value
        return value
    raise AssertionError("a coroutine that waits has imported asyncio")


def _error_message(text: bytes) -> str:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text[:200].decode(errors="replace")
    return str(found.get("message", "")) if isinstance(found, dict) else ""
