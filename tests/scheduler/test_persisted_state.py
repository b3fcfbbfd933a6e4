"""Usage history as the next leader reads it: it decays by half in a half-life, and grows towards what is used."""

from __future__ import annotations

from windlass.model.pod import Pod
from windlass.model.queue import LocalQueue
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.scheduler.persisted_state import decayed_usage, usage_by_queue

GPU = "nvidia.com/gpu"


def test_history_decays_and_grows() -> None:
    queue = LocalQueue("a/main", "team", consumed={GPU: 8_000}, consumed_at=1_000)
    assert decayed_usage(queue, {}, 100, 1_000) == {GPU: 8_000}
    assert decayed_usage(queue, {}, 100, 1_100) == {GPU: 4_000}
    assert decayed_usage(queue, {GPU: 8_000}, 100, 1_100) == {GPU: 8_000}, "steady use stays where it is"
    assert decayed_usage(queue, {GPU: 16_000}, 100, 1_100) == {GPU: 12_000}
    assert decayed_usage(queue, {"cpu": 2_000}, 100, 1_100) == {GPU: 4_000, "cpu": 1_000}


def test_a_queue_without_history_begins_with_none() -> None:
    assert decayed_usage(LocalQueue("a/main", "team"), {GPU: 8_000}, 100, 1_000) == {GPU: 0}


def test_usage_is_what_is_held() -> None:
    held = Admission("team", (PodSetAssignment("main", 2, {GPU: "f"}, {GPU: 2_000}),))
    sets = (PodSet("main", 2, Pod()),)
    workloads = [
        Workload("a/one", "Workload", sets, queue_name="main", admission=held),
        Workload("a/two", "Workload", sets, queue_name="main", admission=held),
        Workload("a/waits", "Workload", sets, queue_name="main"),
        Workload("a/alone", "Workload", sets, admission=held),
    ]
    assert usage_by_queue(workloads) == {"a/main": {GPU: 4_000}}
