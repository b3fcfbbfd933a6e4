"""Nominations are part of the next decision, whenever the API server shows them."""

from __future__ import annotations

from typing import Any

from tests.scheduler.caches import node, pod, told, world

from windlass.cluster.delta import Deleted, Put
from windlass.model.codec import decode_object
from windlass.scheduler.cache import SchedulerCache


def nominated(some: SchedulerCache) -> dict[str, str]:
    """What a decision would see, of the pods that wait."""
    some.flush(1_000)
    pods = some.store.snapshot(1_000).pods
    rows = pods.pending().tolist()
    return {pods.objects[row].metadata.name: pods.objects[row].status.nominated_node_name for row in rows}


def pod_nominated_by_api(name: str, where: str) -> Any:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": f"u-{name}"},
        "spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]},
        "status": {"nominatedNodeName": where},
    }
    return decode_object(tree)


def cluster() -> SchedulerCache:
    some = world()
    told(some, node("n1"), node("n2"), pod("p"), pod("q"))
    return some


def test_the_next_decision_sees_them_before_the_api_server_does() -> None:
    some = cluster()
    some.nominate(frozenset(), {"a/p": "n1"})
    assert nominated(some) == {"p": "n1", "q": ""}
    some.push([Put(pod("p", resourceVersion="2"))])
    assert nominated(some) == {"p": "n1", "q": ""}, "an older state doesn't undo it"


def test_they_call_for_no_decision() -> None:
    some = cluster()
    some.nominate(frozenset(), {"a/p": "n1"})
    assert not some.flush(1_000).needs_decision
    some.push([Put(pod_nominated_by_api("p", "n1"))])
    assert not some.flush(1_000).needs_decision, "the API server only confirms it"


def test_the_nominations_of_a_plan_replace_those_before() -> None:
    some = cluster()
    some.nominate(frozenset(), {"a/p": "n1"})
    some.nominate(frozenset(), {"a/q": "n2"})
    assert nominated(some) == {"p": "", "q": "n2"}
    some.nominate(frozenset(), {"a/q": "n1"})
    assert nominated(some) == {"p": "", "q": "n1"}


def test_one_that_was_withdrawn_stays_so_while_the_api_server_still_shows_it() -> None:
    some = cluster()
    some.nominate(frozenset(), {"a/p": "n1"})
    some.push([Put(pod_nominated_by_api("p", "n1"))])
    assert nominated(some)["p"] == "n1"
    some.nominate(frozenset(), {})
    assert nominated(some)["p"] == ""
    some.push([Put(pod("p", resourceVersion="3"))])
    assert nominated(some)["p"] == ""
    some.push([Put(pod_nominated_by_api("p", "n2"))])
    assert nominated(some)["p"] == "n2", "by somebody else, after that"


def test_those_of_an_earlier_leader_count() -> None:
    some = world()
    told(some, node("n1"), pod_nominated_by_api("p", "n1"))
    assert nominated(some) == {"p": "n1"}


def test_nothing_is_left_of_a_pod_that_is_bound_or_gone() -> None:
    some = cluster()
    some.nominate(frozenset(), {"a/p": "n1", "a/q": "n1"})
    some.push([Put(pod("p", node="n1")), Deleted("Pod", "a/q")])
    assert nominated(some) == {}
    some.push([Put(pod("q"))])
    assert nominated(some) == {"q": ""}
    some.nominate(frozenset(), {"a/r": "n1"})
    assert nominated(some) == {"q": ""}, "one that is not known changes nothing"
