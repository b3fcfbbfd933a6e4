"""Objects that a server accepts and that stand for a thousand million others: none takes time or memory for those."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.in_process_cluster import InProcessCluster, template

from windlass.embedded.controllers import workload_controllers
from windlass.embedded.controllers.index_set import IndexSet
from windlass.embedded.controllers.job_pods import COMPLETION_INDEX
from windlass.embedded.controllers.replicaset import BURST_REPLICAS
from windlass.embedded.registry import capacity

MOST = 2**31 - 1
INDICES = st.sets(st.integers(0, 40))


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def indexed_job(world: InProcessCluster, **spec: object) -> None:
    world.apply("jobs.batch", "j", {"completionMode": "Indexed", "template": template({}, "Never"), **spec})


def set_status(world: InProcessCluster, **status: object) -> None:
    job = world.get("jobs.batch", "j")
    world.verbs.update("jobs.batch", "default", "j", {**job, "status": {**job["status"], **status}}, "status")
    world.step()


def test_two_thousand_million_completed_indices(world: InProcessCluster) -> None:
    indexed_job(world, completions=MOST, parallelism=1)
    set_status(world, completedIndexes=f"0-{MOST - 3},{MOST - 1}")
    status = world.get("jobs.batch", "j")["status"]
    assert status["succeeded"] == MOST - 1
    assert status["completedIndexes"] == f"0-{MOST - 3},{MOST - 1}"
    indices = {pod["metadata"]["annotations"][COMPLETION_INDEX] for pod in world.pods()}
    assert str(MOST - 2) in indices


def test_failed_indices_and_success_rules_by_the_thousand_million(world: InProcessCluster) -> None:
    rule = {"rules": [{"succeededIndexes": f"0-{MOST - 1}", "succeededCount": 5}]}
    indexed_job(world, completions=MOST, parallelism=1, backoffLimitPerIndex=1, successPolicy=rule)
    set_status(world, failedIndexes=f"7-{MOST - 1}", completedIndexes="0-2")
    assert world.get("jobs.batch", "j")["status"]["failedIndexes"] == f"7-{MOST - 1}"


@pytest.mark.parametrize("text", ["x", "5-", "-", "²", "9" * 5000, "3-1", ",,"])
def test_indices_that_are_none_are_ignored(text: str) -> None:
    assert IndexSet.parse(f"1,{text},4-5").format() == "1,4,5"


@given(INDICES, INDICES, st.integers(0, 45), st.integers(0, 9))
def test_ranges_are_as_sets(left: set[int], right: set[int], limit: int, count: int) -> None:
    one, two = IndexSet(left), IndexSet(right)
    assert set(one) == left
    assert len(one) == len(left)
    assert one == IndexSet(left)
    assert set(one | two) == left | right
    assert set(one & two) == left & right
    assert set(one - two) == left - right
    assert set(one.below(limit)) == {index for index in left if index < limit}
    assert [index for index in range(45) if index in one] == sorted(left)
    assert one.missing(limit, count) == [index for index in range(limit) if index not in left][:count]


def test_a_parallel_stateful_set_of_a_thousand_million(
    world: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"app": "s"}
    spec = {"replicas": 10**9, "podManagementPolicy": "Parallel", "serviceName": "s"}
    spec |= {"selector": {"matchLabels": labels}, "template": template(labels)}
    monkeypatch.setattr(capacity, "MAX_PODS", 2 * BURST_REPLICAS)
    world.apply("statefulsets.apps", "s", spec)
    world.step()
    names = {pod["metadata"]["name"] for pod in world.pods()}
    assert len(names) == 2 * BURST_REPLICAS
    assert {"s-0", f"s-{2 * BURST_REPLICAS - 1}"} <= names
    assert "FailedCreate" in world.reasons("StatefulSet", "s")


def test_a_full_cluster_takes_nothing_new_and_lets_go(world: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    world.verbs.create("configmaps", "default", {"metadata": {"name": "a"}, "data": {"x": "y" * 5000}})
    monkeypatch.setattr(capacity, "MAX_BYTES", 5000)
    with pytest.raises(Exception, match="this cluster holds at most 0 MiB; delete something"):
        world.verbs.create("configmaps", "default", {"metadata": {"name": "b"}})
    with pytest.raises(Exception, match="this cluster holds at most"):
        world.verbs.patch("configmaps", "default", "a", {"data": {"z": "y" * 5000}})
    world.verbs.patch("configmaps", "default", "a", {"data": {"x": "y"}})
    world.verbs.delete("configmaps", "default", "a")
    monkeypatch.setattr(capacity, "MAX_BYTES", 1 << 20)
    world.verbs.create("configmaps", "default", {"metadata": {"name": "b"}})


@pytest.mark.parametrize("text", ["²", "9" * 5000])
def test_annotations_that_look_like_numbers(world: InProcessCluster, text: str) -> None:
    """They end no sync with an exception."""
    labels = {"app": "d"}
    body = template(labels)
    body["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": text}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": body}
    metadata = {"annotations": {"deployment.kubernetes.io/revision": text}}
    world.apply("deployments.apps", "d", spec, **metadata)
    world.step()
    world.verbs.patch("deployments.apps", "default", "d", {"spec": {"replicas": 1}})
    world.start_all()
    assert len(world.pods("app=d")) == 1


def stateful_set(world: InProcessCluster, name: str, replicas: int) -> None:
    labels = {"app": name}
    spec = {"replicas": replicas, "podManagementPolicy": "Parallel", "serviceName": name}
    world.apply("statefulsets.apps", name, {**spec, "selector": {"matchLabels": labels}, "template": template(labels)})


def test_no_more_pods_are_created_than_may_wait_for_a_node(
    world: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_controllers, "MAX_WAITING_PODS", 50)
    stateful_set(world, "s", 10**9)
    stateful_set(world, "t", 10**9)
    world.pass_time(10)
    assert len(world.pods()) == 50
    warnings = [event["message"] for event in world.verbs.list("events", "default") if event["type"] == "Warning"]
    assert set(warnings) == {
        "Error creating: 50 pods of namespace default wait for a node; more are created when fewer wait"
    }
    for pod in world.pods()[:20]:
        world.verbs.bind("default", pod["metadata"]["name"], "somewhere")
    world.step()
    assert len(world.pods()) == 70
    world.verbs.delete("statefulsets.apps", "default", "s")
    world.verbs.delete("statefulsets.apps", "default", "t")
    world.pass_time(61)
    for pod in world.pods():
        world.verbs.delete("pods", "default", pod["metadata"]["name"], grace=0)
    world.step()
    assert world.cache.waiting_pods("default") == 0


def turns(world: InProcessCluster, monkeypatch: pytest.MonkeyPatch, verb: str) -> list[int]:
    """How many objects each turn of the loop writes by this verb."""
    assert world.controllers is not None
    written, loop, write = [0], world.controllers.loop, getattr(world.verbs, verb)
    sync = loop._sync

    def count(*arguments: object, **options: object) -> object:
        written[-1] += 1
        return write(*arguments, **options)

    def one(item: object, now: float) -> None:
        written.append(0)
        sync(item, now)

    monkeypatch.setattr(world.verbs, verb, count)
    monkeypatch.setattr(loop, "_sync", one)
    return written


def test_a_large_owner_is_served_in_turns(world: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits for a turn to end: in one of 500 pods for half a second."""
    written = turns(world, monkeypatch, "create")
    stateful_set(world, "s", 300)
    world.step()
    assert len(world.pods()) == 300
    # Each pod has an event.
    assert max(written) <= 2 * workload_controllers.ACTIONS_A_TURN


def test_a_namespace_of_many_objects_goes_in_turns(world: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    world.verbs.create("namespaces", "", {"metadata": {"name": "much"}})
    for number in range(300):
        world.verbs.create("configmaps", "much", {"metadata": {"name": f"m{number}"}})
    written = turns(world, monkeypatch, "delete")
    world.verbs.delete("namespaces", "", "much")
    world.pass_time(10)
    assert max(written) <= 60
    assert not world.verbs.list("configmaps", "much")


def test_what_is_left_to_do_is_dropped_when_the_owner_wants_something_else(world: InProcessCluster) -> None:
    stateful_set(world, "s", 300)
    assert world.controllers is not None
    loop = world.controllers.loop
    while not world.pods():
        item = loop._queue.pop(world.now)
        assert item is not None
        loop._sync(item, world.now)
    world.verbs.patch("statefulsets.apps", "default", "s", {"spec": {"replicas": 10}})
    world.step()
    assert len([pod for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]]) == 10
