"""Devices of bound pods: known ones come first, guesses take what is left, in any order of events."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.invariants.objects import (
    DEVICES,
    EPOCH,
    GPU,
    cluster_queue,
    flavor,
    node,
    pod,
    pod_group,
    pod_spec,
)

from windlass.cluster.delta import Deleted, Put
from windlass.cluster.node_state import FREE_MILLI
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.unstructured import Unstructured

NODE = node("n0", 8, 2, "all", "r0")


def bound(name: str, devices: str = "", share: str = "", created: int = EPOCH) -> Unstructured:
    made = pod(name, pod_spec(1, 0 if share else 1, nodeName="n0"), created=created, share=share)
    if devices:
        made["metadata"]["annotations"][DEVICES] = devices
    return made


def filled(*trees: Unstructured) -> Store:
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in trees)
    return store


def free_devices(store: Store) -> list[int]:
    return [int(left) for left in store.snapshot().node_state.device_occupancy[:, FREE_MILLI]]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_guess_never_takes_a_device_that_somebody_is_known_to_have(order: tuple[int, ...]) -> None:
    trees = [NODE, bound("guessed"), bound("known", devices="0")]
    store = filled(*(trees[index] for index in order))
    pods = store.snapshot().pods
    where = {
        one.metadata.name: [grant.index for grant in grants]
        for one, grants in zip(pods.objects, pods.grants, strict=True)
    }
    assert where == {"guessed": [1], "known": [0]}
    assert free_devices(store) == [0, 0]


def test_guesses_do_not_depend_on_the_order_of_arrival() -> None:
    trees = [
        bound("a", share="0.5"),
        bound("b", created=EPOCH + 1),
        bound("c", share="0.3", created=EPOCH + 2),
    ]
    states = {tuple(free_devices(filled(NODE, *order))) for order in permutations(trees)}
    assert states == {(200, 0)}


def test_a_guess_is_given_back_when_its_pod_goes() -> None:
    store = filled(NODE, bound("a"), bound("b", devices="0"))
    store.apply([Deleted("Pod", "team/a")])
    assert free_devices(store) == [0, 1000]
    store.apply([Deleted("Pod", "team/b"), Put(decode_object(bound("c")))])
    assert free_devices(store) == [0, 1000]


def test_guesses_are_made_again_when_nodes_change() -> None:
    store = filled(NODE, bound("a"), bound("b", devices="0"))
    store.apply([Put(decode_object(node("n1", 4, 2, "all", "r0")))])
    assert free_devices(store) == [0, 0, 1000, 1000]


def test_queues_and_groups_can_go() -> None:
    quota = {"all": {"cpu": {"nominalQuota": "1"}, GPU: {"nominalQuota": "1"}}}
    store = filled(NODE, flavor("all", {}), cluster_queue("q", quota), pod_group("g", 1, EPOCH))
    assert store.snapshot().queue_system.queues.keys() == {"q"}
    store.apply(
        [
            Deleted("ClusterQueue", "q"),
            Deleted("PodGroup", "team/g", "scheduling.volcano.sh"),
            Deleted("PodGroup", "team/g"),
        ]
    )
    assert store.snapshot().queue_system.queues == {}


def test_affinity_of_a_guessed_pod_counts_where_another_claims_its_device() -> None:
    """The node's row is written again then, and the rules of the pods on it stay."""
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    guessed = bound("guessed")
    guessed["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    store = filled(NODE, guessed, bound("known", devices="0"))
    for number, devices in enumerate(("0", "1", "0")):
        store.apply([Put(decode_object(bound(f"claims-{number}", devices=devices)))])
        assert store.snapshot().pods_with_affinity == 1
