"""Pods that are seen before their owner wait for it, a minute at most, whatever the chain above them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.objects import custom, decoded, job, pod, reference

from windlass.model.unstructured import Unstructured
from windlass.scheduler.awaiting_owner import PodsAwaitingOwner

JOB_SET = custom("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": []})
JOB = job("child", ownerReferences=[reference(JOB_SET)])
JOB_KEY, JOB_SET_KEY = ("batch", "Job", "team/child"), ("jobset.x-k8s.io", "JobSet", "team/set")


def owned(by: Unstructured, name: str = "p", **more: Any) -> Any:
    return decoded(pod(name, ownerReferences=[reference(by, **more)]))


def awaiting(*known: tuple[tuple[str, str, str], Unstructured]) -> PodsAwaitingOwner:
    """Everything is watched; these owners have been observed."""
    made = PodsAwaitingOwner({key: decoded(tree) for key, tree in known})
    made.is_watched = lambda kind, group: True
    return made


def test_a_pod_waits_for_an_owner_that_is_watched_and_missing() -> None:
    waiting = awaiting()
    assert waiting.must_wait(owned(JOB), 100)
    assert list(waiting.pop_waiting_for(JOB_KEY)) == ["team/p"]
    assert list(waiting.pop_waiting_for(JOB_KEY)) == [], "it is returned once"


def test_a_pod_waits_for_the_owner_of_its_owner() -> None:
    waiting = awaiting((JOB_KEY, JOB))
    assert waiting.must_wait(owned(JOB), 100)
    assert list(waiting.pop_waiting_for(JOB_KEY)) == []
    assert list(waiting.pop_waiting_for(JOB_SET_KEY)) == ["team/p"]


def test_a_pod_whose_owners_are_all_known_does_not_wait() -> None:
    assert not awaiting((JOB_KEY, JOB), (JOB_SET_KEY, JOB_SET)).must_wait(owned(JOB), 100)


@pytest.mark.parametrize(
    "tree",
    [
        decoded(pod("p")),
        owned(JOB, controller=False),
        owned({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "uid": "r"}}),
        owned({"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "r", "uid": "r"}}),
    ],
    ids=["no owner", "no controller", "independent pods", "another group"],
)
def test_these_pods_wait_for_nobody(tree: Any) -> None:
    assert not awaiting().must_wait(tree, 100)


def test_nobody_waits_for_a_kind_that_is_not_watched() -> None:
    waiting = PodsAwaitingOwner({})
    assert not waiting.must_wait(owned(JOB), 100)
    waiting.is_watched = lambda kind, group: (kind, group) == ("Job", "batch")
    assert waiting.must_wait(owned(JOB), 100)
    assert not waiting.must_wait(owned(JOB_SET, "q"), 100)


def test_owners_that_own_each_other_end_the_search() -> None:
    first = job("first", ownerReferences=[reference(job("second"))])
    second = job("second", ownerReferences=[reference(job("first"))])
    known = ((("batch", "Job", "team/first"), first), (("batch", "Job", "team/second"), second))
    assert not awaiting(*known).must_wait(owned(first), 100)


def test_waiting_ends_after_a_minute_from_the_first_sight_and_for_good() -> None:
    waiting = awaiting()
    assert waiting.must_wait(owned(JOB), 100)
    assert waiting.must_wait(owned(JOB), 140)
    assert waiting.pop_overdue(159) == []
    assert waiting.pop_overdue(160) == ["team/p"]
    assert waiting.pop_overdue(300) == []
    assert not waiting.must_wait(owned(JOB), 160)


def test_those_that_came_later_wait_on() -> None:
    waiting = awaiting()
    waiting.must_wait(owned(JOB, "early"), 100)
    waiting.must_wait(owned(JOB, "late"), 103)
    assert waiting.pop_overdue(160) == ["team/early"]
    assert list(waiting.pop_waiting_for(JOB_KEY)) == ["team/late"]


def test_a_deleted_pod_waits_no_more_and_its_successor_waits_anew() -> None:
    waiting = awaiting()
    waiting.must_wait(owned(JOB), 100)
    waiting.must_wait(owned(JOB, "other"), 100)
    waiting.forget("team/p")
    assert waiting.pop_overdue(160) == ["team/other"]
    waiting.forget("team/other")
    assert waiting.must_wait(owned(JOB, "other"), 161), "the first one of the name had given up"
    assert waiting.pop_overdue(220) == []
    assert waiting.pop_overdue(221) == ["team/other"]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["see", "tick", "own", "forget"]), st.sampled_from("abc"), st.integers(0, 40)),
        max_size=30,
    )
)
def test_every_pod_that_waits_comes_back_once_within_a_minute(
    steps: list[tuple[str, str, int]],
) -> None:
    waiting, now = awaiting(), 100
    since: dict[str, int] = {}
    for step, name, pause in steps:
        now += pause
        key = f"team/{name}"
        match step:
            case "see":
                if waiting.must_wait(owned(JOB, name), now):
                    since.setdefault(key, now)
                else:
                    assert key not in since
            case "own":
                assert sorted(waiting.pop_waiting_for(JOB_KEY)) == sorted(since)
                since.clear()
            case "forget":
                waiting.forget(key)
                since.pop(key, None)
        returned = waiting.pop_overdue(now)
        assert sorted(returned) == sorted(name for name, at in since.items() if now - at >= 60)
        for overdue in returned:
            del since[overdue]
