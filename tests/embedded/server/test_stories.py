"""Whole stories of pods, as a watcher sees them: event by event the same on the embedded server and on a real one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.cluster.api import until
from tests.cluster.control_plane import ControlPlane
from tests.embedded.server.harness import Client, Served, Tree, with_node

PODS = "/api/v1/namespaces/default/pods"
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


def pod(name: str, node: str = "", **metadata: Any) -> Tree:
    spec: Tree = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def bound_changed_and_deleted_in_stages(api: Client) -> None:
    api.post(PODS, pod("a", labels={"x": "1"})).ok()
    target = {"kind": "Node", "name": "n1"}
    metadata = {"name": "a", "labels": {"l": "m"}}
    api.post(
        f"{PODS}/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    ).ok()
    ready = {"type": "Ready", "status": "True"}
    api.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": [ready]}}).ok()
    api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "2"}}}).ok()
    api.delete(f"{PODS}/a").ok()
    api.delete(f"{PODS}/a", gracePeriodSeconds=5).ok()
    api.delete(f"{PODS}/a", gracePeriodSeconds=0).ok()


def held_by_a_finalizer(api: Client) -> None:
    api.post(PODS, pod("b", "n1", finalizers=["e.com/f"])).ok()
    api.delete(f"{PODS}/b", gracePeriodSeconds=0).ok()
    api.patch(f"{PODS}/b", {"metadata": {"finalizers": None}}).ok()


def never_placed_or_at_its_end(api: Client) -> None:
    api.post(PODS, pod("c")).ok()
    api.delete(f"{PODS}/c").ok()
    api.post(PODS, pod("d", "n1")).ok()
    api.patch(f"{PODS}/d/status", {"status": {"phase": "Succeeded"}}).ok()
    api.delete(f"{PODS}/d").ok()


def held_and_still_running(api: Client) -> None:
    api.post(PODS, pod("e", "n1", finalizers=["e.com/f"])).ok()
    api.delete(f"{PODS}/e").ok()
    api.patch(f"{PODS}/e", {"metadata": {"finalizers": None}}).ok()
    api.delete(f"{PODS}/e", gracePeriodSeconds=0).ok()


def evicted(api: Client) -> None:
    api.post(PODS, pod("f", "n1")).ok()
    options = {"gracePeriodSeconds": 3}
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "f"},
        "deleteOptions": options,
    }
    api.post(f"{PODS}/f/eviction", eviction).ok()


TRIES = 4
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
    {"fieldSelector": "spec.nodeName=n1"},
    {"fieldSelector": "status.phase!=Running"},
)


def test_watchers_see_the_same_stories(served: Served, control_plane: ControlPlane) -> None:
    ours, theirs = with_node(served.client), with_node(Client(control_plane.kubeconfig))
    for view in VIEWS:
        for story in STORIES:
            # Controllers of the real cluster and slow machines may get in between: then it is told again.
            assert any(alike(ours, theirs, story, view) for _ in range(TRIES)), (story.__name__, view)


def alike(ours: Client, theirs: Client, story: Callable[[Client], None], view: dict[str, str]) -> bool:
    same = told(ours, story, view) == told(theirs, story, view)
    for api in (ours, theirs):
        api.delete(PODS, gracePeriodSeconds=0).ok()
        until(partial(nobody_there, api), what="all pods to be gone")
    return same


def nobody_there(api: Client) -> bool:
    return not api.get(PODS).ok()["items"]


def told(api: Client, story: Callable[[Client], None], view: dict[str, str]) -> list[tuple[str, Tree]]:
    """What a watcher hears of a story, up to a last pod that every view shows at once."""
    start = api.get(PODS).ok()["metadata"]["resourceVersion"]
    story(api)
    api.post(PODS, pod("the-end", "n1", labels={"x": "1"})).ok()
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
        return {key: lasting(each) for key, each in value.items() if key not in FLEETING | ACCOUNT}
    if isinstance(value, list):
        return [lasting(each) for each in value]
    return value
