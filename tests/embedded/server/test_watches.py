"""Watches, on the embedded server and on a real one: from a version, from nothing, with selectors and bookmarks."""

from __future__ import annotations

import pytest
from tests.embedded.server.harness import Client, Served

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def config(name: str, **labels: str) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def version_of(tree: Unstructured) -> int:
    return int(tree["metadata"]["resourceVersion"])


def shown(event: Unstructured) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def test_from_a_version_on_every_change_comes_once_and_in_order(either: Client) -> None:
    start = either.get(MAPS).ok()["metadata"]["resourceVersion"]
    made = either.post(MAPS, config("first")).ok()
    changed = either.patch(f"{MAPS}/first", {"data": {"a": "b"}}).ok()
    either.delete(f"{MAPS}/first").ok()
    with either.watch(MAPS, resourceVersion=start) as events:
        found = [next(events) for _ in range(3)]
        assert [shown(item) for item in found] == [
            ("ADDED", "first"),
            ("MODIFIED", "first"),
            ("DELETED", "first"),
        ]
        assert version_of(found[0]["object"]) == version_of(made)
        assert version_of(found[1]["object"]) == version_of(changed)
        assert version_of(found[2]["object"]) > version_of(changed)
        assert found[2]["object"]["data"] == {"a": "b"}
        either.post(MAPS, config("second")).ok()
        assert shown(next(events)) == ("ADDED", "second")


def test_without_a_version_what_there_is_comes_first(either: Client) -> None:
    either.post(MAPS, config("there", of="there")).ok()
    with either.watch(MAPS, labelSelector="of=there") as events:
        assert shown(next(events)) == ("ADDED", "there")
        either.post(MAPS, config("later", of="there")).ok()
        assert shown(next(events)) == ("ADDED", "later")


def test_with_a_selector_objects_come_and_go(either: Client) -> None:
    either.post(MAPS, config("moves", of="inside")).ok()
    either.post(MAPS, config("stays", of="outside")).ok()
    start = either.get(MAPS).ok()["metadata"]["resourceVersion"]
    with either.watch(MAPS, resourceVersion=start, labelSelector="of=inside") as events:
        either.patch(f"{MAPS}/stays", {"data": {"a": "b"}}).ok()
        left = either.patch(f"{MAPS}/moves", {"metadata": {"labels": {"of": "outside"}}}).ok()
        gone = next(events)
        assert shown(gone) == ("DELETED", "moves")
        assert gone["object"]["metadata"]["labels"] == {"of": "inside"}  # as it was when it was last inside
        assert version_of(gone["object"]) == version_of(left)
        either.patch(f"{MAPS}/moves", {"metadata": {"labels": {"of": "inside"}}}).ok()
        assert shown(next(events)) == ("ADDED", "moves")
        either.patch(f"{MAPS}/moves", {"data": {"a": "b"}}).ok()
        assert shown(next(events)) == ("MODIFIED", "moves")


def test_one_namespace_sees_nothing_of_another(either: Client) -> None:
    start = either.get(MAPS).ok()["metadata"]["resourceVersion"]
    with either.watch(MAPS, resourceVersion=start) as events:
        either.post("/api/v1/namespaces/kube-public/configmaps", config("elsewhere")).ok()
        either.post(MAPS, config("here")).ok()
        assert shown(next(events)) == ("ADDED", "here")


def test_a_version_that_is_forgotten_ends_the_watch_with_410(client: Client) -> None:
    with client.watch(MAPS, resourceVersion="1") as events:
        only = next(events)
    assert only["type"] == "ERROR"
    assert only["object"]["code"] == 410
    assert only["object"]["reason"] == "Expired"
    assert only["object"]["message"].startswith("too old resource version: 1 (")


def test_initial_events_end_with_a_bookmark(either: Client) -> None:
    either.post(MAPS, config("initial", of="initial")).ok()
    query = {
        "labelSelector": "of=initial",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with either.watch(MAPS, **query) as events:
        assert shown(next(events)) == ("ADDED", "initial")
        mark = next(events)
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["kind"] == "ConfigMap"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        either.post(MAPS, config("after", of="initial")).ok()
        assert shown(next(events)) == ("ADDED", "after")
    with either.watch(MAPS, resourceVersion=version_of(mark["object"]), labelSelector="of=initial") as events:
        assert shown(next(events)) == ("ADDED", "after")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch"),
        ({"resourceVersionMatch": "NotOlderThan"}, "forbidden for watch unless sendInitialEvents"),
        ({"resourceVersionMatch": "Exact", "sendInitialEvents": "true"}, 'Unsupported value: "Exact"'),
    ],
)
def test_watch_parameters_that_make_no_sense(either: Client, query: dict[str, str], words: str) -> None:
    answer = either.get(MAPS, watch="true", **query)
    assert answer.code == 422
    assert words in answer.message


def test_a_watch_ends_in_time_and_bookmarks_say_where(client: Client) -> None:
    start = client.get(MAPS).ok()["metadata"]["resourceVersion"]
    client.post("/api/v1/namespaces/kube-public/configmaps", config("far")).ok()
    with client.watch(MAPS, resourceVersion=start, timeoutSeconds=1, allowWatchBookmarks="true") as events:
        told = list(events)
    assert [condition["type"] for condition in told] == ["BOOKMARK"]
    assert version_of(told[0]["object"]) > int(start)


def test_tables_in_a_watch_name_their_columns_once(either: Client) -> None:
    either.post(MAPS, config("columns-a", of="columns")).ok()
    with either.watch(MAPS, TABLE, labelSelector="of=columns") as events:
        first = next(events)["object"]
        either.post(MAPS, config("columns-b", of="columns")).ok()
        second = next(events)["object"]
    assert first["kind"] == second["kind"] == "Table"
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert not second.get("columnDefinitions")
    assert second["rows"][0]["cells"][0] == "columns-b"


def test_a_watch_by_the_old_path(either: Client) -> None:
    start = either.get(MAPS).ok()["metadata"]["resourceVersion"]
    with either.watch("/api/v1/watch/namespaces/default/configmaps", resourceVersion=start) as events:
        either.post(MAPS, config("old-path")).ok()
        assert shown(next(events)) == ("ADDED", "old-path")


def test_both_kinds_of_events_are_one(either: Client) -> None:
    core, newer = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
    start = either.get(newer).ok()["metadata"]["resourceVersion"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one.store"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Seen",
        "message": "twice",
        "type": "Normal",
    }
    either.post(core, event).ok()
    with either.watch(newer, resourceVersion=start) as events:
        told = next(events)["object"]
    assert told["apiVersion"] == "events.k8s.io/v1"
    assert told["regarding"]["name"] == "p"
    assert told["note"] == "twice"
    assert either.get(f"{newer}/one.store").ok()["note"] == "twice"


def test_a_history_that_is_full_forgets_the_oldest(tmp_path_factory: pytest.TempPathFactory) -> None:
    served = Served(tmp_path_factory.mktemp("short"), history=10).start()
    try:
        api = served.client
        start = api.get(MAPS).ok()["metadata"]["resourceVersion"]
        for number in range(20):
            api.post(MAPS, config(f"many-{number}")).ok()
        with api.watch(MAPS, resourceVersion=start) as events:
            assert next(events)["object"]["code"] == 410
        answer = api.get(MAPS, resourceVersion=start, resourceVersionMatch="Exact")
        assert (answer.code, answer.json["reason"]) == (410, "Expired")
        recent = version_of(api.get(f"{MAPS}/many-15").ok())
        with api.watch(MAPS, resourceVersion=recent) as events:
            assert shown(next(events)) == ("ADDED", "many-16")
    finally:
        served.stop()
