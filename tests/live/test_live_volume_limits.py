"""A node that has as many volumes attached as its driver allows takes no more, and does again when one is gone."""

from __future__ import annotations

from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import bound, condition, pod, pods
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

DRIVER = "disk.example.com"
STORAGE = "storage.k8s.io/v1"


def storage(kind: str, name: str, **fields: object) -> Object:
    return {"apiVersion": STORAGE, "kind": kind, "metadata": {"name": name}, **fields}


def add_volume(api: Api, name: str) -> None:
    """A volume of the driver, bound to a claim of the same name."""
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    (claim,) = api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**asked, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        }
    )
    owner = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    source = {"driver": DRIVER, "volumeHandle": name}
    capacity = {"storage": "1Gi"}
    spec = {
        **asked,
        "capacity": capacity,
        "claimRef": {**owner, "uid": claim["metadata"]["uid"]},
        "csi": source,
    }
    api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    path = f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"
    until(lambda: api.get(path)["status"]["phase"] == "Bound", what=f"{name} is bound")


def test_no_more_volumes_than_can_be_attached(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    limit = {"drivers": [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 1}}]}
    source = {"persistentVolumeName": "old"}
    attached = storage("VolumeAttachment", "a", spec={"attacher": DRIVER, "nodeName": "n1", "source": source})
    for name in ("old", "new"):
        add_volume(api, name)
    api.create(node("n1"), storage("CSINode", "n1", spec=limit), attached)
    wanted = {"name": "data", "persistentVolumeClaim": {"claimName": "new"}}
    api.create(pod("p", 0, volumes=[wanted]))
    with replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect"):
        said = until(lambda: condition(pods(api)["p"]).get("message", ""))
        assert "exceed max volume count" in said
        assert not bound(api)
        api.delete(f"/apis/{STORAGE}/volumeattachments/a")
        until(lambda: bound(api) == {"p": "n1"})
