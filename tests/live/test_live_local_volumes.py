"""Volumes that are on nodes already: a pod goes where one is free, and that one is kept for its claim."""

from __future__ import annotations

from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import bound, condition, pod, pods
from tests.real_cluster.api import Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

HOST = "kubernetes.io/hostname"
ASKED = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def volume(name: str, host: str) -> Object:
    where = {"key": HOST, "operator": "In", "values": [host]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    spec = {**ASKED, "capacity": {"storage": "1Gi"}, "local": {"path": "/disk"}, "nodeAffinity": affinity}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def with_claim(name: str, **more: object) -> list[Object]:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**ASKED, "resources": {"requests": {"storage": "1Gi"}}},
    }
    used = {"name": "scratch", "persistentVolumeClaim": {"claimName": name}}
    return [claim, pod(name, 0, volumes=[used], **more)]


def test_a_volume_on_the_node_is_kept_for_the_claim(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Three disks on three nodes: one pod may go to one node only, two anywhere, and a fourth finds none left."""
    api = control_plane.api
    disks = {f"disk-{number}": f"n{number}" for number in range(3)}
    api.create(CLASS, *(node(host) for host in disks.values()), *(volume(*disk) for disk in disks.items()))
    for name in disks:
        path = f"/api/v1/persistentvolumes/{name}"
        until(lambda path=path: (api.get(path).get("status") or {}).get("phase") == "Available", 60, path)
    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(*with_claim("pinned", nodeSelector={HOST: "n2"}))
        until(lambda: bound(api) == {"pinned": "n2"}, 60, one.last_lines)
        api.create(*with_claim("a"), *with_claim("b"))
        until(lambda: len(bound(api)) == 3, 60, one.last_lines)
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        given = {name: api.get(f"{claims}/{name}")["spec"]["volumeName"] for name in bound(api)}
        assert {name: disks[disk] for name, disk in given.items()} == bound(api), "each has the disk of its node"
        api.create(*with_claim("late"))
        told = until(lambda: condition(pods(api)["late"]).get("message"), 60, one.last_lines)
        assert "find available persistent volumes" in told
        assert "late" not in bound(api)
