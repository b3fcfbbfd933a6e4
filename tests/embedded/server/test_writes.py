"""Writes, on the embedded server and on a real one: creation, replacement, patches, conflicts, dry runs, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.server.harness import APPLY, JSON_PATCH, MERGE, STRATEGIC, Client

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config(name: str, **data: str) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **spec: Any) -> Unstructured:
    box = {"name": "main", "image": "train"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [box], **spec},
    }


def deployment(name: str) -> Unstructured:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_creation_fills_in_what_is_the_servers(either: Client) -> None:
    answer = either.post(MAPS, config("new", a="b"))
    assert answer.code == 201
    metadata = answer.json["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 1
    assert either.get(f"{MAPS}/new").ok() == answer.json


def test_what_is_there_is_not_created_again(either: Client) -> None:
    either.post(MAPS, config("twice")).ok()
    answer = either.post(MAPS, config("twice"))
    assert (answer.code, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "twice" already exists'
    assert answer.json["details"] == {"name": "twice", "kind": "configmaps"}


def test_a_name_is_made_up(either: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    names = {either.post(MAPS, body).ok()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("made-") and len(name) == 10 for name in names)


def test_a_stale_write_is_a_conflict(either: Client) -> None:
    old = either.post(MAPS, config("stale")).ok()
    either.patch(f"{MAPS}/stale", {"data": {"a": "b"}}).ok()
    answer = either.put(f"{MAPS}/stale", {**old, "data": {"c": "d"}})
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "stale": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    answer = either.patch(
        f"{MAPS}/stale",
        {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"x": "y"}},
    )
    assert answer.code == 409
    assert either.get(f"{MAPS}/stale").ok()["data"] == {"a": "b"}


def test_a_write_for_another_object_of_the_name_is_a_conflict(either: Client) -> None:
    old = either.post(MAPS, config("other")).ok()
    del old["metadata"]["resourceVersion"]
    old["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = either.put(f"{MAPS}/other", old)
    assert answer.code == 409
    assert "Precondition failed: UID in precondition" in answer.message


def test_blind_replacement_where_the_kind_allows_it(either: Client) -> None:
    either.post(MAPS, config("blind")).ok()
    assert either.put(f"{MAPS}/blind", config("blind", a="b")).ok()["data"] == {"a": "b"}
    lease: Unstructured = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "blind"},
        "spec": {},
    }
    assert either.put(f"{LEASES}/blind", lease).code == 201  # a lease may be made by replacing nothing
    answer = either.put(f"{LEASES}/blind", lease)
    assert answer.code == 422
    assert "metadata.resourceVersion: Invalid value" in answer.message
    assert "must be specified for an update" in answer.message
    assert either.put(f"{MAPS}/nowhere", config("nowhere")).code == 404


def test_a_write_that_changes_nothing_makes_no_version(either: Client) -> None:
    made = either.post(MAPS, config("same", a="b")).ok()
    assert either.put(f"{MAPS}/same", made).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    patched = either.patch(f"{MAPS}/same", {"data": {"a": "b"}}).ok()
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_dry_run_does_everything_but_write(either: Client) -> None:
    answer = either.post(MAPS, config("dry"), dryRun="All")
    assert answer.code == 201
    assert answer.json["metadata"]["uid"]
    assert either.get(f"{MAPS}/dry").code == 404
    either.post(MAPS, config("dry", a="b")).ok()
    assert either.patch(f"{MAPS}/dry", {"data": {"a": "c"}}, dryRun="All").ok()["data"] == {"a": "c"}
    assert either.delete(f"{MAPS}/dry", dryRun="All").code == 200
    assert either.get(f"{MAPS}/dry").ok()["data"] == {"a": "b"}
    answer = either.post(MAPS, config("dry-2"), dryRun="Some")
    assert answer.code == 422
    assert 'dryRun: Unsupported value: ["Some"]: supported values: "All"' in answer.message


def test_three_kinds_of_patch(either: Client) -> None:
    either.post(DEPLOYMENTS, deployment("patched")).ok()
    path = f"{DEPLOYMENTS}/patched"
    merged = either.patch(path, {"metadata": {"labels": {"a": "1", "b": "2"}}}, MERGE).ok()
    assert merged["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert "labels" not in either.patch(path, {"metadata": {"labels": None}}, MERGE).ok()["metadata"]
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "other"}]}}}}
    strategic = either.patch(path, side, STRATEGIC).ok()
    names = [box["name"] for box in strategic["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["main", "side"]
    replaced = either.patch(path, side, MERGE).ok()
    assert [box["name"] for box in replaced["spec"]["template"]["spec"]["containers"]] == ["side"]
    operations = [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]
    assert either.patch(path, operations, JSON_PATCH).ok()["spec"]["replicas"] == 5
    assert either.patch(path, operations, JSON_PATCH).code == 422
    assert either.patch(path, {}, "application/xml").code == 415


def test_generation_counts_changes_of_what_is_wanted(either: Client) -> None:
    """Of a pod, since nothing in a cluster without nodes writes to that meanwhile."""
    path = f"{PODS}/counted"
    assert either.post(PODS, pod("counted")).ok()["metadata"]["generation"] == 1
    assert either.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()["metadata"]["generation"] == 1
    assert either.patch(path, {"spec": {"activeDeadlineSeconds": 100}}).ok()["metadata"]["generation"] == 2
    both = {"status": {"message": "here"}, "spec": {"activeDeadlineSeconds": 50}}
    status = either.patch(f"{path}/status", both).ok()
    assert status["metadata"]["generation"] == 2
    assert status["spec"]["activeDeadlineSeconds"] == 100
    assert status["status"]["message"] == "here"
    assert either.patch(path, {"status": {"message": "there"}}).ok()["status"]["message"] == "here"


def test_server_side_apply_keeps_fields_apart(either: Client) -> None:
    path = f"{MAPS}/applied"
    first = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "applied"},
        "data": {"a": "1", "b": "1"},
    }
    answer = either.patch(path, first, APPLY, fieldManager="one")
    assert answer.code == 201
    second = {**first, "data": {"b": "2"}}
    answer = either.patch(path, second, APPLY, fieldManager="two")
    assert answer.code == 409
    assert 'Apply failed with 1 conflict: conflict with "one": .data.b' in answer.message
    assert either.patch(path, second, APPLY, fieldManager="two", force="true").ok()["data"] == {
        "a": "1",
        "b": "2",
    }
    third = {**first, "data": {}}
    assert either.patch(path, third, APPLY, fieldManager="one").ok()["data"] == {"b": "2"}
    answer = either.patch(path, third, APPLY)
    assert answer.code == 422
    assert "fieldManager: Required value: is required for apply patch" in answer.message


def test_scale(either: Client) -> None:
    either.post(DEPLOYMENTS, deployment("scaled")).ok()
    path = f"{DEPLOYMENTS}/scaled/scale"
    scale = either.get(path).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["selector"] == "app=scaled"
    scale["spec"]["replicas"] = 4
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}}
    assert either.put(path, stale).code == 409  # its version is that of the deployment
    del scale["metadata"]["resourceVersion"]
    assert either.put(path, scale).ok()["spec"]["replicas"] == 4
    assert either.get(f"{DEPLOYMENTS}/scaled").ok()["spec"]["replicas"] == 4
    assert either.patch(path, {"spec": {"replicas": 1}}).ok()["spec"]["replicas"] == 1
    assert either.patch(path, {"spec": {"replicas": -1}}).code == 422


def test_binding(either: Client) -> None:
    either.post(PODS, pod("bound")).ok()
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {"windlass.dev/devices": "0,1"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    answer = either.post(f"{PODS}/bound/binding", binding)
    assert answer.code == 201
    assert answer.json["status"] == "Success"
    bound = either.get(f"{PODS}/bound").ok()
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"windlass.dev/devices": "0,1"}
    scheduled = next(condition for condition in bound["status"]["conditions"] if condition["type"] == "PodScheduled")
    assert scheduled["status"] == "True"
    answer = either.post(f"{PODS}/bound/binding", binding)
    assert answer.code == 409
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "n1"'
    )
    assert either.post(f"{PODS}/nobody/binding", {**binding, "metadata": {"name": "nobody"}}).code == 404


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        (MAPS, b"{", 400, ""),
        (MAPS, b"[]", 400, ""),
        (
            MAPS,
            {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
            400,
            'is registered for version \\"apps/v1\\"',
        ),
        (
            MAPS,
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
            400,
            "cannot be handled as a ConfigMap",
        ),
        (
            MAPS,
            {**config("x"), "metadata": {"name": "x", "namespace": "other"}},
            400,
            "does not match the namespace",
        ),
        (MAPS, {**config("x"), "metadata": {}}, 422, "name or generateName is required"),
        (MAPS, {**config("Not_A_Name")}, 422, "a lowercase RFC 1123 subdomain must consist of"),
        ("/api/v1/namespaces/nowhere/configmaps", config("x"), 404, 'namespaces \\"nowhere\\" not found'),
        ("/api/v1/configmaps", config("x"), 405, ""),
        ("/api/v1/namespaces/default/unknowns", config("x"), 404, ""),
        ("/apis/none.example/v1/namespaces/default/unknowns", config("x"), 404, ""),
        (MAPS, {**config("x"), "data": {"a": 1}}, 400, "cannot unmarshal number into Go struct field"),
    ],
)
def test_refusals_of_creations(either: Client, path: str, body: object, code: int, words: str) -> None:
    answer = either.post(path, body)
    assert answer.code == code
    assert words in answer.data.decode()


def test_unknown_fields_are_dropped_warned_of_or_refused(either: Client) -> None:
    body = {**config("unknown"), "colour": "red"}
    answer = either.post(MAPS, body, fieldValidation="Strict")
    assert answer.code == 400
    assert 'unknown field "colour"' in answer.message
    answer = either.post(MAPS, body, fieldValidation="Warn")
    assert answer.code == 201
    assert 'unknown field \\"colour\\"' in answer.headers["Warning"]
    assert "colour" not in answer.json


def test_an_object_of_another_name_is_not_replaced(either: Client) -> None:
    either.post(MAPS, config("named")).ok()
    answer = either.put(f"{MAPS}/named", config("renamed"))
    assert answer.code == 400
    assert answer.message == "the name of the object (renamed) does not match the name on the URL (named)"
