"""Requests that are large, or small and stand for much: answered in a time that grows with their size, or refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import urllib3
from tests.embedded.server.harness import APPLY, JSON_PATCH, Client

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"


def config_map(name: str, **fields: object) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def test_aliases_that_stand_for_millions_of_values_are_refused(client: Client) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 7)]
    bomb = "\n".join(["apiVersion: v1", "kind: ConfigMap", "metadata: {name: bomb}", *lines]).encode()
    assert client.send("POST", MAPS, bomb, YAML).code == 400
    assert client.send("PATCH", f"{MAPS}/bomb", bomb, APPLY, fieldManager="me").code == 400
    assert client.get(f"{MAPS}/bomb").code == 404


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("!!timestamp soon", 201),
        ("!!bool maybe", 400),
        ("!!int ''", 400),
        ("1" * 5000, 400),
        ("0x" + "f" * 5000, 400),
        (".nan", 400),
        ("[.inf]", 400),
    ],
)
def test_yaml_that_python_stumbles_over(client: Client, value: str, code: int) -> None:
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{generateName: odd-}}\ndata: {{a: {value}}}\n"
    assert client.send("POST", MAPS, body.encode(), YAML).code == code


def test_copies_of_copies_are_refused(client: Client) -> None:
    client.post(MAPS, config_map("copied", data={"a": "x" * 1000})).ok()
    copies = [{"op": "copy", "from": "/data", "path": f"/data/c{number}"} for number in range(14)]
    assert client.patch(f"{MAPS}/copied", copies, JSON_PATCH).code == 422
    assert set(client.get(f"{MAPS}/copied").ok()["data"]) == {"a"}
    one = [{"op": "copy", "from": "/data/a", "path": "/data/b"}]
    assert client.patch(f"{MAPS}/copied", one, JSON_PATCH).ok()["data"] == {"a": "x" * 1000, "b": "x" * 1000}


def test_thousands_of_fields_are_owned_and_given_up(client: Client) -> None:
    path, count = f"{MAPS}/wide", 40_000
    data = {f"key-{number}": "v" for number in range(count)}
    made = client.patch(path, config_map("wide", data=data), APPLY, fieldManager="me").ok()
    assert len(made["data"]) == count
    client.patch(path, {"data": {"other": "v"}}).ok()
    left = client.patch(path, config_map("wide"), APPLY, fieldManager="me").ok()
    assert left["data"] == {"other": "v"}


def test_long_lists_of_a_custom_kind(client: Client) -> None:
    text = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    schema = {"type": "object", "properties": {"words": text}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lists.large.example.com"},
        "spec": {
            "group": "large.example.com",
            "scope": "Namespaced",
            "names": {"plural": "lists", "kind": "List"},
            "versions": [version],
        },
    }
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).ok()
    path = "/apis/large.example.com/v1/namespaces/default/lists"
    made = {"apiVersion": "large.example.com/v1", "kind": "List", "metadata": {"name": "long"}}
    words = [str(number) for number in range(50_000)]
    assert client.post(path, {**made, "words": words}).code == 201
    again = client.post(path, {**made, "words": [*words, "7"]})
    assert (again.code, "Duplicate value" in again.message) == (422, True)


def test_a_long_path_is_read_and_an_endless_one_refused(client: Client) -> None:
    """A selector of thousands of names, or a script that is to be executed, stands in the path."""
    names = ",".join(f"name-{number}" for number in range(5000))
    assert client.get(MAPS, labelSelector=f"x in ({names})").ok()["items"] == []
    assert client.send("GET", MAPS, headers={"X-Large": "x" * 9000}).code == 400
    with suppress(urllib3.exceptions.HTTPError):  # it may be closed before all of it was sent
        assert client.get(MAPS, labelSelector="x" * (1 << 20)).code == 400
    assert client.get(MAPS, labelSelector="x=y").ok()["items"] == []


def test_a_body_beyond_the_limit_is_refused(client: Client) -> None:
    body = json.dumps(config_map("huge", data={"a": "x" * (4 << 20)})).encode()
    refused = client.send("POST", MAPS, body)
    assert (refused.code, refused.json["reason"]) == (413, "RequestEntityTooLarge")
