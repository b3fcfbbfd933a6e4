"""A random cluster on the API server: nodes, namespaces, storage, pods that run, and pods that look for a node.

Drawn and created here, read back as the server understood it (defaults filled in, selectors merged), and handed to
kube-scheduler by its informers and to the engine by `engine_view`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.real_cluster.api import Api, ApiError, Object
from tests.real_cluster.draws import Draws
from tests.real_cluster.storage_draws import CLAIMS, attachments, claims, csi_nodes, storage_classes, volumes

LISTS = (
    ("/api/v1/nodes", "Node", "v1"),
    ("/api/v1/namespaces", "Namespace", "v1"),
    ("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", "storage.k8s.io/v1"),
    ("/api/v1/persistentvolumes", "PersistentVolume", "v1"),
    ("/api/v1/persistentvolumeclaims", "PersistentVolumeClaim", "v1"),
    ("/apis/storage.k8s.io/v1/csinodes", "CSINode", "storage.k8s.io/v1"),
    ("/apis/storage.k8s.io/v1/volumeattachments", "VolumeAttachment", "storage.k8s.io/v1"),
    ("/api/v1/pods", "Pod", "v1"),
)
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "300m", "memory": "200Mi"}},
}


class Scene:
    """One random cluster. `tag` makes its names its own, so that nothing of an earlier scene is mistaken for it."""

    def __init__(self, api: Api, random: Random, tag: str, *, comparing: bool, claims: Sequence[str] = CLAIMS) -> None:
        self.api, self.tag, self.claims = api, tag, claims
        self.namespaces = [f"red-{tag}", f"blue-{tag}"]
        self.draws = Draws(random, [*self.namespaces, "nowhere"], comparing=comparing)
        self.draws.node_names = self.nodes = [f"{tag}-n{i}" for i in range(random.randint(6, 16))]
        self._pool = ThreadPoolExecutor(8)
        self._count = 0

    def build(self) -> None:
        """Everything that is there before the pods in question come."""
        draws = self.draws
        for name in self.namespaces:
            labels = {"team": draws.one(("1", "2"))} if draws.sometimes(0.8) else {}
            meta = {"name": name, "labels": labels}
            self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        if not self.api.exists("/apis/node.k8s.io/v1/runtimeclasses/heavy"):
            self.api.create(RUNTIME_CLASS)
        self._create(draws.node(name) for name in self.nodes)
        self._create(storage_classes(draws, self.tag))
        made = self._create(claim for ns in self.namespaces for claim in claims(draws, self.tag, ns))
        self._create(attachments(draws, self._create_valid(volumes(draws, self.tag, made))))
        self._create(csi_nodes(draws))
        for _ in range(draws.random.randint(0, 2 * len(self.nodes))):
            self._run(self._draw_pod())
        if draws.crowded:
            for _ in range(4 * len(self.nodes)):
                self._count += 1
                self._run(draws.small_pod(draws.one(self.namespaces), f"p{self._count}"))

    def pods(self, count: int) -> list[str]:
        """New pods that look for a node; their keys."""
        drawn = [self._draw_pod() for _ in range(count)]
        return [_key(made) for made in self._create_valid(drawn)]

    def again(self, keys: Sequence[str]) -> None:
        """Delete these pods and make them again, as they were: they are looked at once more."""
        for key in keys:
            path = self.path(key)
            pod = self.api.get(path)
            meta = {name: pod["metadata"][name] for name in ("name", "namespace", "labels") if name in pod["metadata"]}
            self.api.delete(path, gracePeriodSeconds=0)
            self.api.post(path.rpartition("/")[0], {**pod, "metadata": meta, "status": {}})

    def path(self, key: str) -> str:
        namespace, name = key.split("/")
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    def documents(self) -> list[tuple[Object, str, str]]:
        """(object, kind, version) of everything that is there, as the server has it."""
        return [(item, kind, version) for path, kind, version in LISTS for item in self.api.items(path)]

    def _draw_pod(self) -> Object:
        self._count += 1
        return self.draws.pod(self.draws.one(self.namespaces), f"p{self._count}", self.claims)

    def _run(self, pod: Object) -> None:
        """Put a pod on a node, by somebody else's decision; some are on their way out, some have ended."""
        draws = self.draws
        pod["spec"].pop("schedulingGates", None)
        pod["spec"]["nodeName"] = draws.one(self.nodes)
        ended = draws.sometimes(0.1)
        if ended:
            _without_ports(pod)
        if self._create_if_valid(pod) is None:
            return
        path = self.path(_key(pod))
        if ended:
            self.api.patch(f"{path}/status", {"status": {"phase": draws.one(("Succeeded", "Failed"))}})
        elif draws.sometimes(0.1):
            self.api.delete(path)

    def _create_if_valid(self, thing: Object) -> Object | None:
        """A draw may break a rule between fields (two ports alike); the server knows, and that draw is left out."""
        try:
            return self.api.create(thing)[0]
        except ApiError as problem:
            if problem.code == 422:
                return None
            raise

    def _create(self, things: Iterable[Object]) -> list[Object]:
        return list(self._pool.map(lambda thing: self.api.create(thing)[0], things))

    def _create_valid(self, things: Iterable[Object]) -> list[Object]:
        return [made for made in self._pool.map(self._create_if_valid, things) if made is not None]


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _without_ports(pod: Object) -> None:
    """kube-scheduler keeps a node's host ports as a set: when one of two holders of a port ends, it takes the port
    for free. No scheduler puts two holders on one node, but these draws do; a pod that will end holds none."""
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        container.pop("ports", None)
