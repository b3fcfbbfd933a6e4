"""Whole stories of pods, as a watcher sees them: event by event the same on the embedded server and on a real one.

They are told in a namespace and on a node of their own: the real cluster's controllers may still be at work on what an
earlier test left in `default`, after it was wiped, and every pod that they make or delete there would be heard too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.embedded.server.harness import Client, Served, with_node
from tests.real_cluster.api import until
from tests.real_cluster.control_plane import ControlPlane

from windlass.model.unstructured import Unstructured

SPACE, NODE = "stories", "story-node"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
FLEETING = {
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "lastTransitionTime",
    "deletionTimestamp",
    "managedFields",
}
ACCOUNT = {"serviceAccount", "serviceAccountName"}
"""The real server's plug-in for accounts is off in the tests."""


def pod(name: str, node: str = "", **metadata: Any) -> Unstructured:
    spec: Unstructured = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def bound_changed_and_deleted_in_stages(api: Client) -> None:
    api.post(PODS, pod("a", labels={"x": "1"})).ok()
    target = {"kind": "Node", "name": NODE}
    metadata = {"name": "a", "labels": {"l": "m"}}
    api.post(f"{PODS}/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}).ok()
    ready = {"type": "Ready", "status": "True"}
    api.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": [ready]}}).ok()
    api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "2"}}}).ok()
    api.delete(f"{PODS}/a").ok()
    api.delete(f"{PODS}/a", gracePeriodSeconds=5).ok()
    api.delete(f"{PODS}/a", gracePeriodSeconds=0).ok()


def held_by_a_finalizer(api: Client) -> None:
    api.post(PODS, pod("b", NODE, finalizers=["e.com/f"])).ok()
    api.delete(f"{PODS}/b", gracePeriodSeconds=0).ok()
    api.patch(f"{PODS}/b", {"metadata": {"finalizers": None}}).ok()


def never_placed_or_at_its_end(api: Client) -> None:
    api.post(PODS, pod("c")).ok()
    api.delete(f"{PODS}/c").ok()
    api.post(PODS, pod("d", NODE)).ok()
    api.patch(f"{PODS}/d/status", {"status": {"phase": "Succeeded"}}).ok()
    api.delete(f"{PODS}/d").ok()


def held_and_still_running(api: Client) -> None:
    api.post(PODS, pod("e", NODE, finalizers=["e.com/f"])).ok()
    api.delete(f"{PODS}/e").ok()
    api.patch(f"{PODS}/e", {"metadata": {"finalizers": None}}).ok()
    api.delete(f"{PODS}/e", gracePeriodSeconds=0).ok()


def evicted(api: Client) -> None:
    api.post(PODS, pod("f", NODE)).ok()
    options = {"gracePeriodSeconds": 3}
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "f"},
        "deleteOptions": options,
    }
    api.post(f"{PODS}/f/eviction", eviction).ok()


STORIES = (
    bound_changed_and_deleted_in_stages,
    held_by_a_finalizer,
    never_placed_or_at_its_end,
    held_and_still_running,
    evicted,
)
VIEWS = (
    {},
    {"labelSelector": "x=1"},
    {"fieldSelector": f"spec.nodeName={NODE}"},
    {"fieldSelector": "status.phase!=Running"},
)


def test_watchers_see_the_same_stories(served: Served, control_plane: ControlPlane) -> None:
    ours, theirs = stage(served.client), stage(Client(control_plane.kubeconfig))
    for view in VIEWS:
        for story in STORIES:
            assert told(ours, story, view) == told(theirs, story, view), (story.__name__, view)
            for api in (ours, theirs):
                api.delete(PODS, gracePeriodSeconds=0).ok()
                until(partial(nobody_there, api), what="all pods to be gone")


def stage(api: Client) -> Client:
    """Where the stories are told."""
    api.post("/api/v1/namespaces", {"metadata": {"name": SPACE}}).ok()
    account = api.post(f"/api/v1/namespaces/{SPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    assert account.code in (201, 409), account.data  # a controller may have been faster
    return with_node(api, NODE)


def nobody_there(api: Client) -> bool:
    return not api.get(PODS).ok()["items"]


def told(api: Client, story: Callable[[Client], None], view: dict[str, str]) -> list[tuple[str, Unstructured]]:
    """What a watcher hears of a story, up to a last pod that every view shows at once."""
    start = api.get(PODS).ok()["metadata"]["resourceVersion"]
    story(api)
    api.post(PODS, pod("the-end", NODE, labels={"x": "1"})).ok()
    heard = []
    with api.watch(PODS, resourceVersion=start, **view) as events:
        for event in events:
            if event["object"]["metadata"]["name"] == "the-end":
                return heard
            heard.append((event["type"], lasting(event["object"])))
    raise AssertionError("the watch ended before the story did")


def lasting(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: lasting(item) for key, item in value.items() if key not in FLEETING | ACCOUNT}
    if isinstance(value, list):
        return [lasting(item) for item in value]
    return value
