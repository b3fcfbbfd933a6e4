"""A cluster of one real node for `kubelet.py`: control plane, kubelet, containerd, and the agent from its image.

The programs come from a folder that `kubelet.py --prepare` packs; everything is started and ended as the tests do it
(`tests/real_cluster`), but socket, CDI files and the kubelet's folder are where a user's node has them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.real_cluster.api import Api, Object
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.node import RealNode, real_node_on
from tests.real_cluster.service_proxy import service_proxy

AGENTS = "/api/v1/namespaces/windlass-node/pods"
PODS = "/api/v1/namespaces/default/pods"
PROGRAM_IMAGE = "docker.io/library/windlass-vector-add:1"
NODE = "real-node"
MIB = 1 << 20


class Failed(Exception):
    """What a section wanted to see was not so."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def wait_until(look: Callable[[], Any], seconds: float, what: str, told: Callable[[], str] = lambda: "") -> Any:
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        require(time.monotonic() < deadline, f"not within {seconds:g} s: {what}. {told()}")
        time.sleep(0.1)
    return seen


def smi(*arguments: str, attempts: int = 1) -> str:
    """More than one attempt where the exporter may be sampling, in whose moments no instance can be destroyed."""
    for left in reversed(range(attempts)):
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
        time.sleep(0.5 if left else 0)
    raise Failed(f"nvidia-smi {' '.join(arguments)}: {done.stdout}{done.stderr}")


def running_programs(name: str) -> list[int]:
    """Processes of a program whose name begins so; the kernel keeps 15 characters. One that has ended has no words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().startswith(name[:15]) and (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


class NodeLab:
    """The node, its agent and the pods of a section."""

    def __init__(self, plane: ControlPlane, node: RealNode) -> None:
        self.plane, self.node = plane, node
        self.api: Api = plane.api

    # ---- the agent

    def apply(self, objects: Sequence[Object]) -> None:
        """Objects are made, or given a new spec or new data where they are there."""
        for each in objects:
            self.api.patch(f"{self.api.path_of(each)}?fieldManager=lab&force=true", each, "apply")

    def agent(self) -> Object:
        """The pod of the agent that is not on its way out; an empty object if there is none."""
        pods = self.api.items(AGENTS, labelSelector="app.kubernetes.io/component=node")
        return next((pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), {})

    def agent_log(self) -> str:
        name = self.agent().get("metadata", {}).get("name", "")
        with contextlib.suppress(Exception):
            return str(self.api.get(f"{AGENTS}/{name}/log")["text"])
        return ""

    def agent_state(self) -> str:
        """What there is to know of an agent that doesn't do what it should."""
        statuses = self.agent().get("status", {}).get("containerStatuses", [])
        log = list(dict.fromkeys(line.partition("Z ")[2] for line in self.agent_log().splitlines()))
        return f"{[each.get('state') for each in statuses]} {log[-25:]} {self.events('windlass-node')[-8:]}"

    def agent_processes(self, name: str) -> list[int]:
        """Processes of the agent by name: `plugin`, `sidecar`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"windlass.node.child\0{name}" in (folder / "cmdline").read_text(errors="replace"):
                    found.append(int(folder.name))
        return found

    def agent_memory(self) -> dict[str, float]:
        """MiB: RSS of the processes added up, and what the container's cgroup counts, now and at its highest."""
        (plugin,) = self.agent_processes("plugin")
        line = Path(f"/proc/{plugin}/cgroup").read_text().splitlines()[-1]
        folder = Path("/sys/fs/cgroup") / line.rpartition(":")[2].lstrip("/")
        resident = sum(_rss(pid) for name in ("plugin", "sidecar") for pid in self.agent_processes(name))
        numbers = {"processes": str(resident)}
        if (folder / "memory.peak").exists():  # cgroup v2
            stat = dict(each.split() for each in (folder / "memory.stat").read_text().splitlines())
            numbers |= {name: stat[name] for name in ("anon", "file", "kernel")}
            numbers |= {name: (folder / f"memory.{name}").read_text() for name in ("current", "peak")}
        return {name: round(int(value) / MIB, 1) for name, value in numbers.items()}

    def metrics(self) -> str:
        address = self.agent()["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9400/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    # ---- the node

    def allocatable(self, resource: str) -> int:
        return int(self.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"].get(resource, -1))

    def wait_allocatable(self, resource: str, count: int, seconds: float = 60) -> None:
        what = f"{count} {resource} allocatable"
        wait_until(lambda: self.allocatable(resource) == count, seconds, what, self.agent_state)

    def labels(self) -> dict[str, str]:
        return dict(self.api.get(f"/api/v1/nodes/{NODE}")["metadata"].get("labels") or {})

    def annotations(self) -> dict[str, str]:
        return dict(self.api.get(f"/api/v1/nodes/{NODE}")["metadata"].get("annotations") or {})

    def label(self, name: str, value: str | None) -> None:
        """A label of NVIDIA's; None takes it away."""
        self.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {f"nvidia.com/{name}": value}}})

    def events(self, namespace: str = "default") -> list[str]:
        events = self.api.items(f"/api/v1/namespaces/{namespace}/events")
        return [f"{event['reason']}: {event.get('message', '')}" for event in events]

    # ---- pods

    def run(self, name: str, *arguments: str, resource: str = "nvidia.com/gpu", user: int = 0, gpus: int = 1) -> None:
        """A pod of the program on the node, with so many devices."""
        container: Object = {
            "name": "main",
            "image": PROGRAM_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/vector-add", *arguments],
            "securityContext": {"runAsUser": user, "allowPrivilegeEscalation": False},
        }
        if gpus:
            container["resources"] = {"limits": {resource: str(gpus)}}
        spec = {
            "containers": [container],
            "nodeName": NODE,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        }
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def phase(self, name: str) -> str:
        return str(self.api.get(f"{PODS}/{name}")["status"].get("phase"))

    def log(self, name: str) -> str:
        with contextlib.suppress(Exception):
            return str(self.api.get(f"{PODS}/{name}/log")["text"]).strip()
        return ""

    def speaks(self, name: str, seconds: float = 60) -> str:
        """The first line of a pod that goes on."""
        wait_until(lambda: self.log(name), seconds, f"{name} says something", lambda: self._told(name))
        return self.log(name).splitlines()[0]

    def ends(self, name: str, seconds: float = 60) -> tuple[str, str]:
        """Phase and output of a pod that has ended; it is deleted."""
        ended = ("Succeeded", "Failed")
        wait_until(lambda: self.phase(name) in ended, seconds, f"{name} ends", lambda: self._told(name))
        status = self.api.get(f"{PODS}/{name}")["status"]
        found = self.phase(name), self.log(name) or str(status.get("message", ""))
        self.delete(name)
        return found

    def delete(self, name: str) -> None:
        self.api.delete(f"{PODS}/{name}", gracePeriodSeconds=1)
        wait_until(lambda: not self.api.exists(f"{PODS}/{name}"), 60, f"{name} is gone")

    def delete_all(self) -> None:
        for pod in self.api.items(PODS):
            with contextlib.suppress(Exception):
                self.delete(pod["metadata"]["name"])

    def _told(self, name: str) -> str:
        with contextlib.suppress(Exception):
            status = self.api.get(f"{PODS}/{name}")["status"]
            lines = "; ".join(self.events()[-8:])
            return f"{status.get('phase')} {status.get('message', '')} {status.get('containerStatuses')} {lines}"
        return ""


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextlib.contextmanager
def node_lab(folder: Path, programs: Path | None, images: Sequence[Path]) -> Iterator[NodeLab]:
    """The cluster with its images, without an agent. `programs` is the folder of the cluster's programs; None for those
    that the tests have built."""
    environment = dict(os.environ)
    if programs is not None:
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        environment["KUBEBUILDER_ASSETS"] = str(programs)
        _put_network_plugins(programs)
    plane = ControlPlane(Binaries(environment), folder)
    plane.etcd.service.start()
    try:
        with _shared_mounts(), plane.service_accounts(), service_proxy(plane), _node(plane) as node:
            for image in images:
                node.import_image(image)
            scheduler = plane.scheduler()
            scheduler.start()
            try:
                yield NodeLab(plane, node)
            finally:
                scheduler.stop()
    finally:
        plane.stop()


@contextlib.contextmanager
def _node(plane: ControlPlane) -> Iterator[RealNode]:
    """Behind the API server: controllers that find none wait for a minute before they try again."""
    plane.controllers.start()
    with real_node_on(plane, installed=True) as node:
        yield node


@contextlib.contextmanager
def _shared_mounts() -> Iterator[None]:
    """As systemd has them: without it, no pod may ask to see what the host mounts later."""
    (root,) = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    if "shared:" in root:
        yield
        return
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def _put_network_plugins(programs: Path) -> None:
    """Where `RealNode` looks for them, on a machine that has none."""
    for name in ("bridge", "host-local", "loopback"):
        place = Path("/usr/lib/cni", name)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(programs / name)


def read_objects(file: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]
