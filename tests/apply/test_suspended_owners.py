"""Owners that a queue stops and starts: every kind's field, and templates under the names that the model gives sets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.live.owner_kinds import is_suspended, suspended_owners
from tests.live.test_live_queues import job

from windlass.apply.owners import (
    SUSPEND_FIELDS,
    annotate,
    patched_kinds,
    pod_templates_of,
    suspend_owner,
    terminal_state,
)
from windlass.kube.resources import WATCHED_KINDS
from windlass.model.codec import decode_object
from windlass.model.owners import OwnerObject, owner_from_object

OWNERS = [job("j", 2, 1), *suspended_owners()]


RESOURCE = {kind.kind: kind.resource_at(kind.versions[0]) for kind in WATCHED_KINDS}


def test_there_is_a_sample_of_every_kind() -> None:
    assert {one["kind"] for one in OWNERS} == set(SUSPEND_FIELDS)


@pytest.mark.parametrize("tree", OWNERS, ids=lambda one: one["kind"])
def test_the_field_that_stops_it(tree: dict[str, Any]) -> None:
    (kind,) = [one for one in WATCHED_KINDS if one.kind == tree["kind"]]
    for suspended in (False, True):
        body = suspend_owner(kind.resource_at(kind.versions[0]), "default/x", "u", suspended).body
        assert body["metadata"] == {"uid": "u"}
        assert is_suspended({**body, "kind": kind.kind}) is suspended
    wire = decode_object(tree)
    assert isinstance(wire, OwnerObject)
    assert owner_from_object(wire).suspended, "the model reads the same field"


@pytest.mark.parametrize("tree", OWNERS, ids=lambda one: one["kind"])
def test_templates_have_the_names_of_the_sets(tree: dict[str, Any]) -> None:
    wire = decode_object(tree)
    assert isinstance(wire, OwnerObject)
    named = {one.name for one in owner_from_object(wire).pod_sets}
    made_by_controller = {"RayJob": {"submitter"}, "SparkApplication": named, "AppWrapper": named}
    assert set(pod_templates_of(tree)) == named - made_by_controller.get(tree["kind"], set())


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({}, ""),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Completed", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Succeeded", "status": "False"}]}, ""),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "Failed"),
        ({"jobStatus": "RUNNING"}, ""),
        ({"jobStatus": "SUCCEEDED"}, "Succeeded"),
        ({"jobStatus": "STOPPED"}, "Failed"),
    ],
)
def test_how_it_has_ended(status: dict[str, Any], end: str) -> None:
    wire = decode_object({**OWNERS[1], "status": status})
    assert isinstance(wire, OwnerObject)
    assert terminal_state(wire) == end


@pytest.mark.parametrize("kind", SUSPEND_FIELDS)
@pytest.mark.parametrize("suspended", [False, True])
def test_suspending_patches_one_field_of_one_object(kind: str, suspended: bool) -> None:
    request = suspend_owner(RESOURCE[kind], "team/x", "u", suspended)
    in_run_policy = kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
    spec = {"runPolicy": {"suspend": suspended}} if in_run_policy else {"suspend": suspended}
    assert request.body == {"spec": spec, "metadata": {"uid": "u"}}
    assert (request.method, request.content_type) == ("PATCH", "application/merge-patch+json")
    assert request.path == RESOURCE[kind].path("team/x")


def test_an_annotation_is_added_to_one_object() -> None:
    request = annotate(RESOURCE["PodGroup"], "team/x", "u", {"a": "1"})
    assert request.body == {"metadata": {"uid": "u", "annotations": {"a": "1"}}}
    assert (request.method, request.content_type) == ("PATCH", "application/merge-patch+json")


def test_templates_are_whole_and_sets_without_a_name_are_left_out() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [], "hostIPC": True}}
    jobs = [
        {"name": "w", "template": {"spec": {"template": template}}},
        {"template": {"spec": {"template": {}}}},
    ]
    assert pod_templates_of({"kind": "JobSet", "spec": {"replicatedJobs": jobs}}) == {"w": template}
    assert pod_templates_of({"kind": "JobSet", "spec": {}}) == {}
    assert pod_templates_of({"kind": "JobSet"}) == {}
    assert pod_templates_of({"kind": "Job", "spec": {"template": template}}) == {"main": template}


def test_a_ray_job_has_the_templates_of_its_cluster_and_of_its_submitter() -> None:
    workers = [{"groupName": "gpus", "template": {"spec": {"a": 1}}}]
    cluster = {"headGroupSpec": {"template": {"spec": {"b": 2}}}, "workerGroupSpecs": workers}
    found = {"headgroup": {"spec": {"b": 2}}, "gpus": {"spec": {"a": 1}}}
    assert pod_templates_of({"kind": "RayCluster", "spec": cluster}) == found
    assert pod_templates_of({"kind": "RayJob", "spec": {"rayClusterSpec": cluster}}) == found
    submitted = {"rayClusterSpec": cluster, "submitterPodTemplate": {"spec": {"c": 3}}}
    assert pod_templates_of({"kind": "RayJob", "spec": submitted}) == {
        **found,
        "submitter": {"spec": {"c": 3}},
    }
    headless = {"headGroupSpec": {"template": {}}}
    assert pod_templates_of({"kind": "RayCluster", "spec": headless}) == {"headgroup": {}}


def test_of_a_training_job_only_the_replica_specs_are_templates() -> None:
    roles = {"Master": {"template": {"spec": {"a": 1}}}, "Worker": {"template": {"spec": {"b": 2}}}}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"suspend": True}, "elasticPolicy": None}
    assert pod_templates_of({"kind": "PyTorchJob", "spec": spec}) == {
        "master": {"spec": {"a": 1}},
        "worker": {"spec": {"b": 2}},
    }
    assert pod_templates_of({"kind": "TFJob", "spec": {"tfReplicaSpecs": None}}) == {}


def test_the_first_condition_that_is_true_says_how_it_ended() -> None:
    conditions = [
        {"type": "Suspended", "status": "True"},
        {"type": "Complete", "status": "False"},
        {"type": "Failed", "status": "True"},
    ]
    wire = decode_object({**OWNERS[0], "status": {"conditions": conditions}})
    assert isinstance(wire, OwnerObject)
    assert terminal_state(wire) == "Failed"


def test_what_is_patched_is_what_can_be_suspended_or_annotated() -> None:
    kinds = [(kind.kind, kind.group, kind.plural) for kind in WATCHED_KINDS]
    found = list(patched_kinds(kinds))
    assert ("batch", "jobs") in found
    assert ("leaderworkerset.x-k8s.io", "leaderworkersets") in found
    assert [group for group, plural in found if plural == "podgroups"] == [
        "scheduling.x-k8s.io",
        "scheduling.volcano.sh",
        "scheduling.k8s.io",
        "scheduling.run.ai",
    ]
    assert not {"pods", "nodes", "workloads", "clusterqueues"} & {plural for _, plural in found}
    assert len(found) == len(SUSPEND_FIELDS) + 5
