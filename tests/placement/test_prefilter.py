"""Reasons that hold a pod before any node is checked."""

from __future__ import annotations

import pytest

from reference.builders import claim_volume, make_pod
from windlass.cluster.listers import Listers
from windlass.model.meta import ObjectMeta, OwnerReference
from windlass.model.pod import EphemeralVolume, PodResourceClaim, ResourceRequirements, SchedulingGate, Volume
from windlass.model.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    StorageClass,
)
from windlass.placement.filters import prefilter_pod

DISK = PersistentVolume(metadata=ObjectMeta(name="disk"))
CLASSES = {
    "now": StorageClass(metadata=ObjectMeta(name="now"), volume_binding_mode="Immediate"),
    "late": StorageClass(metadata=ObjectMeta(name="late"), volume_binding_mode="WaitForFirstConsumer"),
}


def claim(name="data", *, volume="disk", phase="Bound", storage_class=None, asks="1Gi", **meta):
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", **meta),
        spec=PersistentVolumeClaimSpec(
            volume_name=volume,
            storage_class_name=storage_class,
            resources=ResourceRequirements(requests={"storage": asks}),
        ),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


def held(pod, *claims, volumes=(DISK,)):
    objects = Listers(
        claims={f"default/{claim.metadata.name}": claim for claim in claims},
        volumes={volume.metadata.name: volume for volume in volumes},
        storage_classes=CLASSES,
    )
    return prefilter_pod(pod, objects)


USES_DATA = make_pod(volumes=(claim_volume("data"),))


def test_nothing_holds_a_plain_pod():
    assert held(make_pod()) is None
    assert held(make_pod(volumes=(Volume(name="tmp"),))) is None
    assert held(USES_DATA, claim()) is None


def test_gates_hold_a_pod_and_are_named():
    reason = held(make_pod(scheduling_gates=(SchedulingGate(name="kueue"), SchedulingGate(name="mine"))))
    assert (reason.name, reason.bit) == ("SCHEDULING_GATED", None)
    assert reason.kube_words == "waiting for scheduling gates: [kueue mine]"


def test_gates_come_before_everything_else():
    gated = make_pod(volumes=(claim_volume("data"),), scheduling_gates=(SchedulingGate(name="g"),))
    assert held(gated).name == "SCHEDULING_GATED"


def test_resource_claims_are_not_implemented_and_never_ignored():
    reason = held(make_pod(resource_claims=(PodResourceClaim(name="gpu"),)))
    assert reason.name == "RESOURCE_CLAIMS_NOT_IMPLEMENTED"
    assert reason.kube_words.endswith(": gpu")


@pytest.mark.parametrize(
    ("claims", "name", "kube"),
    [
        ([], "CLAIM_MISSING", 'persistentvolumeclaim "data" not found'),
        (
            [claim(deletion_timestamp="2025-01-01T00:00:00Z")],
            "CLAIM_MISSING",
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            [claim(phase="Lost")],
            "CLAIM_MISSING",
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
        ),
        (
            [claim(volume="gone")],
            "CLAIM_MISSING",
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
        ),
        (
            [claim(volume="", phase="Pending", storage_class="now")],
            "UNBOUND_CLAIM",
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            [claim(volume="", phase="Pending")],
            "UNBOUND_CLAIM",
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            # Naming a volume is not being bound to it, and such a claim doesn't wait for the pod either.
            [claim(volume="disk", phase="Pending", storage_class="late")],
            "UNBOUND_CLAIM",
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            [claim(asks="a lot")],
            "INVALID_OBJECT",
            "pod is invalid: claim data has an unreadable spec.resources.requests.storage",
        ),
    ],
)
def test_claims_that_are_not_ready_hold_the_pod(claims, name, kube):
    reason = held(USES_DATA, *claims)
    assert (reason.name, reason.kube_words) == (name, kube)
    assert reason.remedy


def test_a_claim_that_waits_for_its_first_pod_does_not_hold_it():
    assert held(USES_DATA, claim(volume="", phase="Pending", storage_class="late")) is None


def test_the_binder_may_have_said_so_by_annotation_only():
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    assert held(USES_DATA, claim(phase="Pending", annotations=done)) is None


def test_a_missing_storage_class_is_told():
    reason = held(USES_DATA, claim(volume="", phase="Pending", storage_class="typo"))
    assert reason.kube_words.endswith("data; its storage class typo doesn't exist")


def test_missing_claims_are_told_before_unbound_ones():
    pod = make_pod(volumes=(claim_volume("data"), claim_volume("more")))
    assert held(pod, claim(volume="", phase="Pending")).kube_words == 'persistentvolumeclaim "more" not found'


def test_an_ephemeral_claim_must_have_been_made_for_this_very_pod():
    pod = make_pod("train", volumes=(Volume(name="scratch", ephemeral=EphemeralVolume()),))
    reason = held(pod)
    assert "ephemeral volume controller" in reason.kube_words
    assert held(pod, claim("train-scratch")).name == "CLAIM_MISSING"
    owner = OwnerReference(kind="Pod", name="train", uid="train", controller=True)
    assert held(pod, claim("train-scratch", owner_references=(owner,))) is None
