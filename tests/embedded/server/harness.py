"""The embedded API server in a thread of its own, and a client that shows answers as they are.

The client speaks to any API server by its kubeconfig, so that a test can put the same questions to a real one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

from windlass.embedded.bootstrap_roles import bootstrap_roles
from windlass.embedded.controllers.role_aggregation import RESOURCE as ROLES
from windlass.embedded.controllers.role_aggregation import aggregated_rules
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.pki import Identity, make_identity, write_kubeconfig
from windlass.embedded.registry.registry import Registry
from windlass.embedded.runtime.kubelet_api import KubeletApi
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.store import Store
from windlass.model.unstructured import Unstructured

_Value = TypeVar("_Value")

JSON = "application/json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PATIENCE = 120.0


class Answer:
    def __init__(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.code, self.data, self.headers = code, data, headers

    @property
    def json(self) -> Unstructured:
        return dict(json.loads(self.data))

    @property
    def message(self) -> str:
        return str(self.json.get("message", ""))

    def ok(self) -> Unstructured:
        assert self.code < 300, f"{self.code}: {self.data.decode(errors='replace')[:500]}"
        return self.json


class Client:
    """Requests by path; every answer as it came, whatever its code."""

    def __init__(self, kubeconfig: Path, token: str | None = None) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self.url = str(cluster["server"])
        if "certificate-authority" in cluster:
            context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        else:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            context = ssl.create_default_context(cadata=authority)
        if "client-certificate" in user:
            context.load_cert_chain(user["client-certificate"], user["client-key"])
        given = user.get("token") if token is None else token
        self.headers = {"Authorization": f"Bearer {given}"} if given else {}
        self.pool = urllib3.PoolManager(maxsize=32, block=False, ssl_context=context, retries=False)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        headers: dict[str, str] | None = None,
        **query: object,
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {
            **self.headers,
            "Accept": JSON,
            **({"Content-Type": content_type} if data is not None else {}),
        }
        asked = f"?{_encoded(query)}" if query else ""
        answer = self.pool.request(
            method,
            f"{self.url}{path}{asked}",
            body=data,
            headers={**sent, **(headers or {})},
            timeout=urllib3.Timeout(connect=PATIENCE, read=PATIENCE),
        )
        return Answer(answer.status, answer.data, dict(answer.headers))

    def get(self, path: str, **query: object) -> Answer:
        return self.send("GET", path, **query)

    def post(self, path: str, body: object, **query: object) -> Answer:
        return self.send("POST", path, body, **query)

    def put(self, path: str, body: object, **query: object) -> Answer:
        return self.send("PUT", path, body, **query)

    def patch(self, path: str, body: object, content_type: str = MERGE, **query: object) -> Answer:
        return self.send("PATCH", path, body, content_type, **query)

    def delete(self, path: str, body: object = None, **query: object) -> Answer:
        return self.send("DELETE", path, body, **query)

    @contextmanager
    def watch(self, path: str, accept: str = JSON, **query: object) -> Iterator[Iterator[Unstructured]]:
        """The events of a watch. Ends with the block, or after the server's time."""
        asked = _encoded({"watch": "true", "timeoutSeconds": 100, **query})
        answer = self.pool.request(
            "GET",
            f"{self.url}{path}?{asked}",
            headers={**self.headers, "Accept": accept},
            preload_content=False,
            timeout=urllib3.Timeout(connect=PATIENCE, read=PATIENCE),
        )
        try:
            assert answer.status == 200, answer.data
            yield _lines(answer)
        finally:
            answer.close()
            answer.release_conn()


def _encoded(query: dict[str, object]) -> str:
    return urlencode({key: value for key, value in query.items() if value is not None})


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[Unstructured]:
    rest = b""
    for chunk in answer.stream(1 << 16, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def with_node(client: Client, name: str = "n1") -> Client:
    """The same, with a node that pods can be on: a real cluster deletes pods whose node has been away for a while."""
    answer = client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    assert answer.code in (201, 409), answer.data
    return client


class Served:
    """A server that runs in a thread until `stop`."""

    def __init__(self, folder: Path, runtime: KubeletApi | None = None, history: int | None = None) -> None:
        self.folder, self._runtime, self._history = folder, runtime, history
        self.identity: Identity = make_identity()
        self.kubeconfig = folder / "kubeconfig"
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._end: asyncio.Event
        self.verbs: InProcessClient
        self.server: ApiServer

    def start(self) -> Served:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the server did not start"
        self.client = Client(self.kubeconfig)
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._live())
        self._loop.close()

    async def _live(self) -> None:
        self._end = asyncio.Event()
        store = Store() if self._history is None else Store(max_changes=self._history)
        registry = Registry(store)
        self.verbs = InProcessClient(registry)
        for name in NAMESPACES:
            self.verbs.create("namespaces", "", {"metadata": {"name": name}})
        self.verbs.create("serviceaccounts", "default", {"metadata": {"name": "default"}})
        for resource, role in bootstrap_roles():
            self.verbs.create(resource, "", role)
        for name in ("view", "edit", "admin"):  # no controller runs here
            roles = self.verbs.list(ROLES)
            rules = aggregated_rules(next(role for role in roles if role["metadata"]["name"] == name), roles)
            self.verbs.patch(ROLES, "", name, {"rules": rules})
        self.server = ApiServer(registry, self.identity, kubelet_api=self._runtime)
        await self.server.start()
        write_kubeconfig(self.kubeconfig, self.server.url, self.identity)
        self._ready.set()
        await self._end.wait()
        await self.server.stop()

    def call(self, what: Callable[[], _Value]) -> _Value:
        """Do something on the server's loop, e.g. with `verbs`."""

        async def there() -> _Value:
            return what()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)
