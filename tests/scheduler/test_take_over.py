"""Queues are taken over from a live Kueue in whole cohorts, or they stay there and it is said why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apply.objects import job, node, queues
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.caches import told, world
from tests.scheduler.replicas import Replica, cluster

from windlass.model.codec import decode_object
from windlass.scheduler.take_over import refused_take_overs

VERSION = "kueue.x-k8s.io/v1beta2"


def cluster_queue(name: str, cohort: str = "", policy: str = "Hold") -> Any:
    spec = {"stopPolicy": policy, "cohortName": cohort}
    return decode_object({"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})


def local_queue(name: str, queue: str, policy: str = "None") -> Any:
    metadata = {"name": name, "namespace": "team"}
    spec = {"clusterQueue": queue, "stopPolicy": policy}
    return decode_object({"apiVersion": VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": spec})


def cohort(name: str, parent: str) -> Any:
    spec = {"parentName": parent}
    return decode_object({"apiVersion": VERSION, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})


def refused(names: list[str], *objects: Any) -> dict[str, str]:
    by_kind: dict[str, dict[str, Any]] = {"ClusterQueueObject": {}, "LocalQueueObject": {}, "CohortObject": {}}
    for obj in objects:
        key = f"team/{obj.metadata.name}" if obj.metadata.namespace else obj.metadata.name
        by_kind[type(obj).__name__][key] = obj
    return refused_take_overs(names, *by_kind.values())


def test_a_queue_on_hold_that_shares_with_none_is_taken_over_by_either_name() -> None:
    alone = [cluster_queue("a"), local_queue("main", "a")]
    assert refused(["a"], *alone) == refused(["team/main"], *alone) == {}
    held = [cluster_queue("a", policy="None"), local_queue("main", "a", "Hold")]
    assert refused(["a"], *held) == refused(["team/main"], *held) == {}


def test_one_queue_of_a_cohort_is_refused_and_names_the_others() -> None:
    objects = [cluster_queue("a", "shared"), cluster_queue("b", "shared"), cluster_queue("c", "other")]
    reason = (
        "cohort shared also has ClusterQueue b, which Kueue keeps: both would lend the same quota; take over all of "
        "them, or none"
    )
    assert refused(["a"], *objects) == {"a": reason}
    assert refused(["a", "b"], *objects) == {}


def test_cohorts_below_one_root_are_one() -> None:
    objects = [cluster_queue("a", "left"), cluster_queue("b", "right"), cohort("left", "top"), cohort("right", "top")]
    assert "cohort top also has ClusterQueue b" in refused(["a"], *objects)["a"]
    assert refused(["a", "b"], *objects) == {}


@pytest.mark.parametrize("wanted", [["a"], ["b"]])
def test_cohorts_in_a_circle_end(wanted: list[str]) -> None:
    objects = [cluster_queue("a", "x"), cluster_queue("b", "y"), cohort("x", "y"), cohort("y", "x")]
    assert refused(wanted, *objects).keys() == set(wanted)


def test_one_local_queue_of_several_is_refused() -> None:
    objects = [cluster_queue("a"), local_queue("main", "a"), local_queue("other", "a")]
    assert "ClusterQueue a also has LocalQueue team/other" in refused(["team/main"], *objects)["team/main"]
    assert refused(["a"], *objects) == refused(["team/main", "team/other"], *objects) == {}


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("None", "Kueue still admits there (stopPolicy None): set spec.stopPolicy of ClusterQueue a to Hold"),
        (
            "HoldAndDrain",
            "Kueue would evict what Windlass admits there (stopPolicy HoldAndDrain): set spec.stopPolicy "
            "of ClusterQueue a to Hold",
        ),
    ],
)
def test_where_kueue_still_admits_or_evicts_nothing_is_taken_over(policy: str, reason: str) -> None:
    assert refused(["a"], cluster_queue("a", policy=policy)) == {"a": reason}


def test_what_is_refused_for_one_is_refused_for_its_cohort() -> None:
    objects = [cluster_queue("a", "shared"), cluster_queue("b", "shared", "None")]
    found = refused(["a", "b"], *objects)
    assert found.keys() == {"a", "b"}
    assert found["a"] == "b, of the same cohort, is not taken over"


def test_a_queue_is_given_back_when_its_cohort_gets_another() -> None:
    cache = world(take_over=frozenset({"a"}))
    cache.responsibility.kueue_is_live = True
    cache.reevaluate_queue_ownership()
    told(cache, cluster_queue("a", "shared"), local_queue("main", "a"))
    assert cache.responsibility.is_taken_over("team", "main")
    assert cache.store.snapshot().queue_system.queues["a"].stop_policy == "None"
    told(cache, cluster_queue("b", "shared"))
    assert not cache.responsibility.is_taken_over("team", "main")
    assert cache.store.snapshot().queue_system.queues["a"].stop_policy == "Hold", "what it says counts again"
    cache.responsibility.kueue_is_live = False
    cache.reevaluate_queue_ownership()
    cache.flush(1_000)
    assert cache.responsibility.is_taken_over("team", "main"), "without Kueue there is nothing to refuse"


def test_jobs_that_are_seen_before_their_queue_are_taken_over_with_it() -> None:
    """Informers list side by side: which kind is there first is chance."""
    cache = world(take_over=frozenset({"a"}))
    cache.responsibility.kueue_is_live = True
    cache.reevaluate_queue_ownership()
    told(cache, decode_object(job("train")))
    told(cache, cluster_queue("a"))
    assert not cache.responsibility.is_taken_over("team", "main")
    told(cache, local_queue("main", "a"))
    assert cache.responsibility.is_taken_over("team", "main")
    assert [workload.key for workload in cache.store.snapshot().workloads] == ["team/train"]


@in_virtual_time
async def test_a_refusal_is_an_event_on_the_queue_and_its_jobs_are_left_alone() -> None:
    flavor, queue, local = queues(cohortName="shared", stopPolicy="Hold")
    _, other, _ = queues(cluster="other", cohortName="shared")
    hooks = {"metadata": {"name": "kueue-validating-webhook-configuration"}}
    api = cluster(node("n2"), flavor, queue, local, other, job("train"))
    api.groups["admissionregistration.k8s.io/v1"] = ("validatingwebhookconfigurations",)
    api.store("validatingwebhookconfigurations", hooks)
    replica = Replica(api, take_over=frozenset({"cluster"}))
    await asyncio.sleep(10)
    assert api.get("jobs", "team/train")["spec"]["suspend"] is True
    assert api.objects.get("workloads", {}) == {}
    (event,) = [found for found in api.objects["events"].values() if found["reason"] == "TakeOverRefused"]
    assert event["regarding"]["name"] == "cluster"
    assert "cohort shared also has ClusterQueue other" in event["note"]
    await replica.end()
