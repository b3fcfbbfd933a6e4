"""Lists, on the embedded server and on a real one: order, versions, pages that show one moment, selectors, forms."""

from __future__ import annotations

import base64
import json

import pytest
from tests.embedded.server.harness import Client

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def config(name: str, **labels: str) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def fill(api: Client, prefix: str, count: int) -> list[str]:
    names = [f"{prefix}-{number:02}" for number in range(count)]
    for number, name in enumerate(reversed(names)):
        api.post(MAPS, config(name, of=prefix, odd=str(number % 2))).ok()
    return names


def names_of(page: Unstructured) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


def test_a_list_is_in_the_order_of_names_and_says_its_version(either: Client) -> None:
    names = fill(either, "order", 5)
    page = either.get(MAPS, labelSelector="of=order").ok()
    assert names_of(page) == names
    assert page["kind"] == "ConfigMapList"
    assert page["apiVersion"] == "v1"
    assert int(page["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in page["items"]
    )


def test_pages_show_the_moment_of_the_first_one(either: Client) -> None:
    names = fill(either, "pages", 7)
    first = either.get(MAPS, labelSelector="of=pages", limit=3).ok()
    assert names_of(first) == names[:3]
    either.post(MAPS, config("pages-035", of="pages")).ok()
    either.delete(f"{MAPS}/{names[5]}").ok()
    either.patch(f"{MAPS}/{names[6]}", {"data": {"changed": "since"}}).ok()
    found, page = names_of(first), first
    while token := page["metadata"].get("continue"):
        page = either.get(MAPS, labelSelector="of=pages", limit=3, **{"continue": token}).ok()
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert all("data" not in item for item in page["items"])
        found += names_of(page)
    assert found == names
    now = either.get(MAPS, labelSelector="of=pages").ok()
    assert names_of(now) == sorted({*names, "pages-035"} - {names[5]})


def test_the_number_of_those_left_is_told_where_nothing_is_filtered(either: Client) -> None:
    fill(either, "left", 4)
    whole = len(either.get(MAPS).ok()["items"])
    page = either.get(MAPS, limit=2).ok()
    assert page["metadata"]["remainingItemCount"] == whole - 2
    filtered = either.get(MAPS, limit=2, labelSelector="of=left").ok()
    assert "remainingItemCount" not in filtered["metadata"]


def test_an_exact_version_is_shown_as_it_was(either: Client) -> None:
    names = fill(either, "exact", 3)
    before = either.get(MAPS, labelSelector="of=exact").ok()["metadata"]["resourceVersion"]
    either.delete(f"{MAPS}/{names[0]}").ok()
    either.patch(f"{MAPS}/{names[1]}", {"data": {"a": "b"}}).ok()
    either.post(MAPS, config("exact-99", of="exact")).ok()
    then = either.get(MAPS, labelSelector="of=exact", resourceVersion=before, resourceVersionMatch="Exact").ok()
    assert names_of(then) == names
    assert all("data" not in item for item in then["items"])
    assert then["metadata"]["resourceVersion"] == before
    newer = either.get(MAPS, labelSelector="of=exact", resourceVersion=before, resourceVersionMatch="NotOlderThan").ok()
    assert names_of(newer) == [*names[1:], "exact-99"]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"resourceVersionMatch": "Exact"}, 422, "forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, "is forbidden for resourceVersion"),
        ({"resourceVersionMatch": "About", "resourceVersion": "5"}, 422, 'Unsupported value: "About"'),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"resourceVersion": "abc"}, 400, "abc"),
        ({"limit": "abc"}, 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"continue": "!!!"}, 400, "continue key is not valid"),
        ({"labelSelector": "a in (b"}, 400, "unable to parse requirement"),
        ({"fieldSelector": "spec.colour=red"}, 400, "spec.colour"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    either: Client, query: dict[str, str], code: int, words: str
) -> None:
    answer = either.get(MAPS, **query)
    assert answer.code == code
    assert words in answer.message


def test_a_version_of_the_future_is_a_timeout(either: Client) -> None:
    answer = either.get(MAPS, resourceVersion="99999999999", resourceVersionMatch="NotOlderThan")
    assert answer.code == 504
    assert answer.message.startswith("Timeout: Too large resource version: 99999999999, current: ")
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_token_goes_on_from_now_when_its_moment_is_forgotten(client: Client, served: object) -> None:
    names = fill(client, "gone", 4)
    first = client.get(MAPS, labelSelector="of=gone", limit=2).ok()
    token = json.loads(base64.urlsafe_b64decode(first["metadata"]["continue"] + "=="))
    token["rv"] = 5
    old = base64.urlsafe_b64encode(json.dumps(token).encode()).rstrip(b"=").decode()
    answer = client.get(MAPS, labelSelector="of=gone", limit=2, **{"continue": old})
    assert answer.code == 410
    assert answer.json["reason"] == "Expired"
    assert "The provided continue parameter is too old" in answer.message
    fresh = answer.json["metadata"]["continue"]
    rest = client.get(MAPS, labelSelector="of=gone", limit=2, **{"continue": fresh}).ok()
    assert names_of(rest) == names[2:]


def test_selectors(either: Client) -> None:
    names = fill(either, "select", 4)
    odd = names_of(either.get(MAPS, labelSelector="of=select,odd=1").ok())
    assert odd == [names[0], names[2]]
    assert names_of(either.get(MAPS, labelSelector="of in (select),odd!=1").ok()) == [names[1], names[3]]
    assert names_of(either.get(MAPS, fieldSelector=f"metadata.name={names[2]}").ok()) == [names[2]]
    assert either.get("/api/v1/configmaps", labelSelector="of=select,!odd").ok()["items"] == []


def test_metadata_only(either: Client) -> None:
    fill(either, "partial", 2)
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    page = either.send("GET", MAPS, headers={"Accept": accept}, labelSelector="of=partial").ok()
    assert page["kind"] == "PartialObjectMetadataList"
    assert page["apiVersion"] == "meta.k8s.io/v1"
    assert {item["kind"] for item in page["items"]} == {"PartialObjectMetadata"}
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partial = either.send("GET", f"{MAPS}/partial-00", headers={"Accept": accept}).ok()
    assert partial["kind"] == "PartialObjectMetadata"
    assert partial["metadata"]["labels"]["of"] == "partial"
    assert "data" not in partial


def test_a_table(either: Client) -> None:
    fill(either, "table", 2)
    table = either.send("GET", MAPS, headers={"Accept": TABLE}, labelSelector="of=table").ok()
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][0] for row in table["rows"]] == ["table-00", "table-01"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_only_protobuf_is_not_acceptable(client: Client) -> None:
    accept = "application/vnd.kubernetes.protobuf"
    answer = client.send("GET", MAPS, headers={"Accept": accept})
    assert answer.code == 406
    assert "only the following media types are accepted" in answer.message
    both = client.send("GET", MAPS, headers={"Accept": f"{accept},application/json"})
    assert both.code == 200
    assert both.headers["Content-Type"] == "application/json"


def test_long_answers_are_compressed_for_those_who_ask(client: Client) -> None:
    client.post(MAPS, {**config("long"), "data": {"text": "windlass " * 40_000}}).ok()
    asked = client.send("GET", f"{MAPS}/long", headers={"Accept-Encoding": "gzip"})
    assert asked.headers["Content-Encoding"] == "gzip"
    assert asked.ok()["data"] == client.send("GET", f"{MAPS}/long").ok()["data"]
    assert "Content-Encoding" not in client.send("GET", f"{MAPS}/long").headers


def test_yaml_for_those_who_ask(either: Client) -> None:
    fill(either, "yaml", 1)
    answer = either.send("GET", f"{MAPS}/yaml-00", headers={"Accept": "application/yaml"})
    assert b"kind: ConfigMap\n" in answer.data
