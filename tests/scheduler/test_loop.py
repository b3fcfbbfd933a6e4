"""The scheduling loop: when it decides and when not, what survives a failure, and what leaves the event loop free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.apply.objects import decoded, local_queue, node, pod
from tests.apply.scene import metric
from tests.kube.virtual_time import START, in_virtual_time

from windlass.cluster.delta import Delta, Put
from windlass.cluster.snapshot import Snapshot
from windlass.isolation import IsolatedDecision, IsolatingEngine
from windlass.model.decision import Bind, Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.scheduler import loop as module
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.loop import SchedulingLoop
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

Decide = Callable[..., Any]
decide = IsolatingEngine.decide_without_explanations


def patch_engine(monkeypatch: pytest.MonkeyPatch, decides: Decide) -> None:
    monkeypatch.setattr(IsolatingEngine, "decide_without_explanations", decides)


class Looping:
    """A loop with a cache of its own; it is its own sink and observer."""

    def __init__(self, batch_seconds: float = 0.001) -> None:
        options = SchedulerOptions(batch_seconds=batch_seconds)
        self.cache, self.metrics = SchedulerCache(options), Metrics()
        self.loop = SchedulingLoop(options, self.cache, self, self.metrics, self)
        self.executed: list[tuple[Plan, Snapshot]] = []
        self.cycles: list[tuple[int, list[str], Plan | None]] = []
        """Time, changed objects and plan, as the observer sees them."""

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        self.executed.append((plan, snapshot))

    def on_cycle(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None:
        changed = [delta.object.metadata.name for delta in deltas if isinstance(delta, Put)]
        self.cycles.append((now - int(START), changed, plan))

    def put(self, *trees: Any) -> None:
        self.cache.push([Put(decoded(tree)) for tree in trees])

    @property
    def decisions(self) -> int:
        return len(self.executed)


@asynccontextmanager
async def looping(**options: Any) -> AsyncIterator[Looping]:
    made = Looping(**options)
    task = asyncio.create_task(made.loop.run(lambda: True))
    await asyncio.sleep(0.01)
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the loop has ended"


def times(count: int) -> Callable[[], bool]:
    left = iter([True] * count)
    return lambda: next(left, False)


NEWS = node("n1")
NO_NEWS = {
    "apiVersion": "windlass.dev/v1",
    "kind": "RunTimeHistory",
    "metadata": {"name": "main", "namespace": "team"},
}
"""A change that no decision depends on."""


# When it decides


@in_virtual_time
async def test_it_decides_at_the_start_and_then_every_ten_seconds() -> None:
    async with looping() as made:
        assert made.decisions == 1
        await asyncio.sleep(9.9)
        assert made.decisions == 1
        await asyncio.sleep(0.2)
        assert made.decisions == 2
        await asyncio.sleep(100)
        assert made.decisions == 12


@in_virtual_time
async def test_it_decides_on_a_change_at_once() -> None:
    async with looping() as made:
        made.put(NEWS, pod("p"))
        await asyncio.sleep(0.01)
        assert made.decisions == 2
        assert [bind.pod for bind in made.executed[-1][0].binds] == ["team/p"]
        assert made.executed[-1][1].nodes.size == 1, "with the snapshot that it was made on"


@in_virtual_time
async def test_changes_that_come_together_are_one_decision() -> None:
    async with looping(batch_seconds=1.0) as made:
        for number in range(5):
            made.put(node(f"n{number}"))
            await asyncio.sleep(0.15)
        assert made.decisions == 1
        await asyncio.sleep(0.5)
        assert made.decisions == 2
        assert made.executed[-1][1].nodes.size == 5


@in_virtual_time
async def test_after_a_slow_decision_changes_are_collected_for_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a stream of changes leaves no time to carry decisions out."""

    async def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0.1)
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", slowly)
    monkeypatch.setattr(module, "INLINE_MAX_SECONDS", -1.0)
    async with looping() as made:
        for number in range(100):
            made.put(node(f"n{number}"))
            await asyncio.sleep(0.01)
        assert made.decisions == 5, "one in 0.2 seconds"


@in_virtual_time
async def test_changes_that_no_decision_depends_on_are_applied_without_one() -> None:
    async with looping() as made:
        made.put(NO_NEWS)
        await asyncio.sleep(0.01)
        assert made.decisions == 1
        assert made.cycles[-1] == (0, ["main"], None), "and are recorded"
        assert made.cache.store.snapshot(0).run_times.keys() == {"team/main"}


@in_virtual_time
async def test_a_stream_of_such_changes_does_not_put_decisions_off() -> None:
    """Grace periods end and planned starts become due, however busy the watches are."""
    async with looping() as made:
        for _ in range(40):
            made.put(NO_NEWS)
            await asyncio.sleep(0.9)
        assert made.decisions == 4


@in_virtual_time
async def test_a_decision_begins_the_ten_seconds_anew() -> None:
    async with looping() as made:
        await asyncio.sleep(8)
        made.put(NEWS)
        await asyncio.sleep(8)
        assert made.decisions == 2
        made.put(NO_NEWS)
        await asyncio.sleep(1)
        assert made.decisions == 2
        await asyncio.sleep(1.1)
        made.put(NO_NEWS)
        await asyncio.sleep(0.01)
        assert made.decisions == 3


@in_virtual_time
async def test_it_ends_when_it_may_decide_no_more() -> None:
    made = Looping()
    await asyncio.wait_for(made.loop.run(times(3)), 60)
    assert made.decisions == 3


@in_virtual_time
async def test_every_cycle_is_noted_for_the_health_check() -> None:
    made = Looping()
    assert made.loop.last_cycle_at == time.monotonic()
    await asyncio.sleep(100)
    await made.loop.run(times(1))
    assert time.monotonic() - made.loop.last_cycle_at == pytest.approx(10, abs=0.01), "its last cycle, then a tick"


# What it does with a decision


@in_virtual_time
async def test_decisions_are_counted_and_measured() -> None:
    async with looping() as made:
        made.put(NEWS, pod("p"), pod("q", gpus=99), pod("r", gpus=99))
        await asyncio.sleep(0.01)
        assert metric(made.metrics, "windlass_cycles_total") == 2
        assert metric(made.metrics, "scheduler_scheduling_algorithm_duration_seconds_count") == 2
        assert metric(made.metrics, "scheduler_scheduling_algorithm_duration_seconds_sum") >= 0
        assert metric(made.metrics, "scheduler_pending_pods", queue="active") == 1
        assert metric(made.metrics, "scheduler_pending_pods", queue="unschedulable") == 2
        assert metric(made.metrics, "windlass_failed_decisions_total") == 0


@in_virtual_time
async def test_pods_that_were_decided_on_are_marked_once() -> None:
    async with looping() as made:
        made.put(NEWS, pod("p", gpus=99))
        await asyncio.sleep(60)
        assert made.decisions > 5
        assert made.cache.store.snapshot(0).decided_pods == 1


@in_virtual_time
async def test_a_loop_without_an_observer_works_as_well() -> None:
    options, made = SchedulerOptions(), Looping()
    loop = SchedulingLoop(options, made.cache, made, made.metrics)
    made.put(NO_NEWS)
    await asyncio.wait_for(loop.run(times(2)), 60)
    assert made.decisions == 2
    assert made.cycles == []


# Explanations


def explained(hold: Hold) -> Hold:
    return Hold(hold.workload, msgspec.structs.replace(hold.verdict, outlook=f"at {time.time() - START:.1f} s"))


HELD = Plan(holds=(Hold("team/p", Verdict("GPU_FULL", 1)),))
BUSY = msgspec.structs.replace(HELD, binds=(Bind("team/q", "n1"),))


def deciding(monkeypatch: pytest.MonkeyPatch, plan: Plan, *, explains: bool = True) -> None:
    """Every decision gives this plan."""
    advisor = SimpleNamespace(explain_hold=explained) if explains else None
    patch_engine(monkeypatch, lambda *_: IsolatedDecision(plan, advisor))


def outlooks(made: Looping) -> list[str]:
    return [hold.verdict.outlook for plan, _ in made.executed for hold in plan.holds]


@pytest.mark.parametrize(("plan", "seconds"), [(HELD, 2), (BUSY, 60)], ids=["idle", "busy"])
@in_virtual_time
async def test_holds_are_explained_again_after_a_while(
    plan: Plan, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    deciding(monkeypatch, plan)
    async with looping() as made:
        for number, pause in enumerate((seconds - 0.1, 0.2, 0.1)):
            await asyncio.sleep(pause)
            made.put(node(f"n{number}"))
            await asyncio.sleep(0.01)
        told = outlooks(made)
        assert set(told[:-2]) == {"at 0.0 s"}, "at once, and then not for a while"
        assert set(told[-2:]) == {f"at {seconds + 0.1:.1f} s"}


@in_virtual_time
async def test_a_record_has_no_explanations_since_they_depend_on_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deciding(monkeypatch, HELD)
    async with looping() as made:
        assert made.cycles == [(0, [], HELD)]
        assert outlooks(made) == ["at 0.0 s"]


@in_virtual_time
async def test_without_holds_nothing_is_explained_and_the_next_hold_is_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deciding(monkeypatch, Plan())
    async with looping() as made:
        deciding(monkeypatch, HELD, explains=False)
        made.put(node("n1"))
        await asyncio.sleep(1)
        assert outlooks(made) == [""]
        deciding(monkeypatch, HELD)
        made.put(node("n2"))
        await asyncio.sleep(0.01)
        assert outlooks(made) == ["", "at 1.0 s"]


@in_virtual_time
async def test_a_change_that_waits_ends_the_explaining(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Plan(holds=tuple(Hold(f"team/{name}", Verdict("GPU_FULL", 1)) for name in "pq"))
    made = Looping()

    def explain(hold: Hold) -> Hold:
        made.cache.changed.set()
        return explained(hold)

    advisor = SimpleNamespace(explain_hold=explain)
    patch_engine(monkeypatch, lambda *_: IsolatedDecision(two, advisor))
    await made.loop.run(times(1))
    assert outlooks(made) == ["at 0.0 s", ""]


# Failures


def failing(monkeypatch: pytest.MonkeyPatch, *fails: bool) -> list[Any]:
    """The first decisions fail or not; returns the times of all."""
    attempts: list[Any] = []
    outcomes = iter(fails)

    def decide_or_fail(engine: IsolatingEngine, snapshot: Any, now: int) -> Any:
        attempts.append(now)
        if next(outcomes, False):
            raise ZeroDivisionError("a bug")
        return decide(engine, snapshot, now)

    patch_engine(monkeypatch, decide_or_fail)
    return attempts


@in_virtual_time
async def test_a_failed_decision_is_made_again_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = failing(monkeypatch, True, True)
    async with looping() as made:
        await asyncio.sleep(4.9)
        assert len(attempts) == 1
        await asyncio.sleep(0.2)
        assert len(attempts) == 2
        made.put(NEWS)
        await asyncio.sleep(4.8)
        assert len(attempts) == 2, "whatever comes meanwhile"
        await asyncio.sleep(0.2)
        assert (len(attempts), made.decisions) == (3, 1)
        assert metric(made.metrics, "windlass_failed_decisions_total") == 2
        assert "a decision failed; deciding again in 5 s" in caplog.text


@in_virtual_time
async def test_what_a_failed_decision_was_about_is_decided_again_without_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, False, True)
    async with looping() as made:
        made.put(NEWS, pod("p"))
        await asyncio.sleep(5.1)
        assert [bind.pod for bind in made.executed[-1][0].binds] == ["team/p"]


@in_virtual_time
async def test_failures_are_counted_until_a_decision_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, True, True, True)
    async with looping() as made:
        counts = []
        for _ in range(4):
            counts.append(made.loop.consecutive_failures)
            await asyncio.sleep(5)
        assert counts == [1, 2, 3, 0]
        assert made.loop.last_failure == "ZeroDivisionError: a bug"


@in_virtual_time
async def test_an_error_of_the_sink_is_a_failed_decision_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Looping()
    monkeypatch.setattr(made, "execute", lambda plan, snapshot: 1 / 0)
    await made.loop.run(times(2))
    assert made.loop.consecutive_failures == 2


# Threads


class Threads:
    """Where each decision runs, and how long it seems to take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.inline: list[bool] = []
        self._clock, self._seconds = 0.0, iter(seconds)
        clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, perf_counter=lambda: self._clock)
        monkeypatch.setattr(module, "time", clock)
        patch_engine(monkeypatch, lambda *arguments: self._decide(*arguments))

    def _decide(self, *arguments: Any) -> Any:
        self.inline.append(threading.current_thread() is threading.main_thread())
        self._clock += next(self._seconds, 0.0)
        return decide(*arguments)


@in_virtual_time
async def test_after_a_decision_of_ten_milliseconds_the_next_one_runs_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(monkeypatch, 0.0, 0.009, 0.0101, 5.0, 0.0)
    async with looping():
        await asyncio.sleep(55)
    assert threads.inline == [False, True, True, False, False, True], "the first one may take any time"


@pytest.mark.parametrize(("changes", "inline"), [(1, True), (100, True), (101, False)])
@in_virtual_time
async def test_a_decision_on_many_changes_runs_in_a_thread(
    changes: int, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    async with looping() as made:
        made.put(*(node(f"n{number}") for number in range(changes)))
        await asyncio.sleep(0.01)
    assert threads.inline == [False, inline]


@in_virtual_time
async def test_the_lease_can_be_renewed_while_a_slow_decision_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewed = threading.Event()
    began = threading.Event()

    def slow(*arguments: Any) -> Any:
        began.set()
        assert renewed.wait(30), "nothing else ran while the decision was made"
        return decide(*arguments)

    async def renew() -> None:
        while not began.is_set():
            await asyncio.sleep(0)
        renewed.set()

    patch_engine(monkeypatch, slow)
    made = Looping()
    await asyncio.gather(made.loop.run(times(1)), renew())
    assert made.decisions == 1


# Standby


@in_virtual_time
async def test_a_standby_replica_follows_and_decides_nothing() -> None:
    made = Looping()
    task = asyncio.create_task(made.loop.run_standby())
    await asyncio.sleep(0.01)
    made.put(NEWS, pod("p"), local_queue("main"))
    await asyncio.sleep(0.01)
    assert made.cache.store.snapshot(0).nodes.size == 1
    assert made.cycles == [(0, [], None), (0, ["n1", "p", "main"], None)]
    assert made.decisions == 0
    assert metric(made.metrics, "windlass_cycles_total") == 0
    await asyncio.sleep(35)
    assert time.monotonic() - made.loop.last_cycle_at < 10.1, "it is alive, and says so"
    assert made.decisions == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
