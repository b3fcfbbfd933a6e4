"""Objects that can't be read: logged, counted and told to their owner, once for each object and problem."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apply.objects import condition, custom, node, pod
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.events import Event, EventRegarding
from windlass.model.unstructured import Unstructured
from windlass.scheduler import unreadable_reporter
from windlass.scheduler.unreadable_reporter import UnreadableReporter

ODD = {"tolerations": [{"key": "gpu", "operator": "SomethingNew"}]}
"""An operator of a Kubernetes that is newer than Windlass."""


class Reporting:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.reporter = UnreadableReporter(scene.cache, scene.recorder, scene.executor.conditions, scene.metrics)

    async def report(self, *trees: Unstructured) -> None:
        self.scene.put(*trees)
        self.scene.watch()
        self.reporter.report(self.scene.snapshot(), lambda: self.scene.leads)
        await settle()

    def count(self, kind: str) -> float:
        return self.scene.metric("windlass_unreadable_objects_total", kind=kind)

    def told(self, name: str) -> Unstructured:
        return condition(self.scene.get("pods", name), "PodScheduled")


@asynccontextmanager
async def reporting(*trees: Unstructured, **options: Any) -> AsyncIterator[Reporting]:
    async with Scene(node("n1"), *trees, **options).running() as scene:
        yield Reporting(scene)


@in_virtual_time
async def test_the_owner_of_a_pod_that_cannot_be_read_hears_of_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reporting(pod("odd", spec=ODD)) as made:
        for _ in range(3):
            await made.report()
            await asyncio.sleep(60)
        said = made.told("odd")
        assert (said["status"], said["reason"]) == ("False", "Misconfigured")
        assert "spec.tolerations[0].operator" in said["message"]
        assert said["message"].startswith("0/1 nodes are available: ")
        assert said["message"].endswith("(INVALID_OBJECT)")
        events = {event["reason"]: event for event in made.scene.events("odd")}
        assert events.keys() == {"Unreadable", "FailedScheduling"}
        assert (events["Unreadable"]["type"], events["Unreadable"]["action"]) == ("Warning", "Reading")
        assert "spec.tolerations[0].operator" in events["Unreadable"]["note"]
        assert events["Unreadable"]["regarding"]["uid"] == "uid-odd"
        assert made.count("Pod") == 1
        assert len([record for record in caplog.records if "can't be read" in record.message]) == 1


@pytest.mark.parametrize(
    ("tree", "options"),
    [
        (pod("odd", spec=ODD, scheduler="default-scheduler"), {}),
        (pod("odd", spec=ODD, on="n1"), {}),
    ],
    ids=["another scheduler's", "on a node"],
)
@in_virtual_time
async def test_these_pods_are_reported_and_not_told_that_they_wait(tree: Unstructured, options: dict[str, Any]) -> None:
    async with reporting(tree, **options) as made:
        await made.report()
        assert made.told("odd") == {}
        assert [event["reason"] for event in made.scene.events("odd")] == ["Unreadable"]
        assert made.count("Pod") == 1


@in_virtual_time
async def test_a_new_problem_or_a_new_object_of_the_same_name_is_reported_again() -> None:
    async with reporting(pod("odd", spec=ODD)) as made:
        await made.report()
        await made.report(pod("odd", spec={"priority": "high"}))
        assert made.count("Pod") == 2
        await made.report(pod("odd", spec={"priority": "high"}, uid="another"))
        assert made.count("Pod") == 3
        await made.report(pod("odd", spec={"priority": "high"}, uid="another", labels={"a": "b"}))
        assert made.count("Pod") == 3, "the same problem of the same object"


@in_virtual_time
async def test_without_the_lease_it_is_logged_and_counted_only() -> None:
    async with reporting(pod("odd", spec=ODD)) as made:
        made.scene.leads = False
        await made.report()
        assert made.count("Pod") == 1
        assert made.scene.client.sent == []
        made.scene.leads = True
        await made.report()
        assert made.told("odd")["reason"] == "Misconfigured", "the pod is told by whoever leads"


@in_virtual_time
async def test_objects_of_other_kinds_are_reported_with_their_kind() -> None:
    budget = custom("policy/v1", "PodDisruptionBudget", "odd", spec={"minAvailable": {"a": 1}})
    async with reporting(budget) as made:
        await made.report()
        (event,) = made.scene.events("odd")
        regarding = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "name": "odd"}
        assert event["regarding"] == {**regarding, "namespace": "team", "uid": "uid-odd"}
        assert made.count("PodDisruptionBudget") == 1
        assert [request.method for request in made.scene.client.sent] == ["POST"], "no condition"


@in_virtual_time
async def test_a_pod_and_a_node_with_a_field_that_the_engine_cannot_read_are_reported() -> None:
    """They are decoded; the engine holds the pod, and the executor tells it so."""
    share = {"annotations": {"gpu-fraction": "a half"}}
    broken_node = node("n2")
    broken_node["metadata"]["annotations"] = {"windlass.dev/devices-layout": "no layout"}
    async with reporting(pod("odd", **share), broken_node) as made:
        snapshot = made.scene.snapshot()
        await made.report()
        reported = {event["regarding"]["name"]: event for event in made.scene.events()}
        assert set(snapshot.unreadable) == {
            name if event["regarding"]["kind"] == "Pod" else f"Node {name}"
            for name, event in ((f"team/{key}" if key == "odd" else key, event) for key, event in reported.items())
        }
        assert "odd" in reported
        assert reported["odd"]["regarding"]["uid"] == "uid-odd"
        assert made.told("odd") == {}


@in_virtual_time
async def test_what_has_gone_meanwhile_is_not_reported() -> None:
    async with reporting(pod("odd", annotations={"gpu-fraction": "a half"})) as made:
        snapshot = made.scene.snapshot()
        assert snapshot.unreadable
        made.scene.api.remove("pods", "team/odd")
        made.scene.watch()
        made.scene.cache.drain_inbox()
        made.reporter.report(snapshot, lambda: True)
        assert made.count("Pod") == 0


@in_virtual_time
async def test_beyond_the_rate_limit_reports_are_counted_without_an_event() -> None:
    async with reporting(pod("odd", spec=ODD, on="n1")) as made:
        for number in range(500):
            other = Event(EventRegarding("Pod", f"team/other-{number}"), "FailedScheduling", "x", "Scheduling")
            made.scene.recorder.record(other, droppable=True)
        await made.report()
        assert (made.scene.recorder.dropped, made.count("Pod")) == (1, 1)


@in_virtual_time
async def test_the_memory_of_reports_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unreadable_reporter.MAX_REPORTED == 10_000
    monkeypatch.setattr(unreadable_reporter, "MAX_REPORTED", 2)
    async with reporting(pod("a", spec=ODD), pod("b", spec=ODD)) as made:
        await made.report()
        await made.report()
        assert made.count("Pod") == 2, "two are remembered"
        await made.report(pod("c", spec=ODD))
        assert made.count("Pod") == 3
        await made.report()
        assert made.count("Pod") > 3, "with a third one the first are forgotten"
