"""How a story is told to the embedded cluster and to a real one with kube-controller-manager, in its own namespace.

The tests `test_*against_real` tell them; what a client sees of both must be the same.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.embedded.server.harness import Client
from tests.real_cluster.api import until
from tests.real_cluster.control_plane import ControlPlane

from windlass.embedded.embedded_cluster import EmbeddedCluster
from windlass.model.unstructured import Unstructured

POLICY, APPS, BATCH = "/apis/policy/v1", "/apis/apps/v1", "/apis/batch/v1"
LABELS = {"app": "story"}
MOMENT = "2026-01-01T00:00:00Z"
SECONDS = 120.0
PATIENCE = 30.0
"""On a quiet machine; `until` gives a busy one more."""


class Running:
    """An embedded cluster without nodes, on a loop in a thread."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cluster = self._run(self._start())

    def stop(self) -> None:
        self._run(self._cluster.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)

    async def _start(self) -> EmbeddedCluster:
        cluster = EmbeddedCluster()
        await cluster.start()
        cluster.write_kubeconfig(self.kubeconfig)
        return cluster

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)


_TALES = itertools.count(1)
_NAME = ["default"]
"""The namespace of the story that is being told."""


def space() -> str:
    return f"/namespaces/{_NAME[0]}"


def pods_path() -> str:
    return f"/api/v1{space()}/pods"


@contextmanager
def two_clusters(control_plane: ControlPlane, folder: Path) -> Iterator[tuple[Client, Client]]:
    """Both clusters, with a namespace of the test's own: nothing of an earlier one can get into the story."""
    name = _NAME[0] = f"tale-{next(_TALES)}"
    running = Running(folder)
    try:
        clients = Client(running.kubeconfig), Client(control_plane.kubeconfig)
        for client in clients:
            client.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait(functools.partial(_is_there, client, account))
        yield clients
    finally:
        running.stop()


def _is_there(client: Client, path: str) -> bool:
    return client.get(path).code == 200


def same(both: tuple[Client, Client], story: Callable[[Client], Any]) -> None:
    embedded, real = both
    expected = story(real)
    found = story(embedded)
    assert found == expected, f"embedded: {found}\nreal: {expected}"  # no plugin rewrites asserts in this module


def wait(look: Callable[[], Any]) -> Any:
    return until(look, PATIENCE)


def pods(client: Client) -> list[Unstructured]:
    found = client.get(pods_path(), labelSelector="app=story").ok()["items"]
    return sorted(found, key=lambda pod: _index(pod) + str(pod["metadata"]["name"]))


def _index(pod: Unstructured) -> str:
    return str(pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", ""))


def set_phase(client: Client, pod: Unstructured, phase: str, code: int = 0) -> None:
    ready = "True" if phase == "Running" else "False"
    status: Unstructured = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": MOMENT}],
    }
    if phase in ("Succeeded", "Failed"):
        ended = {"exitCode": code, "reason": "Done", "startedAt": MOMENT, "finishedAt": MOMENT}
        box = {"name": "main", "image": "train", "imageID": "", "ready": False, "restartCount": 0}
        status["containerStatuses"] = [{**box, "state": {"terminated": ended}}]
    client.patch(f"{pods_path()}/{pod['metadata']['name']}/status", {"status": status}).ok()


def told(obj: Unstructured) -> list[tuple[str, ...]]:
    """Conditions, without their times."""
    fields = ("type", "status", "reason", "message")
    found = obj.get("status", {}).get("conditions") or ()
    return sorted(tuple(plain(str(item.get(field, ""))) for field in fields) for item in found)


def plain(text: str) -> str:
    """Without hashes and random endings."""
    text = re.sub(r"\b(story)-[a-z0-9]{8,10}\b", r"\1-HASH", text)
    text = re.sub(r"\b(story-HASH)-[a-z0-9]{5}\b", r"\1-RANDOM", text)
    return re.sub(r"\b(story(?:-\d)?)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1-RANDOM", text)


def shape(pod: Unstructured) -> Unstructured:
    """What a controller decides about a pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    identity = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    hidden = ("pod-template-hash", "controller-revision-hash")
    labels = {key: "HASH" if key in hidden else identity.sub("UID", value) for key, value in metadata["labels"].items()}
    return {
        "name": plain(metadata["name"]),
        "generateName": re.sub(r"-[a-z0-9]{8,10}-$", "-HASH-", metadata.get("generateName", "")),
        "labels": labels,
        "annotations": metadata.get("annotations", {}),
        "finalizers": metadata.get("finalizers", []),
        "owners": [
            {**reference, "uid": "UID", "name": plain(reference["name"])} for reference in metadata["ownerReferences"]
        ],
        "hostname": spec.get("hostname"),
        "subdomain": spec.get("subdomain"),
        "env": spec["containers"][0].get("env"),
        "affinity": spec.get("affinity"),
        "tolerations": spec.get("tolerations"),
        "restartPolicy": spec["restartPolicy"],
    }


def events(client: Client, kind: str) -> set[tuple[str, str, str]]:
    found = client.get(f"/api/v1{space()}/events", fieldSelector=f"involvedObject.kind={kind}").ok()["items"]
    return {(item["type"], item["reason"], plain(item["message"])) for item in found}


def counts(obj: Unstructured, *without: str) -> Unstructured:
    """The numbers and names of a status."""
    return {
        key: value
        for key, value in obj["status"].items()
        if key not in ("conditions", "startTime", "completionTime", *without)
    }


def job_story(spec: Unstructured, act: Callable[[Client], None] | None, last: str) -> Callable[[Client], Any]:
    """A Job, something that happens to it once it has pods, and what it says in the end."""

    def story(client: Client) -> Any:
        path = f"{BATCH}{space()}/jobs"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        if act is not None:
            wait(lambda: pods(client))
            act(client)
        wait(lambda: any(condition[0] == last for condition in told(client.get(f"{path}/story").ok())))
        ended = client.get(f"{path}/story").ok()
        return counts(ended), told(ended)

    return story
