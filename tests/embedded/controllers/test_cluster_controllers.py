"""The controllers that keep a cluster in order: budgets, namespaces, owners, quotas, events, the work queue."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.in_process_cluster import InProcessCluster, conditions, template

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.events import EventRateLimiter, EventRecorder
from windlass.embedded.controllers.work_queue import MAX_BACKOFF, WorkQueue
from windlass.model.unstructured import Unstructured

BUDGETS = "poddisruptionbudgets.policy"
CONFIGS = "configmaps"


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def owned(world: InProcessCluster, name: str, *owners: Unstructured, block: bool = True) -> Unstructured:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    metadata: Unstructured = {"name": name, "ownerReferences": references} if references else {"name": name}
    return world.verbs.create(CONFIGS, "default", {"metadata": metadata})


def configs(world: InProcessCluster) -> list[str]:
    names = [item["metadata"]["name"] for item in world.verbs.list(CONFIGS, "default")]
    return [name for name in names if name != "kube-root-ca.crt"]


class TestBudgets:
    def make(self, world: InProcessCluster, replicas: int = 3, **spec: Any) -> None:
        labels = {"app": "web"}
        selector = {"matchLabels": labels}
        world.apply(
            "replicasets.apps",
            "web",
            {"replicas": replicas, "selector": selector, "template": template(labels)},
        )
        world.apply(BUDGETS, "web", {"selector": selector, **spec})
        world.step().start_all()

    def status(self, world: InProcessCluster) -> Unstructured:
        found: Unstructured = world.get(BUDGETS, "web")["status"]
        return found

    @pytest.mark.parametrize(
        ("spec", "desired", "allowed"),
        [
            ({"minAvailable": 2}, 2, 1),
            ({"maxUnavailable": 1}, 2, 1),
            ({"minAvailable": "50%"}, 2, 1),
            ({"minAvailable": 3}, 3, 0),
        ],
    )
    def test_how_many_may_go(self, world: InProcessCluster, spec: Unstructured, desired: int, allowed: int) -> None:
        self.make(world, **spec)
        status = self.status(world)
        assert (status["desiredHealthy"], status["currentHealthy"], status["expectedPods"]) == (desired, 3, 3)
        assert status["disruptionsAllowed"] == allowed
        assert conditions(world.get(BUDGETS, "web"))["DisruptionAllowed"] == ("True" if allowed else "False")

    def test_evictions_use_it_up(self, world: InProcessCluster) -> None:
        self.make(world, minAvailable=2)
        first, second, _ = world.pods()
        world.verbs.bind("default", first["metadata"]["name"], "somewhere")
        world.verbs.evict("default", first["metadata"]["name"])
        with pytest.raises(ApiError, match="disruption budget"):
            world.verbs.evict("default", second["metadata"]["name"])
        world.step()
        assert self.status(world)["disruptionsAllowed"] == 0
        world.start_all()
        assert self.status(world)["disruptionsAllowed"] == 1


class TestNamespaces:
    def test_every_namespace_has_an_account_and_the_ca(self, world: InProcessCluster) -> None:
        world.verbs.create("namespaces", "", {"metadata": {"name": "team"}})
        world.step()
        assert world.verbs.get("serviceaccounts", "team", "default")
        assert world.verbs.get(CONFIGS, "team", "kube-root-ca.crt")
        world.verbs.delete("serviceaccounts", "team", "default")
        world.step()
        assert world.verbs.get("serviceaccounts", "team", "default"), "it comes back"

    def test_deletion_empties_it(self, world: InProcessCluster) -> None:
        world.verbs.create("namespaces", "", {"metadata": {"name": "team"}})
        world.step()
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        world.verbs.create("pods", "team", pod)
        world.verbs.bind("team", "p", "somewhere")
        world.verbs.delete("namespaces", "", "team")
        world.step()
        assert world.verbs.find("serviceaccounts", "team", "default"), "who deletes all of a file finds it there"
        world.pass_time(2)
        found = world.verbs.get("namespaces", "", "team")
        assert found["status"]["phase"] == "Terminating"
        assert conditions(found)["NamespaceContentRemaining"] == "True"
        world.verbs.delete("pods", "team", "p", grace=0)
        world.pass_time(2)
        assert world.verbs.find("namespaces", "", "team") is None
        assert world.verbs.list("serviceaccounts", "team") == []


class TestGarbage:
    def test_goes_with_its_last_owner(self, world: InProcessCluster) -> None:
        one, two = owned(world, "one"), owned(world, "two")
        owned(world, "child", one, two)
        world.step()
        world.verbs.delete(CONFIGS, "default", "one")
        world.step()
        assert configs(world) == ["child", "two"]
        assert len(world.get(CONFIGS, "child")["metadata"]["ownerReferences"]) == 1
        world.verbs.delete(CONFIGS, "default", "two")
        world.step()
        assert configs(world) == []

    def test_down_to_grandchildren(self, world: InProcessCluster) -> None:
        child = owned(world, "b", owned(world, "a"))
        owned(world, "c", child)
        world.verbs.delete(CONFIGS, "default", "a")
        world.step()
        assert configs(world) == []

    def test_foreground_waits_for_dependents(self, world: InProcessCluster) -> None:
        owner = owned(world, "a")
        child = owned(world, "b", owner)
        world.verbs.patch(CONFIGS, "default", "b", {"metadata": {"finalizers": ["example.com/hold"]}})
        world.verbs.delete(CONFIGS, "default", "a", propagation="Foreground")
        world.step()
        assert configs(world) == ["a", "b"]
        assert "deletionTimestamp" in world.get(CONFIGS, "b")["metadata"], child
        world.verbs.patch(CONFIGS, "default", "b", {"metadata": {"finalizers": None}})
        world.step()
        assert configs(world) == []

    def test_orphans_stay(self, world: InProcessCluster) -> None:
        owned(world, "b", owned(world, "a"))
        world.verbs.delete(CONFIGS, "default", "a", propagation="Orphan")
        world.step()
        assert configs(world) == ["b"]
        assert "ownerReferences" not in world.get(CONFIGS, "b")["metadata"]

    def test_an_owner_of_an_unknown_kind_is_nobody_s_to_judge(self, world: InProcessCluster) -> None:
        reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "1"}
        world.verbs.create(CONFIGS, "default", {"metadata": {"name": "kept", "ownerReferences": [reference]}})
        world.step()
        assert configs(world) == ["kept"]

    def test_an_owner_that_never_was(self, world: InProcessCluster) -> None:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
        world.verbs.create(CONFIGS, "default", {"metadata": {"name": "lost", "ownerReferences": [reference]}})
        world.step()
        assert configs(world) == []

    def test_what_a_killed_process_had_begun_is_brought_to_its_end(self, world: InProcessCluster) -> None:
        """An owner that was deleted in the foreground, whose last dependent is gone, and nobody has noticed."""
        world.verbs.create(CONFIGS, "default", {"metadata": {"name": "owner"}})
        merge = {"metadata": {"finalizers": ["foregroundDeletion"]}}
        world.verbs.patch(CONFIGS, "default", "owner", merge)
        assert world.controllers is not None
        world.controllers.stop()
        world.verbs.delete(CONFIGS, "default", "owner", propagation="Foreground")
        assert configs(world) == ["owner"]
        world.cache = Cache(world.verbs)
        world.run()
        assert configs(world) == []


@pytest.mark.parametrize("resource", ["daemonsets.apps", "poddisruptionbudgets.policy"])
def test_quota_counts_any_kind_and_gives_it_back(world: InProcessCluster, resource: str) -> None:
    world.apply("resourcequotas", "one", {"hard": {f"count/{resource}": "1"}})
    world.step()
    selector = {"matchLabels": {"a": "b"}}
    spec: Unstructured = {"selector": selector}
    if resource == "daemonsets.apps":
        spec["template"] = template({"a": "b"})
    for _ in range(2):
        world.apply(resource, "x", spec)
        with pytest.raises(ApiError, match="exceeded quota"):
            world.apply(resource, "y", spec)
        world.verbs.delete(resource, "default", "x")
        world.step()
        assert world.get("resourcequotas", "one")["status"]["used"] == {f"count/{resource}": "0"}


def test_quota_gives_back_what_has_ended(world: InProcessCluster) -> None:
    world.apply("resourcequotas", "few", {"hard": {"pods": "2"}})
    world.step()
    box = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    for name in ("a", "b"):
        world.verbs.create("pods", "default", {"metadata": {"name": name}, **box})
    world.step()
    assert world.get("resourcequotas", "few")["status"]["used"] == {"pods": "2"}
    world.set_phase(world.get("pods", "a"), "Succeeded")
    world.step()
    assert world.get("resourcequotas", "few")["status"]["used"] == {"pods": "1"}


def test_events_are_counted_and_expire(world: InProcessCluster) -> None:
    thing = world.verbs.create("configmaps", "default", {"metadata": {"name": "thing"}})
    writer = EventRecorder(world.verbs, "somebody")
    for _ in range(3):
        writer.record(thing, "Odd", "something happened", world.now, type="Warning")
    writer.record(thing, "Odd", "something else", world.now)
    world.step()
    events = {event["message"]: event for event in world.verbs.list("events", "default")}
    assert events["something happened"]["count"] == 3
    assert events["something else"]["count"] == 1
    world.pass_time(3000)
    writer.record(thing, "Odd", "something happened", world.now, type="Warning")
    world.pass_time(1000)
    left = world.verbs.list("events", "default")
    assert [event["message"] for event in left] == ["something happened"], "an hour after it was last seen"
    world.pass_time(3000)
    assert world.verbs.list("events", "default") == []


class TestQueue:
    def test_each_thing_once_in_order(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        for item in ("a", "b", "a"):
            queue.add(item)
        assert [queue.pop(0), queue.pop(0), queue.pop(0)] == ["a", "b", None]

    def test_the_earlier_moment_stands(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_at("a", 10)
        queue.add_at("a", 5)
        queue.add_at("a", 20)
        assert queue.next_due() == 5
        assert queue.pop(4) is None
        assert queue.pop(5) == "a"
        assert queue.pop(100) is None

    def test_pauses_double_up_to_a_limit(self) -> None:
        queue: WorkQueue[str] = WorkQueue()
        pauses = [queue.add_rate_limited("a", 0.0) for _ in range(30)]
        assert pauses[1] == 2 * pauses[0]
        assert pauses[-1] == MAX_BACKOFF
        queue.forget("a")
        assert queue.add_rate_limited("a", 0.0) == pauses[0]


def test_a_definition_goes_after_its_objects(world: InProcessCluster) -> None:
    crds = "customresourcedefinitions.apiextensions.k8s.io"
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    world.verbs.create(crds, "", {"metadata": {"name": "things.example.com"}, "spec": spec})
    world.verbs.create(
        "things.example.com", "default", {"metadata": {"name": "one", "finalizers": ["example.com/hold"]}}
    )
    world.step()
    world.verbs.delete(crds, "", "things.example.com")
    world.pass_time(2)
    assert "deletionTimestamp" in world.get("things.example.com", "one")["metadata"]
    assert world.verbs.find(crds, "", "things.example.com") is not None
    world.verbs.patch("things.example.com", "default", "one", {"metadata": {"finalizers": None}})
    world.pass_time(2)
    assert world.verbs.find(crds, "", "things.example.com") is None


def test_normal_events_have_an_allowance_and_warnings_have_none(world: InProcessCluster) -> None:
    thing = world.verbs.create("configmaps", "default", {"metadata": {"name": "thing"}})
    writer = EventRecorder(world.verbs, "kubelet", EventRateLimiter(burst=3, rate=1))
    for number in range(10):
        writer.record(thing, "Started", f"container {number}", world.now)
        writer.record(thing, "BackOff", f"container {number}", world.now, type="Warning")
    kinds = [event["type"] for event in world.verbs.list("events", "default")]
    assert (kinds.count("Normal"), kinds.count("Warning")) == (3, 10)
    writer.record(thing, "Started", "later", world.now + 1)
    assert len(world.verbs.list("events", "default")) == 14
