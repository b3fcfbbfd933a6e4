"""Which volumes a pod's claims get on a node, and how many a node can have attached."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.placement.test_volume_filters import late_class, uses, volume, waiting

from reference.builders import HOST, ZONE, claim_volume, make_node, make_pod, need
from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.codec import decode_object
from windlass.model.meta import ObjectMeta
from windlass.model.pod import NodeSelector, NodeSelectorTerm, Pod
from windlass.model.volume import (
    ObjectReference,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    StorageClass,
    VolumeNodeAffinity,
)
from windlass.placement.filters.volume_binding import (
    refused_by_volume_affinity,
    refused_by_volume_binding,
    storage_size,
    volumes_to_bind,
)
from windlass.placement.filters.volume_claims import is_bound, storage_class_of_claim, waits_for_consumer
from windlass.placement.inter_pod.volume_limits import VolumeLimits

NODES = NodeColumns([make_node("a", zone="1", host="a"), make_node("b", zone="2", host="b")])
DRIVER = "csi.example.com"


def listers(claims: list, volumes: list = (), classes: list = (), **others: Any) -> Listers:  # type: ignore[assignment]
    return Listers(
        claims={f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}": claim for claim in claims},
        volumes={found.metadata.name: found for found in volumes},
        storage_classes={found.metadata.name: found for found in classes},
        **others,
    )


def chosen(claims: list, volumes: list, on: str = "a", *names: str) -> dict[str, str]:
    pod = uses(*(names or [claim.metadata.name for claim in claims]))
    return volumes_to_bind(pod, on, NODES, listers(claims, volumes, [late_class("local")]))


def disk(name: str, capacity: str = "10Gi", *needs: Any, **options: Any) -> Any:
    return volume(name, *needs, storage_class="local", capacity=capacity, **options)


def test_the_smallest_volume_that_fits_is_bound_and_by_name_among_equals() -> None:
    disks = [disk("large", "20Gi"), disk("z", "5Gi"), disk("y", "5Gi"), disk("small", "4Gi")]
    assert chosen([waiting("c")], disks) == {"default/c": "y"}
    assert chosen([waiting("c", asks="6Gi")], disks) == {"default/c": "large"}
    assert chosen([waiting("c", asks="21Gi")], disks) == {}


def test_the_smallest_claim_chooses_first_and_no_volume_is_bound_twice() -> None:
    disks = [disk("x", "5Gi"), disk("y", "9Gi")]
    claims = [waiting("large", asks="3Gi"), waiting("small", asks="1Gi")]
    assert chosen(claims, disks) == {"default/small": "x", "default/large": "y"}
    assert chosen(claims, disks[:1]) == {"default/small": "x"}, "the other has to be provisioned"


def test_only_volumes_that_the_node_reaches_are_bound() -> None:
    disks = [disk("on-b", "5Gi", need(HOST, "In", "b")), disk("anywhere", "9Gi")]
    assert chosen([waiting("c")], disks, "a") == {"default/c": "anywhere"}
    assert chosen([waiting("c")], disks, "b") == {"default/c": "on-b"}


def test_claims_that_have_their_node_or_volume_get_no_other() -> None:
    given = waiting("given", annotations={"volume.kubernetes.io/selected-node": "a"})
    bound = waiting("bound", volume_name="v")
    assert chosen([given, bound, waiting("c", asks="5Gi")], [disk("x"), disk("y")]) == {"default/c": "x"}


def test_a_volume_kept_for_the_claim_is_taken_though_a_smaller_one_fits() -> None:
    kept = disk("kept", "20Gi", claim_ref=ObjectReference(namespace="default", name="c"))
    larger = disk("kept2", "30Gi", claim_ref=ObjectReference(namespace="default", name="c"))
    assert chosen([waiting("c")], [larger, kept, disk("x", "5Gi")]) == {"default/c": "kept"}
    elsewhere = disk("kept", "20Gi", claim_ref=ObjectReference(namespace="other", name="c"))
    assert chosen([waiting("c")], [elsewhere, disk("x", "5Gi")]) == {"default/c": "x"}


def test_an_unreadable_request_is_no_obstacle_but_an_unreadable_volume_fits_nothing() -> None:
    assert storage_size({"storage": "1Ki"}) == 1024
    assert storage_size({}) == 0
    assert storage_size({"storage": "much"}) == Fraction(-1)
    assert chosen([waiting("c", asks="much")], [disk("none", "0"), disk("broken", "much")]) == {"default/c": "none"}


def test_volumes_with_terms_are_reached_by_any_of_them_and_fields_are_ignored() -> None:
    def reached(*terms: NodeSelectorTerm) -> list[bool]:
        found = volume("v")
        affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
        found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_affinity=affinity))
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="c", namespace="default"),
            spec=PersistentVolumeClaimSpec(volume_name="v"),
            status=PersistentVolumeClaimStatus(phase="Bound"),
        )
        refused = refused_by_volume_affinity(uses("c"), NODES, listers([claim], [found]))
        assert refused is not None
        return (~refused).tolist()

    in_one, in_two = (NodeSelectorTerm(match_expressions=(need(ZONE, "In", zone),)) for zone in "12")
    fields = NodeSelectorTerm(match_fields=(need("metadata.name", "In", "b"),))
    assert reached(in_one) == [True, False]
    assert reached(in_one, in_two) == [True, True]
    assert reached(fields) == [True, True]
    assert reached(NodeSelectorTerm()) == [False, False]
    assert reached() == [False, False]
    both = NodeSelectorTerm(match_expressions=in_two.match_expressions, match_fields=fields.match_fields)
    assert reached(both) == [False, True]


def test_pods_without_such_volumes_are_refused_nowhere() -> None:
    none = listers([])
    assert refused_by_volume_affinity(make_pod(), NODES, none) is None
    assert refused_by_volume_binding(make_pod(), NODES, none) is None
    assert refused_by_volume_binding(uses("c"), NODES, none) is None


@pytest.mark.parametrize(
    ("named", "annotated", "phase", "expected"),
    [
        ("v", False, "Bound", True),
        ("v", True, "Pending", True),
        ("v", False, "Pending", False),
        ("", True, "Bound", False),
    ],
)
def test_a_claim_is_bound_once_the_controller_has_confirmed_its_volume(
    named: str, annotated: bool, phase: str, expected: bool
) -> None:
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if annotated else {}
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="c", annotations=notes),
        spec=PersistentVolumeClaimSpec(volume_name=named),
        status=PersistentVolumeClaimStatus(phase=phase),
    )
    assert is_bound(claim) == expected


def test_a_claim_waits_where_its_class_binds_late_and_it_has_no_volume() -> None:
    at_once = StorageClass(metadata=ObjectMeta(name="local"), volume_binding_mode="Immediate")
    late = listers([], [], [late_class("local")])
    assert waits_for_consumer(waiting("c"), late)
    assert not waits_for_consumer(waiting("c", volume_name="v"), late)
    assert not waits_for_consumer(waiting("c"), listers([], [], [at_once]))
    assert not waits_for_consumer(waiting("c"), listers([]))


def test_the_default_class_is_the_newest() -> None:
    def default(name: str, created: str, value: str = "true") -> StorageClass:
        notes = {"storageclass.kubernetes.io/is-default-class": value}
        return StorageClass(metadata=ObjectMeta(name=name, creation_timestamp=created, annotations=notes))

    old, new = default("z-old", "2020-01-01T00:00:00Z"), default("a-new", "2021-01-01T00:00:00Z")
    no = default("no", "2022-01-01T00:00:00Z", "false")
    assert storage_class_of_claim(waiting("c", None), listers([], [], [old, new, no])) == "a-new"
    assert storage_class_of_claim(waiting("c", None), listers([], [], [no])) == ""
    assert storage_class_of_claim(waiting("c", ""), listers([], [], [old])) == ""


# Limits


def csi_node(name: str, **limits: int) -> Any:
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name, "allocatable": {"count": count}}
        for driver, count in limits.items()
    ]
    tree = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}}
    return decode_object({**tree, "spec": {"drivers": drivers}})


def attachment(name: str, on: str, attacher: str = DRIVER) -> Any:
    spec = {"attacher": attacher, "nodeName": on, "source": {"persistentVolumeName": name}}
    tree = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"{name}-{on}"}}
    return decode_object({**tree, "spec": spec})


def csi_volume(name: str, handle: str, driver: str = DRIVER) -> Any:
    spec = {"capacity": {"storage": "1Gi"}, "csi": {"driver": driver, "volumeHandle": handle}}
    return decode_object({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


def limits(attached: tuple[tuple[str, str], ...] = (), **nodes: dict[str, int]) -> VolumeLimits:
    """Five claims c0…c4 with volumes v0…v4 of one driver, d0 and d1 of another."""
    claims = [waiting(f"c{i}", volume_name=f"v{i}") for i in range(5)]
    claims += [waiting(f"d{i}", volume_name=f"w{i}") for i in range(2)]
    volumes = [csi_volume(f"v{i}", f"h{i}") for i in range(5)]
    volumes += [csi_volume(f"w{i}", f"h{i}", "other.example.com") for i in range(2)]
    found = listers(
        claims,
        volumes,
        [],
        csi_nodes={name: csi_node(name, **amounts) for name, amounts in nodes.items()},
        attachments={f"{name}-{on}": attachment(name, on) for name, on in attached},
    )
    return VolumeLimits(NODES, found)


def using(*claims: str) -> Pod:
    return make_pod(volumes=tuple(claim_volume(name) for name in claims))


def refused(found: VolumeLimits, *claims: str) -> list[str]:
    mask = found.refused_nodes(using(*claims))
    return [] if mask is None else [NODES.names[row] for row in np.flatnonzero(mask)]


def test_new_volumes_of_each_driver_count_against_its_own_limit() -> None:
    found = limits(a={"csi_example_com": 2, "other_example_com": 1}, b={"csi_example_com": 3})
    assert refused(found, "c0", "c1") == []
    assert refused(found, "c0", "c1", "c2") == ["a"]
    assert refused(found, "c0", "c1", "d0") == []
    assert refused(found, "d0", "d1") == ["a"]
    found.change(using("c0", "c1"), 0, 1)
    assert refused(found, "c0", "c1") == [], "they are there already"
    assert refused(found, "c2") == ["a"]
    assert refused(found, "c0", "d0") == []
    found.change(using("c1"), 0, 1)
    found.change(using("c0", "c1"), 0, -1)
    assert refused(found, "c2") == []
    assert refused(found, "c2", "c3") == ["a"]
    assert refused(found) == []


def test_attached_volumes_count_once_on_their_own_node() -> None:
    found = limits((("v0", "a"), ("v1", "b"), ("v4", "nowhere")), a={"csi_example_com": 2}, b={"csi_example_com": 1})
    assert refused(found, "c2") == ["b"]
    assert refused(found, "c2", "c3") == ["a", "b"]
    found.change(using("c0"), 0, 1)
    assert refused(found, "c2") == ["b"]


def test_nodes_without_limits_refuse_nothing() -> None:
    found = limits((("v0", "a"),))
    found.change(using("c0"), 0, 1)
    assert refused(found, "c1", "c2", "c3") == []
    zero = limits(a={"csi_example_com": 0}, gone={"csi_example_com": 0})
    assert refused(zero, "c0") == ["a"]
    zero.change(using("c0"), 1, 1)
    assert refused(zero, "d0") == []
