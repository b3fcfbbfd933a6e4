"""The table of kinds: everything that Windlass itself reads is there, with schema, discovery and OpenAPI."""

from __future__ import annotations

import pytest
from tests.embedded.api.custom_samples import definition
from tests.embedded.api.desk import Desk

from windlass.embedded.api import discovery, openapi, openapi_protobuf
from windlass.embedded.api.kinds import BUILT_IN_KINDS, Kinds
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.api.schema import definitions, kind_schema
from windlass.kube.resources import WATCHED_KINDS


def test_every_kind_that_the_scheduler_needs_is_served() -> None:
    kinds = Kinds()
    for kind in WATCHED_KINDS:
        if kind.required:
            assert kinds.by_path(kind.group, kind.versions[0], kind.plural) is not None, kind.plural


def test_every_kind_has_a_schema() -> None:
    for kind in BUILT_IN_KINDS:
        assert kind_schema(kind).type == "struct"


def test_events_have_one_store() -> None:
    kinds = Kinds()
    assert {kind.storage_resource for kind in kinds if kind.kind == "Event"} == {"events"}


def test_a_kind_is_found_by_path_name_and_object() -> None:
    kinds = Kinds()
    job = kinds.by_path("batch", "v1", "jobs")
    assert job is not None
    assert kinds.by_resource("jobs.batch") is job
    assert kinds.by_kind("batch/v1", "Job") is job
    assert kinds.by_kind("batch/v2", "Job") is None


def test_discovery_has_both_forms_of_everything() -> None:
    kinds = Kinds()
    plain = {
        (group, resource["name"], resource["kind"], tuple(resource["verbs"]))
        for group in ("", *kinds.groups())
        for resource in (discovery.resources(kinds, group, "v1") or {"resources": []})["resources"]
    }
    aggregated = set()
    for core in (True, False):
        for group in discovery.aggregated(kinds, core)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for item in version["resources"]:
                    kind = item["responseKind"]["kind"]
                    aggregated.add((name, item["resource"], kind, tuple(item["verbs"])))
                    for sub in item.get("subresources", ()):
                        full = f"{item['resource']}/{sub['subresource']}"
                        aggregated.add((name, full, sub["responseKind"]["kind"], tuple(sub["verbs"])))
    assert plain == aggregated


def test_a_custom_kind_comes_and_goes() -> None:
    desk = Desk()
    before = desk.machinery.kinds.generation
    crd = desk.create(definition())
    assert desk.machinery.kinds.by_resource("widgets.example.com") is not None
    assert desk.machinery.kinds.generation > before
    assert openapi.v3(desk.machinery, "example.com", "v1") is not None
    desk.machinery.stop_serving_crd(crd)
    assert desk.machinery.kinds.by_resource("widgets.example.com") is None
    assert openapi.v3(desk.machinery, "example.com", "v1") is None


def test_openapi_refers_to_nothing_that_is_missing() -> None:
    machinery = Machinery()

    def references(node: object) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(value) for value in node.values()), set())
        return set().union(*(references(item) for item in node)) if isinstance(node, list) else set()

    for kind in BUILT_IN_KINDS:
        document = openapi.v3(machinery, kind.group, kind.version)
        assert document is not None
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert references(document) <= known
    document = openapi.v2(machinery)
    assert references(document) <= {f"#/definitions/{name}" for name in document["definitions"]}


def test_openapi_tells_kubectl_that_fields_are_checked() -> None:
    document = openapi.v3(Machinery(), "apps", "v1")
    assert document is not None
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Deployment"
    assert b"fieldValidation" in openapi_protobuf.v2(Machinery())


def test_merge_keys_are_in_openapi() -> None:
    document = openapi.v3(Machinery(), "", "v1")
    assert document is not None
    containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


def test_the_words_are_about_fields_that_exist() -> None:
    for name, fields in openapi.descriptions().items():
        known = {"", *definitions()[name].get("properties", {})}
        assert set(fields) <= known, name


@pytest.mark.parametrize(
    "name", ["io.k8s.api.core.v1.PodSpec", "io.k8s.api.core.v1.Container", "io.k8s.api.batch.v1.JobSpec"]
)
def test_what_people_look_up_is_described(name: str) -> None:
    described = openapi.descriptions()[name]
    missing = set(definitions()[name]["properties"]) - set(described)
    assert len(missing) <= 5, missing
