"""How many volumes a node can have attached: each counts once, however many pods use it, up to the driver's limit."""

from __future__ import annotations

import msgspec
import pytest

from reference.builders import claim_volume
from reference.park import node, pod
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.pod import EphemeralVolume, PodSpec, Volume

DRIVER = "csi.example.com"


def csi_node(name, limit, driver=DRIVER):
    allocatable = {} if limit is None else {"allocatable": {"count": limit}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": driver, "nodeID": name, **allocatable}]},
    }


def storage_class(name="fast", provisioner=DRIVER):
    meta = {"name": name}
    mode = "WaitForFirstConsumer"
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    return {**kind, "metadata": meta, "provisioner": provisioner, "volumeBindingMode": mode}


def claim(name, volume=""):
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteMany"], "volumeName": volume}
    status = {"phase": "Bound" if volume else "Pending"}
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def volume(name, handle="", driver=DRIVER):
    source = {"csi": {"driver": driver, "volumeHandle": handle}} if handle else {"nfs": {"server": "x"}}
    spec = {"storageClassName": "fast", "capacity": {"storage": "1Gi"}, **source}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def attachment(volume_name, node_name):
    spec = {"attacher": DRIVER, "nodeName": node_name, "source": {"persistentVolumeName": volume_name}}
    meta = {"name": f"{volume_name}-{node_name}"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta, "spec": spec}


def using(name, *claims, on=""):
    return pod(name, volumes=tuple(claim_volume(name) for name in claims), on=on)


class Desk:
    def __init__(self, *objects):
        self.store = Store()
        self.put(node("n1"), storage_class(), *objects)

    def put(self, *objects):
        decoded = [decode_object(obj) if isinstance(obj, dict) else obj for obj in objects]
        self.store.apply(Put(obj) for obj in decoded)

    def verdict(self, name="new"):
        """'' if the pod gets a node, else kube-scheduler's reasons."""
        plan = decide(self.store.snapshot(), EngineConfig(), 0)
        if any(bind.pod == f"default/{name}" for bind in plan.binds):
            return ""
        (hold,) = [hold for hold in plan.holds if hold.workload == f"default/{name}"]
        return ", ".join(count.kube for count in hold.verdict.counts)


FULL = "node(s) exceed max volume count"


def test_a_node_takes_as_many_volumes_as_its_driver_says():
    desk = Desk(csi_node("n1", 2), claim("a"), claim("b"), claim("c"))
    desk.put(using("old", "a", on="n1"), using("new", "b"))
    assert desk.verdict() == ""
    desk.put(using("new", "b", "c"))
    assert desk.verdict() == FULL


def test_a_volume_counts_once_for_all_its_pods():
    desk = Desk(csi_node("n1", 1), claim("a", "va"), claim("same", "va"), volume("va", "handle"))
    desk.put(using("old", "a", on="n1"), using("new", "same"))
    assert desk.verdict() == ""


@pytest.mark.parametrize("limits", [csi_node("n1", None), csi_node("n1", 0, "other.example.com"), csi_node("n2", 0)])
def test_no_limit_no_refusal(limits):
    desk = Desk(limits, claim("a"), using("new", "a"))
    assert desk.verdict() == ""


def test_volumes_that_no_csi_driver_attaches_do_not_count():
    desk = Desk(csi_node("n1", 0), claim("a", "va"), volume("va"), using("new", "a"))
    assert desk.verdict() == ""


def test_what_is_still_attached_counts_too():
    desk = Desk(csi_node("n1", 1), claim("gone", "va"), volume("va", "handle"), attachment("va", "n1"))
    desk.put(claim("b"), using("new", "b"))
    assert desk.verdict() == FULL
    desk.store.apply([Deleted("VolumeAttachment", "va-n1")])
    assert desk.verdict() == ""


def test_what_is_attached_and_in_use_counts_once():
    desk = Desk(csi_node("n1", 2), claim("a", "va"), volume("va", "handle"), attachment("va", "n1"))
    desk.put(using("old", "a", on="n1"), claim("b"), using("new", "b"))
    assert desk.verdict() == ""


def test_a_pod_that_left_makes_room():
    desk = Desk(csi_node("n1", 1), claim("a"), claim("b"), using("old", "a", on="n1"), using("new", "b"))
    assert desk.verdict() == FULL
    desk.store.apply([Deleted("Pod", "default/old")])
    assert desk.verdict() == ""


def test_pods_of_one_decision_count_for_each_other():
    desk = Desk(csi_node("n1", 1), claim("a"), claim("b"), using("new", "a"), using("newer", "b"))
    plan = decide(desk.store.snapshot(), EngineConfig(), 0)
    assert len(plan.binds) == 1


def test_a_pods_own_ephemeral_volume_counts():
    own = claim("new-scratch")
    own["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "new", "uid": "new", "controller": True}]
    waiting = pod("new")
    spec = msgspec.structs.replace(waiting.spec, volumes=(Volume(name="scratch", ephemeral=EphemeralVolume()),))
    desk = Desk(csi_node("n1", 0), own, msgspec.structs.replace(waiting, spec=spec))
    assert isinstance(spec, PodSpec)
    assert desk.verdict() == FULL
