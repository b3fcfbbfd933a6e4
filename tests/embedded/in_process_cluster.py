"""An embedded cluster without a server: store, client and controllers, on a clock that the test advances."""

from __future__ import annotations

from typing import Any

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.controller_loop import Controller
from windlass.embedded.controllers.controller_manager import ControllerManager
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.registry.registry import Registry
from windlass.embedded.store.store import Store
from windlass.model.unstructured import Unstructured

START = 1_800_000_000.0
BOX = {"name": "main", "image": "train"}


class InProcessCluster:
    """`step` syncs everything that is due; `pass_time` does so at every time that something waits for."""

    def __init__(self) -> None:
        self.now = START
        self.verbs = InProcessClient(Registry(Store(), clock=lambda: self.now))
        for name in ("default", "kube-system", "kube-node-lease"):
            self.verbs.create("namespaces", "", {"metadata": {"name": name}})
        self.cache = Cache(self.verbs)
        self.controllers: ControllerManager | None = None

    def run(self, *further: Controller) -> InProcessCluster:
        self.controllers = ControllerManager(self.verbs, self.cache, extra_controllers=further, clock=lambda: self.now)
        self.controllers.start()
        return self.step()

    def step(self) -> InProcessCluster:
        assert self.controllers is not None
        self.controllers.loop.sync_due(self.now)
        return self

    def pass_time(self, seconds: float) -> InProcessCluster:
        """Every delayed piece of work happens at its own moment."""
        assert self.controllers is not None
        end = self.now + seconds
        self.step()
        while (due := self.controllers.loop.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.step()
        self.now = end
        return self.step()

    def pods(self, selector: str = "") -> list[Unstructured]:
        return self.verbs.list("pods", "default", selector)

    def get(self, resource: str, name: str, namespace: str = "default") -> Unstructured:
        return self.verbs.get(resource, namespace, name)

    def apply(self, resource: str, name: str, spec: Unstructured, **metadata: Any) -> Unstructured:
        return self.verbs.create(resource, "default", {"metadata": {"name": name, **metadata}, "spec": spec})

    def set_phase(self, pod: Unstructured, phase: str, **more: Any) -> None:
        """Plays the kubelet."""
        ready = "True" if phase == "Running" else "False"
        moment = self.get("pods", pod["metadata"]["name"])["metadata"]["creationTimestamp"]
        conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": moment}]
        status = {"phase": phase, "conditions": conditions, **more}
        self.verbs.patch("pods", "default", pod["metadata"]["name"], {"status": status}, "status")

    def start_all(self) -> InProcessCluster:
        """Every pod that waits becomes Running and ready; every pod that is to go is gone."""
        for _ in range(50):
            changed = False
            for pod in self.pods():
                if "deletionTimestamp" in pod["metadata"]:
                    self.verbs.delete("pods", "default", pod["metadata"]["name"], grace=0)
                    changed = True
                elif pod["status"]["phase"] == "Pending":
                    self.set_phase(pod, "Running")
                    changed = True
            self.step()
            if not changed:
                return self
        raise AssertionError("no rest")

    def reasons(self, kind: str, name: str) -> list[str]:
        events = self.verbs.list("events", "default")
        found = [e for e in events if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]
        return sorted({event["reason"] for event in found})


def template(labels: dict[str, str], restart: str = "Always", **spec: Any) -> Unstructured:
    return {"metadata": {"labels": labels}, "spec": {"restartPolicy": restart, "containers": [BOX], **spec}}


def conditions(obj: Unstructured) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in obj.get("status", {}).get("conditions") or ()}
