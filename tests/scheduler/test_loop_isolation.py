"""A bug that one tenant's pod sets off holds that pod, with its id, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apply.objects import pod
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import Replica, running

from windlass import engine, isolation
from windlass.cluster import store as store_module
from windlass.model.pod import Pod


def raise_for(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Decisions fail as soon as the pod is among those that are placed; returns its name while that is so."""
    bad, real = [f"team/{name}"], engine.place_single_pods

    def place(overlay: Any, rows: Any, *more: Any) -> Any:
        if any(overlay.snapshot.pods.keys[row] in bad for row in rows.tolist()):
            raise KeyError("other-tenant/secret")
        return real(overlay, rows, *more)

    monkeypatch.setattr(engine, "place_single_pods", place)
    return bad


def condition(replica: Replica, name: str) -> dict[str, Any]:
    conditions = replica.api.get("pods", f"team/{name}")["status"].get("conditions") or [{}]
    found: dict[str, Any] = conditions[0]
    return found


def events(replica: Replica, name: str) -> list[str]:
    found = replica.api.objects.get("events", {}).values()
    return [event["note"] for event in found if event["regarding"]["name"] == name]


@in_virtual_time
async def test_the_others_start_and_the_one_is_told_what_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raise_for(monkeypatch, "bad")
    async with running(pod("a"), pod("bad", priority=9), pod("c")) as replica:
        assert [replica.node_of(name) for name in ("a", "bad", "c")] == ["n1", "", "n1"]
        told = condition(replica, "bad")
        assert told["reason"] == "SchedulerError"
        assert "a bug in Windlass" in told["message"]
        assert "secret" not in told["message"], "what the error says of others is for the log only"
        bug = told["message"].partition("report bug ")[2].split()[0]
        assert any(bug in note for note in events(replica, "bad"))
        assert replica.metric("windlass_internal_errors_total", bug=bug) == 1
        assert replica.metric("windlass_set_aside_workloads") == 1
        assert replica.scheduler.not_ready() == ""
        assert replica.metric("windlass_failed_decisions_total") == 0
    assert f"bug {bug}: team/bad is set aside" in caplog.text


@in_virtual_time
async def test_it_is_not_looked_for_again_with_every_decision_and_tried_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = raise_for(monkeypatch, "bad")
    decisions = 0
    real = isolation.decide_without_explanations

    def count(*arguments: Any) -> Any:
        nonlocal decisions
        decisions += 1
        return real(*arguments)

    monkeypatch.setattr(isolation, "decide_without_explanations", count)
    async with running(pod("bad")) as replica:
        before = decisions
        for number in range(10):
            replica.api.store("pods", pod(f"p{number}", gpus=0))
            await asyncio.sleep(1)
            assert replica.node_of(f"p{number}") == "n1"
        assert decisions - before == 10, "one each"
        bad.clear()
        await asyncio.sleep(isolation.RETRY_SECONDS + 20)
        assert replica.node_of("bad") == "n1"
        assert replica.metric("windlass_set_aside_workloads") == 0


@in_virtual_time
async def test_a_pod_that_changes_is_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = raise_for(monkeypatch, "bad")
    async with running(pod("bad")) as replica:
        assert replica.node_of("bad") == ""
        bad.clear()
        replica.api.store("pods", pod("bad", labels={"changed": "yes"}))
        await asyncio.sleep(1)
        assert replica.node_of("bad") == "n1"


@in_virtual_time
async def test_a_thousand_of_them_in_a_namespace_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, decisions, real = raise_for(monkeypatch, "bad"), 0, isolation.decide_without_explanations
    bad += [f"team/bad-{number}" for number in range(200)]

    def count(*arguments: Any) -> Any:
        nonlocal decisions
        decisions += 1
        return real(*arguments)

    monkeypatch.setattr(isolation, "decide_without_explanations", count)
    others = [pod(f"good-{number}", namespace="other", gpus=0) for number in range(3)]
    async with running(*(pod(f"bad-{number}") for number in range(200)), *others) as replica:
        for number in range(3):
            assert replica.api.get("pods", f"other/good-{number}")["spec"].get("nodeName") == "n1"
        assert decisions < 100


@in_virtual_time
async def test_a_pod_that_the_store_fails_on_is_one_that_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    real = store_module.Store._add_pod

    def add(self: Any, key: str, added: Pod, previous: Any) -> None:
        real(self, key, added, previous)
        if added.metadata.name == "bad":
            raise OverflowError("too large")

    monkeypatch.setattr(store_module.Store, "_add_pod", add)
    async with running(pod("a"), pod("bad"), pod("c"), pod("bad", namespace="other", on="n1")) as replica:
        assert [replica.node_of(name) for name in ("a", "bad", "c")] == ["", "", ""], "what is free is not known"
        replica.api.remove("pods", "other/bad")
        await asyncio.sleep(1)
        assert [replica.node_of(name) for name in ("a", "bad", "c")] == ["n1", "", "n1"]
        assert "a bug in Windlass" in condition(replica, "bad")["message"]


@in_virtual_time
async def test_a_step_of_carrying_out_that_fails_for_one_is_done_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as replica:
        executor = replica.scheduler.executor
        real = executor._pre_bind_action

        def broken(bound: Pod, *more: Any) -> Any:
            if bound.metadata.name == "bad":
                raise KeyError("a bug")
            return real(bound, *more)

        monkeypatch.setattr(executor, "_pre_bind_action", broken)
        for name in ("a", "bad", "c"):
            replica.api.store("pods", pod(name))
        await asyncio.sleep(1)
        assert [replica.node_of(name) for name in ("a", "bad", "c")] == ["n1", "", "n1"]
        assert replica.scheduler.not_ready() == ""


@in_virtual_time
async def test_a_task_that_ends_with_a_bug_starts_again_and_readiness_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as replica:
        executor = replica.scheduler.executor
        monkeypatch.setattr(executor, "_count_held", lambda codes: 1 / 0)
        replica.api.store("pods", pod("large", gpus=100))
        await asyncio.sleep(2)
        assert "ZeroDivisionError" in replica.scheduler.not_ready()
        monkeypatch.undo()
        await asyncio.sleep(6)
        assert replica.scheduler.not_ready() == ""
        replica.api.store("pods", pod("a"))
        await asyncio.sleep(1)
        assert replica.node_of("a") == "n1"
