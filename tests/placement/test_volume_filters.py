"""Nodes that a pod's volumes refuse."""

from __future__ import annotations

import msgspec
import pytest

from reference.builders import HOST, ZONE, claim_volume, make_node, make_pod, need, node_term, selector
from reference.scene import Scene
from windlass.model.meta import ObjectMeta
from windlass.model.pod import EphemeralVolume, NodeSelector, ResourceRequirements, Volume
from windlass.model.volume import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def nodes():
    return [make_node("a", zone="1", host="a"), make_node("b", zone="2", host="b"), make_node("bare")]


def volume(name, *needs, labels=None, capacity="10Gi", storage_class="", **spec):
    required = NodeSelector(node_selector_terms=(node_term(*needs),))
    return PersistentVolume(
        metadata=ObjectMeta(name=name, labels=labels or {}),
        spec=PersistentVolumeSpec(
            capacity={"storage": capacity},
            node_affinity=VolumeNodeAffinity(required=required) if needs else None,
            access_modes=("ReadWriteOnce",),
            storage_class_name=storage_class,
            **spec,
        ),
        status=PersistentVolumeStatus(phase="Available"),
    )


def bound(name, volume_name):
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PersistentVolumeClaimSpec(volume_name=volume_name),
        status=PersistentVolumeClaimStatus(phase="Bound"),
    )


def waiting(name, storage_class="local", *, asks="5Gi", annotations=None, **spec):
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", annotations=annotations or {}),
        spec=PersistentVolumeClaimSpec(
            storage_class_name=storage_class,
            access_modes=("ReadWriteOnce",),
            resources=ResourceRequirements(requests={"storage": asks}),
            **spec,
        ),
    )


def late_class(name, provisioner="kubernetes.io/no-provisioner", *topologies, **annotations):
    return StorageClass(
        metadata=ObjectMeta(name=name, annotations=annotations),
        provisioner=provisioner,
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=topologies,
    )


def scene(claims, volumes=(), classes=()):
    return Scene(
        nodes(),
        claims={f"default/{claim.metadata.name}": claim for claim in claims},
        volumes={volume.metadata.name: volume for volume in volumes},
        storage_classes={storage_class.metadata.name: storage_class for storage_class in classes},
    )


def uses(*names):
    return make_pod(volumes=tuple(claim_volume(name) for name in names))


def test_a_bound_volume_decides_by_its_node_affinity():
    found = scene([bound("data", "disk")], [volume("disk", need(ZONE, "In", "1"))])
    assert found.why(uses("data")) == {
        "a": [],
        "b": ["VOLUME_NODE_AFFINITY"],
        "bare": ["VOLUME_NODE_AFFINITY"],
    }


def test_every_volume_has_to_be_reached():
    volumes = [volume("one", need(ZONE, "In", "1")), volume("two", need(ZONE, "In", "2")), volume("free")]
    found = scene([bound("x", "one"), bound("y", "two"), bound("z", "free")], volumes)
    assert found.fits(uses("x", "y")) == []
    assert found.fits(uses("x", "z")) == ["a"]


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({ZONE: "1"}, ["a", "bare"]),  # a node without any zone label is taken to be everywhere
        ({ZONE: "1__2"}, ["a", "b", "bare"]),
        ({OLD_ZONE: "2"}, ["b", "bare"]),  # the old label is looked up under its new name too
        ({ZONE: "1__"}, ["a", "b", "bare"]),  # a broken list is ignored
        ({"topology.kubernetes.io/region": "here"}, ["bare"]),
    ],
)
def test_a_volume_with_zone_labels_stays_in_its_zones(labels, fits):
    found = scene([bound("data", "disk")], [volume("disk", labels=labels)])
    assert found.fits(uses("data")) == fits


def test_zone_labels_have_a_reason_of_their_own():
    found = scene([bound("data", "disk")], [volume("disk", labels={ZONE: "1"})])
    assert found.why(uses("data"))["b"] == ["VOLUME_ZONE"]


def test_a_claim_that_waits_needs_a_free_volume_where_nothing_can_be_provisioned():
    volumes = [volume("on-b", need(HOST, "In", "b"), storage_class="local")]
    found = scene([waiting("scratch")], volumes, [late_class("local")])
    assert found.fits(uses("scratch")) == ["b"]
    assert scene([waiting("scratch")], [], [late_class("local")]).fits(uses("scratch")) == []


@pytest.mark.parametrize(
    "change",
    [
        {"capacity": "4Gi"},
        {"capacity": "a lot"},
        {"storage_class": "other"},
        {"claim_ref": ObjectReference(namespace="default", name="somebody-else")},
        {"claim_ref": ObjectReference(namespace="default", name="scratch", uid="an-earlier-one")},
        {"volume_mode": "Block"},
        {"volume_attributes_class_name": "fast"},
    ],
)
def test_a_volume_must_fit_the_claim(change):
    options = {"storage_class": "local", **change}
    found = scene([waiting("scratch")], [volume("disk", **options)], [late_class("local")])
    assert found.fits(uses("scratch")) == []


def test_a_volume_that_is_not_available_or_being_deleted_is_no_choice():
    disk = volume("disk", storage_class="local")
    released = msgspec.structs.replace(disk, status=PersistentVolumeStatus(phase="Released"))
    going = msgspec.structs.replace(disk, metadata=ObjectMeta(name="disk", deletion_timestamp="2025-01-01T00:00:00Z"))
    for unusable in (released, going):
        assert scene([waiting("scratch")], [unusable], [late_class("local")]).fits(uses("scratch")) == []
    assert len(scene([waiting("scratch")], [disk], [late_class("local")]).fits(uses("scratch"))) == 3


def test_a_claims_selector_and_access_modes_choose_among_volumes():
    disk = volume("disk", storage_class="local", labels={"kind": "nvme"})
    for claim, fits in (
        (waiting("scratch", selector=selector(kind="nvme")), True),
        (waiting("scratch", selector=selector(kind="hdd")), False),
    ):
        assert bool(scene([claim], [disk], [late_class("local")]).fits(uses("scratch"))) == fits
    many = msgspec.structs.replace(
        waiting("scratch"),
        spec=PersistentVolumeClaimSpec(storage_class_name="local", access_modes=("ReadWriteMany",)),
    )
    assert scene([many], [disk], [late_class("local")]).fits(uses("scratch")) == []


def test_a_volume_goes_to_one_claim_only_and_the_smallest_claim_chooses_first():
    claims = [waiting("large", asks="8Gi"), waiting("small", asks="1Gi")]
    both_on_a = [
        volume(name, need(HOST, "In", "a"), storage_class="local", capacity=size)
        for name, size in (("big", "10Gi"), ("little", "2Gi"))
    ]
    only_one_on_b = [volume("single", need(HOST, "In", "b"), storage_class="local")]
    found = scene(claims, both_on_a + only_one_on_b, [late_class("local")])
    assert found.fits(uses("large", "small")) == ["a"]
    assert found.fits(uses("large")) == ["a", "b"]


def test_a_small_claim_is_not_robbed_of_the_only_volume_that_its_selector_allows():
    claims = [waiting("large", asks="8Gi"), waiting("small", asks="1Gi", selector=selector(kind="nvme"))]
    volumes = [
        volume("fast", storage_class="local", labels={"kind": "nvme"}),
        volume("slow", storage_class="local", capacity="20Gi"),
    ]
    assert len(scene(claims, volumes, [late_class("local")]).fits(uses("large", "small"))) == 3


def test_a_volume_that_is_kept_for_the_claim_is_the_only_choice():
    kept = volume(
        "kept",
        need(HOST, "In", "a"),
        storage_class="local",
        claim_ref=ObjectReference(namespace="default", name="scratch"),
    )
    found = scene([waiting("scratch")], [kept, volume("any", storage_class="local")], [late_class("local")])
    assert found.fits(uses("scratch")) == ["a"]


def test_a_class_that_provisions_does_so_in_its_allowed_topologies():
    zone_two = TopologySelectorTerm(
        match_label_expressions=(TopologySelectorLabelRequirement(key=ZONE, values=("2", "3")),)
    )
    assert scene([waiting("data", "cloud")], [], [late_class("cloud", "disk.example.com")]).fits(uses("data")) == [
        "a",
        "b",
        "bare",
    ]
    limited = late_class("cloud", "disk.example.com", zone_two)
    assert scene([waiting("data", "cloud")], [], [limited]).fits(uses("data")) == ["b"]
    nowhere = late_class("cloud", "disk.example.com", TopologySelectorTerm())
    assert scene([waiting("data", "cloud")], [], [nowhere]).fits(uses("data")) == []


def test_a_claim_whose_node_is_already_chosen_goes_nowhere_else():
    chosen = {"volume.kubernetes.io/selected-node": "b"}
    claim = waiting("data", "cloud", annotations=chosen)
    assert scene([claim], [], [late_class("cloud", "disk.example.com")]).fits(uses("data")) == ["b"]


def test_a_claim_without_a_class_gets_the_newest_default_one():
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [late_class("local"), late_class("cloud", "disk.example.com", **default)]
    assert len(scene([waiting("data", None)], [], classes).fits(uses("data"))) == 3


def test_the_old_annotation_names_the_class_as_well():
    old = {"volume.beta.kubernetes.io/storage-class": "cloud"}
    found = scene([waiting("data", "local", annotations=old)], [], [late_class("cloud", "disk.example.com")])
    assert len(found.fits(uses("data"))) == 3


def test_an_ephemeral_volume_has_a_claim_named_after_pod_and_volume():
    pod = make_pod("train", volumes=(Volume(name="scratch", ephemeral=EphemeralVolume()),))
    found = scene([bound("train-scratch", "disk")], [volume("disk", need(ZONE, "In", "2"))])
    assert found.fits(pod) == ["b"]


def test_other_volumes_say_nothing():
    assert scene([]).fits(make_pod(volumes=(Volume(name="tmp"),))) == ["a", "b", "bare"]
