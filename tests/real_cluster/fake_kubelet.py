"""Plays the kubelet for nodes that are only objects: bound pods run, deleted pods go away.

Started by tests beside a control plane without real nodes. Follows pods by a watch of its own and writes only what a
kubelet writes: a pod's status, and the final delete.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from tests.real_cluster.api import Api, ApiError, Object

Refuse = Callable[[Object], str]
"""Given a pod that was just bound: the reason why this kubelet won't have it (`OutOfcpu`), or ''."""


def node(
    name: str,
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Node that is Ready and has room: 8 CPUs, 32 GiB, 110 pods, and what `resources` says."""
    room = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110", **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }


class FakeKubelet:
    """All fake nodes' kubelets in one thread. `with FakeKubelet(api): …`"""

    def __init__(self, api: Api, refuse: Refuse = lambda pod: "") -> None:
        self.api = api
        self.refuse = refuse
        self.problems: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="fake-kubelet")

    def __enter__(self) -> FakeKubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()  # the thread sees it at its next event, and serves nothing any more

    def finish(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """Let a running pod end, well or not (`Failed`)."""
        self.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": {"phase": phase}})

    def _follow(self) -> None:
        while not self._stopped.is_set():
            # An API server that is away is part of many tests: come back until it is there again.
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                self._list_and_watch()
            self._stopped.wait(0.1)

    def _list_and_watch(self) -> None:
        listed = self.api.get("/api/v1/pods")
        for pod in listed.get("items") or ():
            self._serve(pod)
        version = listed["metadata"]["resourceVersion"]
        while not self._stopped.is_set():
            for event in self.api.watch("/api/v1/pods", 3, resourceVersion=version, allowWatchBookmarks="true"):
                if self._stopped.is_set() or event["type"] == "ERROR":
                    return
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._serve(event["object"])

    def _serve(self, pod: Object) -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            return
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            if "deletionTimestamp" in meta:
                self.api.delete(path, gracePeriodSeconds=0, preconditions={"uid": meta["uid"]})
            elif pod["status"].get("phase") == "Pending":
                change = {"metadata": {"uid": meta["uid"]}, "status": self._status(pod)}
                self.api.patch(f"{path}/status", change, "strategic")
        except ApiError as problem:
            if problem.code not in (404, 409):
                self.problems.append(str(problem))

    def _status(self, pod: Object) -> Object:
        reason = self.refuse(pod)
        if reason:
            return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {reason}"}
        ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
        return {"phase": "Running", "conditions": ready, "startTime": pod["metadata"]["creationTimestamp"]}
