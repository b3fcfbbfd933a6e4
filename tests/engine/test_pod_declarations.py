"""What a pod declares counts, whatever else is in the cluster: owner, group, queue and run limit.

A dump may hold nothing but nodes and pods. An object that has nothing to do with them, such as a PriorityClass, must
not change what is decided.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.plain_objects import TWO_NODES, holds, node, owned, planned, pod

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

BYSTANDER = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "other"}}


def test_pods_of_a_training_job_start_together_though_the_job_is_not_at_hand():
    pods = [pod(f"w-{i}", metadata=owned("kubeflow.org/v1", "PyTorchJob")) for i in range(3)]
    plan, _ = planned(*TWO_NODES, *pods)
    assert not plan.binds
    assert holds(plan) == {"default/o": "REQUEST_EXCEEDS_CLUSTER"}


def test_an_owner_of_an_unknown_kind_is_said_to_be_ungrouped():
    plan, notes = planned(*TWO_NODES, *[pod(f"w-{i}", metadata=owned("foo.io/v1", "Foo")) for i in range(3)])
    assert len(plan.binds) == 2
    assert any("Foo default/o" in note and "name no group" in note for note in notes)


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {}),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {}),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}),
    ],
)
def test_a_group_that_does_not_exist_is_waited_for(metadata: Unstructured, spec: Unstructured):
    plan, _ = planned(*TWO_NODES, *[pod(f"w-{i}", metadata=metadata, **spec) for i in range(2)])
    assert not plan.binds
    assert holds(plan) == {"default/g": "GANG_INCOMPLETE"}


def test_a_queue_that_does_not_exist_is_waited_for():
    plan, _ = planned(*TWO_NODES, pod("p", metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}))
    assert holds(plan) == {"default/p": "KUEUE_QUEUE_MISSING"}


def test_lone_pods_are_planned_and_backfilled():
    later = "2026-01-01T01:00:00Z"
    plan, _ = planned(
        node("n1"),
        pod("runs", 4, on="n1", activeDeadlineSeconds=50_000),
        pod("whole"),
        pod("endless", 1, at=later),
        pod("quick", 1, at=later, activeDeadlineSeconds=600),
    )
    assert [bind.pod for bind in plan.binds] == ["default/quick"]
    assert holds(plan) == {"default/whole": "GPU_FULL", "default/endless": "RESERVED_FOR_OTHERS"}
    whole = next(hold.verdict for hold in plan.holds if hold.workload == "default/whole")
    assert whole.planned_start == parse_timestamp("2026-01-01T13:53:20Z")


def test_a_declared_duration_of_a_lone_pod_ends_it():
    over = {"annotations": {"windlass.dev/duration": "1h"}}
    plan, _ = planned(node("n1"), pod("runs", on="n1", metadata=over))
    assert [(evict.workload, evict.reason) for evict in plan.evicts] == [("default/runs", "DurationExceeded")]
    plan, _ = planned(node("n1"), pod("runs", on="n1", metadata={"annotations": {"windlass.dev/duration": "13h"}}))
    assert not plan.evicts


def test_a_member_above_the_minimum_is_held_by_its_own_name():
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    members = [pod(f"m-{i}", metadata={"labels": {"scheduling.x-k8s.io/pod-group": "g"}}) for i in range(3)]
    plan, _ = planned(*TWO_NODES, group, *members)
    assert [bind.pod for bind in plan.binds] == ["default/m-0", "default/m-1"]
    assert holds(plan) == {"default/m-2": "GPU_FULL"}
    assert "this pod above the minimum waits" in next(iter(plan.holds)).verdict.message
    assert [(pod_set.count, pod_set.wanted) for pod_set in plan.admits[0].pod_sets] == [(2, 3)]


def test_a_train_job_waits_for_its_job_set():
    named = {"name": "t", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"suspend": True, "runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}
    api = "trainer.kubeflow.org/v1alpha1"
    plan, _ = planned(*TWO_NODES, {"apiVersion": api, "kind": "TrainJob", "metadata": named, "spec": spec})
    assert holds(plan) == {"default/t": "GANG_INCOMPLETE"}
    assert "to create a JobSet" in next(iter(plan.holds)).verdict.message


def test_a_topology_without_any_node_is_no_trouble():
    kueue = "kueue.x-k8s.io/v1beta2"
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "f", "resources": quota}]}
    topology = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    objects = [
        ("Topology", {"name": "t"}, topology),
        ("ResourceFlavor", {"name": "f"}, {"topologyName": "t", "nodeLabels": {"a": "b"}}),
        ("ClusterQueue", {"name": "q"}, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", {"name": "q", "namespace": "default"}, {"clusterQueue": "q"}),
    ]
    queue = [{"apiVersion": kueue, "kind": k, "metadata": m, "spec": s} for k, m, s in objects]
    plan, _ = planned(*queue, pod("p", metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}))
    assert set(holds(plan)) == {"default/p"}


def test_annotations_that_can_not_be_read_are_said():
    wrong = {"windlass.dev/placement": "nice", "windlass.dev/duration": "for ever"}
    plan, notes = planned(*TWO_NODES, pod("p", metadata={"annotations": wrong}))
    assert len(plan.binds) == 1
    assert [note.partition(":")[2].partition(" can")[0] for note in notes] == [
        " annotation windlass.dev/placement: 'nice'",
        " annotation windlass.dev/duration: 'for ever'",
    ]
    right = {
        "windlass.dev/placement": "pack",
        "windlass.dev/duration": "2h",
        "windlass.dev/restart-cost": "0s",
    }
    assert not planned(*TWO_NODES, pod("p", metadata={"annotations": right}))[1]


MARKS = st.sampled_from(
    [
        {},
        {"metadata": owned("kubeflow.org/v1", "PyTorchJob")},
        {"metadata": owned("foo.io/v1", "Foo")},
        {"metadata": owned("apps/v1", "ReplicaSet")},
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}},
        {"metadata": {"annotations": {"windlass.dev/duration": "2h"}}},
        {"activeDeadlineSeconds": 90_000},
        {"schedulingGroup": {"podGroupName": "n"}},
    ]
)


@given(st.lists(st.tuples(MARKS, st.sampled_from([1, 4, 8]), st.sampled_from(["", "", "n1", "n2"])), max_size=6))
def test_an_object_that_has_nothing_to_do_with_it_changes_nothing(
    wishes: list[tuple[Unstructured, int, str]],
):
    free = {"n1": 8, "n2": 8}
    pods = []
    for number, (mark, gpus, on) in enumerate(wishes):
        place = on if on and free[on] >= gpus else ""
        if place:
            free[place] -= gpus
        pods.append(pod(f"p-{number}", gpus, on=place, **mark))
    alone, notes = planned(*TWO_NODES, *pods)
    beside, more_notes = planned(*TWO_NODES, *pods, BYSTANDER)
    assert list(alone.binds) == list(beside.binds)
    assert list(alone.evicts) == list(beside.evicts)
    assert holds(alone) == holds(beside)
    assert notes == more_notes
