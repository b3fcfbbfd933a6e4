"""Virtual time: the order of events, decisions until there is rest, and what is said where there is none."""

from __future__ import annotations

import pytest
from tests.reference.park import gpu_node, pod

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig
from windlass.model.decision import Bind, Evict
from windlass.model.errors import WindlassError
from windlass.model.plan import Plan
from windlass.simulate.driver import MAX_CYCLES, SimulationDriver
from windlass.simulate.job_cluster import ENDS_FIRST
from windlass.simulate.measures import RunRecorder
from windlass.simulate.timeline import Timeline
from windlass.simulate.trace import Job, Trace
from windlass.simulate.trace_run import TraceRun, declared_mix


class TestTimeline:
    def test_by_moment_then_order_then_as_they_were_pushed(self) -> None:
        timeline: Timeline[str] = Timeline()
        for at, order, name in ((5, 1, "d"), (5, 0, "b"), (5, 1, "e"), (3, 9, "a"), (5, 0, "c")):
            timeline.push(at, name, order)
        assert timeline.next_at == 3
        assert [name for _, name in timeline.pop_due(5)] == list("abcde")
        assert timeline.next_at is None

    def test_what_is_pushed_meanwhile_and_is_due_is_taken(self) -> None:
        timeline: Timeline[int] = Timeline()
        timeline.push(1, 1)
        seen = []
        for at, event in timeline.pop_due(3):
            seen.append((at, event))
            timeline.push(at + 1, event + 1)
        assert seen == [(1, 1), (2, 2), (3, 3)]
        assert timeline.next_at == 4


def run_of(*jobs: Job) -> TraceRun:
    trace = Trace("tiny", (gpu_node("n", 2),), jobs, retry=True)
    store = Store()
    store.apply(Put(node) for node in trace.nodes)
    recorder = RunRecorder(trace, "pack", "declared", declared_mix(trace), store.snapshot())
    return TraceRun(trace, store, recorder, learns_mix=False)


def job(name: str, gpus: int, at: int, lasts: int, priority: int = 0) -> Job:
    return Job(name, (pod(name, gpus, priority=priority),), at, lasts)


def test_a_moment_without_anything_that_waits_is_not_decided_on() -> None:
    run = run_of(job("a", 1, 0, 10), job("b", 1, 20, 10))
    driver = SimulationDriver(run, EngineConfig())
    assert list(driver.play(run)) == [0, 10, 20, 30]
    assert driver.decisions == 2


def test_what_was_evicted_is_tried_again_at_the_same_moment() -> None:
    """Two GPUs. `small` has to go for `big`; nothing is left for it, so the second decision is the last."""
    run = run_of(job("small", 1, 0, 100), job("big", 2, 10, 5, priority=1))
    driver = SimulationDriver(run, EngineConfig())
    moments = driver.play(run)
    next(moments)
    assert driver.decisions == 1
    next(moments)
    assert driver.decisions == 3
    assert [each.job.name for each in run.running.values()] == ["big"]
    assert [each.job.name for each in run.waiting.values()] == ["small"]
    assert run.timeline.next_at == 15
    assert list(moments)[-1] == 115, "what was evicted starts from nothing"


def test_an_end_that_belongs_to_a_start_cut_short_is_none() -> None:
    """`small` would have ended at 12, was evicted at 10 and runs from 15 to 27."""
    run = run_of(job("small", 1, 0, 12), job("big", 2, 10, 5, priority=1))
    assert list(SimulationDriver(run, EngineConfig()).play(run)) == [0, 10, 12, 15, 27]


def test_decisions_that_undo_one_another_are_an_error_that_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def to_and_fro(*_: object) -> Plan:
        """Whoever runs makes room for whoever waits."""
        out = [f"default/{each.job.name}" for each in run.running.values()]
        into = [f"default/{each.job.name}" for each in run.waiting.values()][:1]
        evicts = tuple(Evict(name, (name,), into[0], "Whim") for name in out)
        return Plan(tuple(Bind(name, "n") for name in into), (), evicts=evicts)

    run = run_of(job("a", 1, 0, 10), job("b", 1, 7, 10))
    monkeypatch.setattr("windlass.simulate.driver.decide", to_and_fro)
    words = f"second 7: not stable after {MAX_CYCLES} decisions; still evicting default/b"
    with pytest.raises(WindlassError, match=words):
        list(SimulationDriver(run, EngineConfig()).play(run))


def test_ends_come_before_whatever_else_happens_then() -> None:
    run = run_of(job("a", 1, 0, 10))
    moments = SimulationDriver(run, EngineConfig()).play(run)
    next(moments)
    run.timeline.push(10, "failure", (ENDS_FIRST + 1, 0))
    events = [type(event).__name__ for _, event in run.timeline.pop_due(10)]
    assert events == ["JobEnd", "str"]
