"""Queued work whose claims are not ready, with the live scheduler: it is held without quota and says so, and starts
when they are."""

from __future__ import annotations

import asyncio

import pytest
from tests.scheduler.queued_jobs import QueuedJobs, on_cluster

from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.unstructured import Unstructured

CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICE = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}


def claim() -> Unstructured:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "disk"}
    meta = {"name": "data", "namespace": "team"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def storage_class(mode: str) -> Unstructured:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": "example.com/disk",
        "volumeBindingMode": mode,
    }


def pending(cluster: QueuedJobs, name: str) -> str:
    conditions = cluster.workload(name)["status"]["conditions"]
    return str(next(part["message"] for part in conditions if part["type"] == "QuotaReserved"))


def queued_pod(**spec: object) -> Unstructured:
    limits = {"nvidia.com/gpu": "1"}
    containers = [{"name": "main", "image": "train", "resources": {"limits": limits}}]
    meta = {"name": "alone", "namespace": "team", "labels": {QUEUE_NAME_LABEL: "q"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (CLAIM, 'persistentvolumeclaim "data" not found'),
        (DEVICE, "which Windlass does not allocate: gpu"),
    ],
    ids=["volume", "device"],
)
def test_a_queued_pod_is_held_for_its_claim(pod: Unstructured, text: str) -> None:
    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        cluster.client.create("pods", "team", queued_pod(**pod))
        await asyncio.sleep(10)
        made = cluster.client.get("pods", "team", "alone")
        assert not made["spec"].get("nodeName")
        (scheduled,) = [found for found in made["status"]["conditions"] if found["type"] == "PodScheduled"]
        assert text in scheduled["message"]
        events = [event for event in cluster.client.list("events") if event["reason"] == "FailedScheduling"]
        assert any(text in event.get("message", event.get("note", "")) for event in events)

    test()


@on_cluster()
async def test_a_job_waits_without_quota_until_its_volume_is_bound(cluster: QueuedJobs) -> None:
    cluster.submit("train", 2, pod=CLAIM)
    cluster.submit("next", 8)
    await asyncio.sleep(10)
    assert 'persistentvolumeclaim "data" not found' in pending(cluster, "train")
    assert (cluster.admitted("train"), cluster.admitted("next")) == (0, 8)
    cluster.client.delete("jobs.batch", "team", "next")
    cluster.client.create("storageclasses.storage.k8s.io", "", storage_class("Immediate"))
    made = cluster.client.create("persistentvolumeclaims", "team", claim())
    await asyncio.sleep(70)
    assert "unbound immediate PersistentVolumeClaims: data" in pending(cluster, "train")
    assert (cluster.job("train")["spec"]["suspend"], cluster.admitted("train")) == (True, 0)
    capacity = {"storage": "1Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk-1"},
        "spec": {
            "capacity": capacity,
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "disk",
            "hostPath": {"path": "/data"},
            "claimRef": {"namespace": "team", "name": "data", "uid": made["metadata"]["uid"]},
        },
    }
    cluster.client.create("persistentvolumes", "", volume)
    bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "disk-1"}}
    cluster.client.patch("persistentvolumeclaims", "team", "data", bound)
    cluster.client.patch("persistentvolumeclaims", "team", "data", {"status": {"phase": "Bound"}}, subresource="status")
    await asyncio.sleep(10)
    assert (cluster.admitted("train"), len(cluster.bound("train"))) == (2, 2)
