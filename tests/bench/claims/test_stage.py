"""The driver: work starts, is evicted, loses what it has not saved, comes back and ends; machines fail and return."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine import EngineConfig
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
)
from windlass.model.pod import Pod
from windlass.queueing.config import QueueConfig
from windlass.simulate.job_cluster import EVICTED
from windlass.simulate.pod_templates import make_pod_spec
from windlass_bench.claims.parks import rack_fleet
from windlass_bench.claims.queues import QueueSpec, queue_objects
from windlass_bench.claims.task_cluster import FAILED, Outage, TaskCluster, TaskClusterSettings
from windlass_bench.claims.tasks import Task, TaskRecord

QUEUES = queue_objects([QueueSpec("own", 16, {"reclaimWithinCohort": "Any"}), QueueSpec("spare", 0)])
FOREVER = 1_000_000


def task(
    name: str,
    gpus: int = 8,
    at: int = 0,
    seconds: int | None = 1000,
    *,
    pods: int = 1,
    queue: str = "",
    checkpoint: int = 0,
    restart: int = 0,
) -> Task:
    labels = {QUEUE_NAME_LABEL: queue} if queue else {}
    annotations = {}
    if pods > 1:
        labels[KUEUE_POD_GROUP_NAME], annotations[POD_GROUP_TOTAL_COUNT_ANNOTATION] = name, str(pods)
    made = tuple(
        Pod(
            metadata=ObjectMeta(name=f"{name}-{index}", labels=labels, annotations=annotations),
            spec=make_pod_spec({}, {"nvidia.com/gpu": str(gpus)}),
        )
        for index in range(pods)
    )
    return Task(name, made, at, seconds, queue, checkpoint, restart)


def play(*tasks: Task, nodes: int = 2, horizon: int = 100_000, **more: object) -> dict[str, TaskRecord]:
    config = EngineConfig(queues=QueueConfig(ignore_undeclared=True))
    found = TaskClusterSettings(config, rack_fleet(nodes, 2), horizon=horizon, **more)  # type: ignore[arg-type]
    return {record.task.name: record for record in TaskCluster(found, tasks).run()}


class TestRecord:
    def test_a_stop_undoes_what_came_after_the_last_checkpoint(self) -> None:
        record = TaskRecord(task("a", checkpoint=600, restart=60, seconds=2000), 8)
        assert record.start(0, ()) == 2000
        assert record.at_risk(1300) == 100
        record.stop(1300, EVICTED, FOREVER)
        assert (record.checkpointed_seconds, record.lost) == (1200, 100)
        assert record.start(5000, ()) == 5000 + 60 + 800

    def test_without_checkpoints_everything_is_undone(self) -> None:
        record = TaskRecord(task("a"), 8)
        record.start(0, ())
        record.stop(900, EVICTED, FOREVER)
        assert (record.checkpointed_seconds, record.lost) == (0, 900)

    def test_a_stop_during_the_restart_undoes_nothing(self) -> None:
        record = TaskRecord(task("a", restart=60), 8)
        record.start(0, ())
        record.stop(10, EVICTED, FOREVER)
        record.start(20, ())
        record.stop(50, EVICTED, FOREVER)
        assert (record.lost, record.restarting, record.held) == (10, 30, 40)

    def test_nothing_counts_after_the_horizon(self) -> None:
        record = TaskRecord(task("a"), 8)
        record.start(900, ())
        record.end(1900, 1000)
        assert record.held == 100

    @given(
        st.integers(1, 5000),
        st.integers(0, 700),
        st.integers(0, 120),
        st.lists(st.tuples(st.integers(1, 900), st.integers(0, 500)), max_size=8),
    )
    def test_every_second_on_a_gpu_is_work_or_lost_or_restart(
        self, seconds: int, checkpoint: int, restart: int, stops: list[tuple[int, int]]
    ) -> None:
        """Whatever stops it, and however often: in the end exactly its own work has been done."""
        record = TaskRecord(task("a", checkpoint=checkpoint, restart=restart, seconds=seconds), 8)
        now = 0
        end = record.start(now, ())
        for run, pause in stops:
            assert end is not None
            if now + run >= end:
                break
            record.stop(now + run, EVICTED, FOREVER)
            now += run + pause
            end = record.start(now, ())
        assert end is not None
        record.end(end, FOREVER)
        assert record.held == seconds + record.lost + record.restarting
        assert record.restarting <= restart * len(record.stops)
        if checkpoint:
            assert record.lost < max(1, checkpoint) * max(1, len(record.stops))


class TestStage:
    def test_what_does_not_fit_waits(self) -> None:
        found = play(task("a"), task("b"), task("c", at=10))
        assert [found[name].wait for name in "abc"] == [0, 0, 990]
        assert found["c"].ended == 2000

    def test_a_gang_starts_whole(self) -> None:
        found = play(task("a", seconds=500), task("gang", pods=2, at=1))
        assert found["gang"].wait == 499
        assert found["gang"].gpus == 16

    def test_events_wait_for_the_next_cycle(self) -> None:
        assert play(task("a", at=61), tick=60)["a"].wait == 59

    def test_an_owner_takes_its_gpus_back_at_once(self) -> None:
        spare = task("spare", at=0, seconds=5000, queue="spare", checkpoint=600, restart=60)
        found = play(
            spare,
            task("own-1", at=700, seconds=100, queue="own"),
            nodes=1,
            objects=QUEUES,
            evictable="spare",
        )
        assert found["own-1"].wait == 0
        assert found["spare"].stops == [(700, EVICTED)]
        assert found["spare"].lost == 100
        assert found["spare"].ended == 800 + 60 + 5000 - 600
        assert found["spare"].waited == 100

    def test_whoever_has_just_written_a_checkpoint_goes(self) -> None:
        """The store is told of checkpoints: the older task has lost less work than the younger one would."""
        older = task("older", at=0, seconds=9000, queue="spare", checkpoint=600)
        younger = task("younger", at=300, seconds=9000, queue="spare", checkpoint=600)
        own = task("own-1", at=610, seconds=10, queue="own")
        found = play(older, younger, own, objects=QUEUES, evictable="spare")
        assert [len(found[name].stops) for name in ("older", "younger")] == [1, 0]

    def test_nobody_goes_where_there_is_room(self) -> None:
        found = play(
            task("spare", seconds=5000, queue="spare"),
            task("own-1", at=10, queue="own"),
            objects=QUEUES,
            evictable="spare",
        )
        assert not found["spare"].stops
        assert found["own-1"].wait == 0

    def test_a_lost_node_stops_a_gang_whole_until_it_is_back(self) -> None:
        gang = task("gang", pods=2, seconds=1000, checkpoint=100, restart=10)
        found = play(gang, outages=(Outage(250, 400, ("n-0",)),))["gang"]
        assert found.stops == [(250, FAILED)]
        assert found.ended == 400 + 10 + 800

    def test_who_is_elsewhere_does_not_notice(self) -> None:
        found = play(task("a"), task("b"), outages=(Outage(250, 400, ("n-0",)),))
        assert sorted(len(record.stops) for record in found.values()) == [0, 1]

    @settings(max_examples=15)
    @given(st.integers(0, 1000))
    def test_no_gpu_is_given_twice(self, seed: int) -> None:
        tasks = [
            task(
                f"{queue}-{number}",
                gpus=1 + (seed + 3 * number) % 8,
                at=97 * number % 1500,
                seconds=100 + 31 * number % 900,
                queue=queue,
                pods=1 + (seed + number) % 2,
                checkpoint=50,
                restart=5,
            )
            for number in range(12)
            for queue in ("own", "spare")
        ]

        def look(now: int, stage: TaskCluster) -> None:
            held = Counter(
                (bind.node, grant.index)
                for record in stage.running.values()
                for bind in record.binds
                for grant in bind.devices
            )
            assert all(count == 1 for count in held.values())

        config = EngineConfig(queues=QueueConfig(ignore_undeclared=True))
        found = TaskClusterSettings(
            config, rack_fleet(2, 2), QUEUES, horizon=5000, tick=7, sample_every=50, evictable="spare"
        )
        for record in TaskCluster(found, tasks, look).run():
            assert record.ended is not None or record.started is not None or record.waited > 0
            if record.ended is not None and record.task.seconds is not None:
                assert record.held == record.task.seconds + record.lost + record.restarting


@pytest.mark.parametrize("seconds", [0, 1])
def test_the_same_work_gives_the_same_records(seconds: int) -> None:
    tasks = [task(f"t-{n}", gpus=1 + n % 4, at=10 * n, seconds=200 + seconds) for n in range(20)]
    first, second = play(*tasks), play(*tasks)
    assert [(r.first_start, r.ended, r.binds) for r in first.values()] == [
        (r.first_start, r.ended, r.binds) for r in second.values()
    ]
