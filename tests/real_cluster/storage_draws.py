"""Random volumes, claims and storage classes as plain manifests, bound and unbound, for the comparison.

Used by `scene`, which creates them in this order: classes, then claims, then volumes (a bound volume names the uid of
its claim). No controller runs beside: what a status says is what these draws say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.real_cluster.api import Object
from tests.real_cluster.draws import RACK, VALUES, ZONE, Draws

REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
BOUND = ("bound-a", "bound-b", "bound-alone")
WAITING = ("local", "local-too", "kept", "cloud", "picked", "alone")
BROKEN = ("immediate", "half-bound", "lost", "no-class")
DRIVER = "cloud.windlass.test"
"""The CSI driver behind the class that makes its own volumes; some nodes can attach only a few of them."""
CLAIMS = (*3 * BOUND, *3 * WAITING, *BROKEN, "missing")
"""Names that pods may ask for, the sound ones more often; nobody makes the last one."""


def storage_classes(draws: Draws, tag: str) -> Iterable[Object]:
    """`local` has volumes made by hand, `cloud` makes its own, perhaps not everywhere; `now` doesn't wait for pods."""
    for name, provisioner, mode in (
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("cloud", DRIVER, "WaitForFirstConsumer"),
        ("now", DRIVER, "Immediate"),
    ):
        made: Object = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": f"{name}-{tag}"},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        }
        if name == "cloud" and draws.sometimes(0.5):
            made["allowedTopologies"] = [
                {"matchLabelExpressions": [{"key": key, "values": draws.some(VALUES)}]}
                for key in draws.some((ZONE, RACK))
            ]
        yield made


def claims(draws: Draws, tag: str, namespace: str) -> Iterable[Object]:
    for index, name in enumerate((*BOUND, *WAITING, *BROKEN)):
        spec: Object = {
            "accessModes": ["ReadWriteOncePod" if name.endswith("alone") else "ReadWriteOnce"],
            "storageClassName": _class_of(name, tag),
            # Sizes differ, so that the order in which claims choose their volumes is the same for everybody.
            "resources": {"requests": {"storage": f"{512 * draws.random.randint(1, 3) + index}Mi"}},
        }
        if name in WAITING and draws.sometimes(0.15):
            spec["selector"] = {"matchLabels": {"kind": "ssd"}}
        status: Object = {"phase": "Pending"}
        annotations = {}
        if name in (*BOUND, "half-bound", "lost"):
            spec["volumeName"] = volume_name(namespace, name)
        if name in BOUND:
            annotations["pv.kubernetes.io/bind-completed"] = "yes"
            status = {"phase": "Bound", "accessModes": spec["accessModes"]}
        if name == "lost":
            status = {"phase": "Lost"}
        if name == "picked":
            annotations["volume.kubernetes.io/selected-node"] = draws.one(draws.node_names)
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": spec,
            "status": status,
        }


def volumes(draws: Draws, tag: str, made: Iterable[Mapping[str, Object]]) -> Iterable[Object]:
    """A volume for every bound claim (rarely none), some free ones, and some that are kept for a claim."""
    for claim in made:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        owner = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        modes = claim["spec"]["accessModes"]
        if name in BOUND and draws.sometimes(0.95):
            owner["uid"] = claim["metadata"]["uid"]
            yield _volume(draws, volume_name(namespace, name), _class_of(name, tag), modes, owner, "Bound")
        elif name == "kept" and draws.sometimes(0.7):
            yield _volume(draws, volume_name(namespace, name), f"local-{tag}", modes, owner, "Available")
    for index in range(draws.random.randint(2, 10)):
        modes = draws.one((["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOncePod"]))
        phase = draws.one(("Available", "Available", "Available", "Released"))
        yield _volume(draws, f"free-{tag}-{index}", f"local-{tag}", modes, None, phase)


def csi_nodes(draws: Draws) -> Iterable[Object]:
    """What nodes say about the driver: some know it without a limit, some with a low one, some don't know it."""
    for name in draws.node_names:
        if draws.sometimes(0.8):
            driver: Object = {"name": DRIVER, "nodeID": name}
            if draws.sometimes(0.7):
                driver["allocatable"] = {"count": draws.random.randint(0, 3)}
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": name},
                "spec": {"drivers": [driver]},
            }


def attachments(draws: Draws, made: Iterable[Mapping[str, Object]]) -> Iterable[Object]:
    """Volumes that are attached somewhere, whether or not a pod there uses them."""
    for volume in made:
        if draws.sometimes(0.7):
            name = volume["metadata"]["name"]
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": f"at-{name}"},
                "spec": {
                    "attacher": draws.one((DRIVER, DRIVER, "other.windlass.test")),
                    "nodeName": draws.one(draws.node_names),
                    "source": {"persistentVolumeName": name},
                },
            }


def volume_name(namespace: str, claim: str) -> str:
    return f"v-{namespace}-{claim}"


def _volume(draws: Draws, name: str, storage_class: str, modes: list[str], owner: Object | None, phase: str) -> Object:
    labels = {"kind": "ssd"} if draws.sometimes(0.5) else {}
    if draws.sometimes(0.3):
        labels[draws.one((ZONE, OLD_ZONE, REGION))] = draws.one(("1", "2", "1__2"))
    spec: Object = {
        "capacity": {"storage": draws.one(("600Mi", "1Gi", "1600Mi", "2Gi", "3Gi"))},
        "accessModes": modes,
        "storageClassName": storage_class,
    }
    if draws.sometimes(0.5):
        spec["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{name}"}
    else:
        spec["hostPath"] = {"path": "/nowhere"}
    if owner is not None:
        spec["claimRef"] = owner
    if draws.sometimes(0.6):
        spec["nodeAffinity"] = {"required": draws.node_selector()}
    meta = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": phase},
    }


def _class_of(claim: str, tag: str) -> str:
    if claim in ("local", "local-too", "kept", "bound-a", "bound-b", "bound-alone", "half-bound", "lost"):
        return f"local-{tag}"
    return {"immediate": f"now-{tag}", "no-class": f"nobody-{tag}"}.get(claim, f"cloud-{tag}")
