"""Kueue's queue kinds in both versions of its API become one QueueSystem; what is wrong is refused by its path."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.kueue_samples import (
    CLUSTER_QUEUE,
    COHORT,
    FLAVOR,
    LOCAL_QUEUE,
    OLD_CLUSTER_QUEUE,
    QUEUE_OBJECTS,
    TOPOLOGY,
    changed,
    decoded,
)

from windlass.model.codec import decode_object, encode_object
from windlass.model.errors import InputError
from windlass.model.kueue import queue_system
from windlass.model.queue import FlavorResourceQuota, Fungibility, PreemptionPolicy, QueueSystem
from windlass.model.unstructured import Unstructured

GROUP = "spec/resourceGroups/0"
QUOTA = f"{GROUP}/flavors/0/resources"


def system(*trees: Unstructured) -> QueueSystem:
    return queue_system(decoded(*trees))


def test_a_cluster_queue_arrives_whole() -> None:
    queue = system(*QUEUE_OBJECTS).queues["team-a"]
    assert queue.cohort == "lab"
    assert queue.queueing_strategy == "StrictFIFO"
    assert queue.fungibility == Fungibility("TryNextFlavor", "MayStopSearch", "BorrowingOverPreemption")
    assert queue.preemption == PreemptionPolicy("LowerPriority", "Any", "LowerPriority", -3)
    assert queue.fair_weight_milli == 1500
    assert queue.usage_based
    assert queue.namespace_selector is not None
    assert queue.inactive_reason == ""


def test_quota_is_counted_in_base_units_and_gpus_in_thousandths() -> None:
    [group] = system(*QUEUE_OBJECTS).queues["team-a"].resource_groups
    [flavor] = group.flavors
    assert group.resources == ("cpu", "memory", "nvidia.com/gpu")
    assert flavor.quotas["cpu"] == FlavorResourceQuota(1500)
    assert flavor.quotas["memory"] == FlavorResourceQuota(2 << 30, None, 1 << 30)
    assert flavor.quotas["nvidia.com/gpu"] == FlavorResourceQuota(8000, 500)


def test_the_old_names_mean_the_same() -> None:
    old = system(*QUEUE_OBJECTS).queues["old"]
    assert old.cohort == "lab"
    assert old.fungibility == Fungibility("MayStopSearch", "MayStopSearch")
    assert old.namespace_selector is not None
    assert system(changed(COHORT, "spec", {"parent": "top"})).cohorts["lab"].parent == "top"


def test_no_namespace_selector_selects_nothing() -> None:
    tree = changed(CLUSTER_QUEUE, "spec/namespaceSelector", None)
    assert system(tree, FLAVOR, TOPOLOGY).queues["team-a"].namespace_selector is None


def test_the_rest_arrives() -> None:
    made = system(
        *QUEUE_OBJECTS,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "batch"},
            "value": -5,
            "globalDefault": True,
            "preemptionPolicy": "Never",
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "eng", "labels": {"dep": "eng"}}},
    )
    queue = made.local_queues["eng/main"]
    assert (queue.cluster_queue, queue.fair_weight_milli) == ("team-a", 2000)
    assert queue.consumed == {"cpu": 8000, "nvidia.com/gpu": 1000}
    assert queue.consumed_at == 1767225600
    flavor = made.flavors["h100"]
    assert flavor.node_labels == {"pool": "h100"}
    assert flavor.node_taints[0].key == flavor.tolerations[0].key == "gpu"
    assert made.topologies["racks"].levels == ("example.com/rack", "kubernetes.io/hostname")
    assert made.workload_priority_classes == {"urgent": 900}
    assert made.priority_classes["batch"] == -5
    assert made.default_priority_class == "batch"
    assert made.non_preempting_classes == {"batch"}
    assert made.namespaces == {"eng": {"dep": "eng"}}


def test_cohorts_exist_by_being_named() -> None:
    made = system(*QUEUE_OBJECTS)
    assert made.cohorts["lab"].fair_weight_milli == 100
    assert made.cohorts["company"].parent == ""
    assert made.cohorts["company"].resource_groups == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("spec/admissionChecksStrategy", {"admissionChecks": [{"name": "p"}]}), "admissionChecks[0]"),
        (("spec/admissionChecks", ["p"]), "spec.admissionChecks"),
        (("spec/concurrentAdmissionPolicy", {"migration": {"mode": "x"}}), "spec.concurrentAdmissionPolicy"),
        ((f"{QUOTA}/0/ceiling", "3"), "spec.resourceGroups[0].flavors[0].resources[0].ceiling"),
    ],
)
def test_what_is_not_implemented_makes_the_queue_inactive_by_its_path(change: tuple[str, Any], words: str) -> None:
    queue = system(changed(CLUSTER_QUEUE, *change), FLAVOR, TOPOLOGY).queues["team-a"]
    assert words in queue.inactive_reason


def test_a_check_on_one_flavor_closes_that_flavor_only() -> None:
    checks = {"admissionChecks": [{"name": "p", "onFlavors": ["h100"]}]}
    queue = system(changed(CLUSTER_QUEUE, "spec/admissionChecksStrategy", checks), FLAVOR, TOPOLOGY).queues["team-a"]
    assert queue.inactive_reason == ""
    assert "spec.admissionChecksStrategy.admissionChecks[0]" in queue.resource_groups[0].flavors[0].inactive_reason


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        ((CLUSTER_QUEUE,), "flavor h100 not found"),
        ((CLUSTER_QUEUE, FLAVOR), "topology racks of flavor h100 not found"),
        (
            (CLUSTER_QUEUE, changed(FLAVOR, "spec/drivers", ["x"]), TOPOLOGY),
            "ResourceFlavor h100: spec.drivers",
        ),
        (
            (CLUSTER_QUEUE, FLAVOR, changed(TOPOLOGY, "spec/levels/0/alias", "x")),
            "Topology racks: spec.levels[0]",
        ),
        ((CLUSTER_QUEUE, FLAVOR, TOPOLOGY, changed(COHORT, "spec/x", 1)), "Cohort lab: spec.x"),
    ],
)
def test_what_a_queue_rests_on_makes_it_inactive(trees: tuple[Unstructured, ...], words: str) -> None:
    assert words in system(*trees).queues["team-a"].inactive_reason


def test_a_field_of_a_local_queue_that_is_not_understood_makes_it_inactive() -> None:
    made = system(changed(LOCAL_QUEUE, "spec/x", 1))
    assert [one.inactive_reason for one in made.local_queues.values()] == ["spec.x is not implemented"]


def test_a_cycle_of_cohorts_takes_down_the_tree() -> None:
    above = changed(changed(COHORT, "metadata/name", "company"), "spec/parentName", "lab")
    made = system(CLUSTER_QUEUE, FLAVOR, TOPOLOGY, COHORT, above)
    assert "lab > company > lab" in made.queues["team-a"].inactive_reason


@pytest.mark.parametrize(
    ("tree", "path", "value", "where"),
    [
        (CLUSTER_QUEUE, "spec/queueingStrategy", "LIFO", "spec.queueingStrategy"),
        (CLUSTER_QUEUE, "spec/stopPolicy", "Pause", "spec.stopPolicy"),
        (CLUSTER_QUEUE, "spec/cohort", "other", "spec.cohort"),
        (
            CLUSTER_QUEUE,
            "spec/flavorFungibility/whenCanBorrow",
            "Preempt",
            "spec.flavorFungibility.whenCanBorrow",
        ),
        (CLUSTER_QUEUE, "spec/flavorFungibility/preference", "x", "spec.flavorFungibility.preference"),
        (
            CLUSTER_QUEUE,
            "spec/preemption/reclaimWithinCohort",
            "Never",
            "spec.preemption.borrowWithinCohort.policy",
        ),
        (CLUSTER_QUEUE, "spec/fairSharing/weight", "-1", "spec.fairSharing.weight"),
        (CLUSTER_QUEUE, "spec/admissionScope/admissionMode", "x", "spec.admissionScope.admissionMode"),
        (CLUSTER_QUEUE, f"{QUOTA}/1/nominalQuota", "2Gig", f"{QUOTA}/1/nominalQuota"),
        (CLUSTER_QUEUE, f"{QUOTA}/0/nominalQuota", "-2", f"{QUOTA}/0/nominalQuota"),
        (CLUSTER_QUEUE, f"{QUOTA}/0/name", "disk", f"{QUOTA}/0/name"),
        (CLUSTER_QUEUE, f"{GROUP}/coveredResources/1", "cpu", f"{GROUP}/coveredResources/1"),
        (CLUSTER_QUEUE, "spec/cohortName", "", f"{QUOTA}/1/lendingLimit"),
        (
            CLUSTER_QUEUE,
            "spec/namespaceSelector/matchExpressions/0/operator",
            "Has",
            "matchExpressions[0].operator",
        ),
        (LOCAL_QUEUE, "spec/clusterQueue", "", "spec.clusterQueue"),
        (FLAVOR, "spec/nodeTaints/0/effect", "Never", "spec.nodeTaints[0].effect"),
        (TOPOLOGY, "spec/levels", [], "spec.levels"),
        (TOPOLOGY, "spec/levels/0/nodeLabel", "kubernetes.io/hostname", "spec.levels[0].nodeLabel"),
        (OLD_CLUSTER_QUEUE, "metadata/name", "", "metadata.name"),
        (OLD_CLUSTER_QUEUE, "spec/cohort", 3, "spec.cohort"),
    ],
)
def test_the_wrong_field_is_named(tree: Unstructured, path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(tree, path, value))
    for number in "012":
        where = where.replace(f"/{number}", f"[{number}]")
    assert where.replace("/", ".") in caught.value.path
    assert caught.value.object.startswith(tree["kind"])


@pytest.mark.parametrize("tree", QUEUE_OBJECTS, ids=lambda tree: tree["metadata"]["name"])
def test_in_and_out_unchanged(tree: Unstructured) -> None:
    thing = decode_object(tree)
    written = encode_object(thing)
    assert decode_object(written) == thing
    assert f'"{tree["apiVersion"]}"'.encode() in written


def test_a_topology_of_another_project_is_not_kueues() -> None:
    other = changed(TOPOLOGY, "apiVersion", "kai.scheduler/v1alpha1")
    assert system(other).topologies == {}
