"""One run of the simulator, worked out by hand: waiting, GPU time, what is dropped, explained, interrupted."""

from __future__ import annotations

import pytest

from reference.park import Desk, gpu_node, mig_node, node, pod
from windlass.model.decision import DeviceGrant
from windlass.simulate.placements import Placement
from windlass.simulate.trace import Job, ShapeCount, Trace, with_creation_times
from windlass.simulate.trace_run import declared_mix, gang_pods, simulate_trace


def job(name, *asks, at=0, lasts=None):
    """`asks` is the GPUs of each of its pods."""
    pods = tuple(pod(f"{name}{i}" if len(asks) > 1 else name, gpus) for i, gpus in enumerate(asks))
    return Job(name=name, pods=pods, arrival=at, duration=lasts)


def trace(*jobs, nodes=None, retry=True, **options):
    return Trace(
        name="tiny",
        nodes=nodes or (gpu_node("n", 2),),
        jobs=with_creation_times(jobs),
        retry=retry,
        **options,
    )


# Two GPUs. a runs 0 to 100; b waits for it and runs 100 to 150; c needs both GPUs and runs 150 to 180; d waits for
# nobody.
DAY = (
    job("a", 2, at=0, lasts=100),
    job("b", 1, at=10, lasts=50),
    job("c", 1, 1, at=20, lasts=30),
    job("d", 1, at=200, lasts=10),
)


def test_a_day_of_four_jobs():
    placements = []
    found = simulate_trace(trace(*DAY), "windlass", placements=placements.append)
    assert [(p.pod, p.time) for p in placements] == [
        ("default/a", 0),
        ("default/b", 100),
        ("default/c0", 150),
        ("default/c1", 150),
        ("default/d", 200),
    ]
    assert {p.devices_text for p in placements if p.time == 150} == {"0:1000", "1:1000"}
    assert (found.pods_arrived, found.pods_placed, found.pods_refused) == (5, 5, 0)
    waits = found.waiting
    assert (waits.mean, waits.p50, waits.max) == (55, 45, 130), "waits of 0, 90, 130 and 0 seconds"
    assert found.makespan_hours == 210 / 3600
    # Up to the last arrival at 200: 2·100 + 1·50 + 2·30 of 2·200 GPU-seconds.
    assert found.gpu_time_pct == 100 * 310 / 400
    assert (found.gpu_milli_total, found.gpu_milli_allocated, found.allocated_pct) == (2000, 2000, 100)
    assert not found.interrupted
    assert found.curve.unit == "hours"
    assert list(found.curve.at) == sorted(found.curve.at)


def at_hours(found, second):
    """The sample of that second: its values by the curve's field."""
    place = found.curve.at.index(second / 3600)
    curve = found.curve
    return curve.waiting_jobs[place], curve.pods_refused[place], curve.stranded_milli["no_cpu"][place]


def test_curves_count_the_jobs_that_wait_and_their_pods():
    """At 20 a runs; b and c wait, of which c has two pods."""
    found = simulate_trace(trace(*DAY), "windlass")
    assert at_hours(found, 20) == (2, 3, 0)
    assert at_hours(found, 150) == (0, 0, 0)


def test_curves_say_what_makes_free_gpus_useless():
    """One of two GPUs is taken together with all CPU: the other is stranded, and a fragment for want of CPU."""
    greedy = Job(name="a", pods=(pod("a", 1, cpu="16"),), arrival=5, duration=10)
    found = simulate_trace(trace(greedy, job("b", 1, at=10, lasts=5), job("c", 1, at=200, lasts=1)), "windlass")
    assert at_hours(found, 5)[2] == 1000
    place = found.curve.at.index(5 / 3600)
    assert found.curve.fragmentation_causes["lack_cpu"][place] == 1000
    assert found.curve.fragmentation_pct[place] == 50


def test_where_pods_leave_fragmentation_is_that_of_the_fullest_moment():
    greedy = Job(name="a", pods=(pod("a", 1, cpu="16"),), arrival=5, duration=10)
    found = simulate_trace(trace(greedy, job("b", 1, at=200, lasts=1)), "windlass")
    assert (found.allocated_pct, found.fragmentation_pct) == (50, 50)
    assert (found.fragmentation_causes["lack_cpu"], found.stranded_milli["no_cpu"]) == (1000, 1000)


def test_parts_of_gpus_count_as_what_they_are_of_their_device():
    """Half of one of two GPUs by MIG for 100 of 200 seconds; or 20 of its 80 GB."""
    sliced = Job(name="a", pods=(pod("a", mig=("3g.40gb", 1)),), arrival=0, duration=100)
    last = Job(name="b", pods=(pod("b"),), arrival=200, duration=1)
    found = simulate_trace(trace(sliced, last, nodes=(mig_node("n", 2),)), "windlass")
    assert (found.gpu_milli_allocated, found.gpu_time_pct) == (500, 12.5)
    shared = Job(name="a", pods=(pod("a", memory_mib=20 * 1024),), arrival=0, duration=100)
    found = simulate_trace(trace(shared, last), "windlass")
    assert 240 < found.gpu_milli_allocated < 260
    assert found.gpu_time_pct == 100 * found.gpu_milli_allocated * 100 / (2000 * 200)


def test_a_replica_of_a_shared_gpu_is_not_a_whole_one():
    one = job("a", 1, at=0, lasts=100)
    found = simulate_trace(trace(one, job("b", 1, at=200, lasts=1), nodes=(gpu_node("n", 1, replicas=4),)), "pack")
    assert (found.gpu_milli_allocated, found.allocated_pct, found.gpu_time_pct) == (250, 25, 12.5)


def test_without_retry_what_does_not_fit_is_dropped():
    found = simulate_trace(trace(*DAY, retry=False), "windlass")
    assert (found.pods_arrived, found.pods_placed, found.pods_refused) == (5, 2, 3)
    assert found.waiting.max == 0
    assert found.makespan_hours == 210 / 3600


def urgent(name, gpus, at, lasts):
    return Job(name=name, pods=(pod(name, gpus, priority=1),), arrival=at, duration=lasts)


def test_who_is_evicted_loses_its_place_and_its_work_and_waits_again():
    """Two GPUs. a and b run from 0; at 40 c takes both for 20 seconds, and both start from nothing at 60."""
    placements = []
    jobs = (
        job("a", 1, lasts=100),
        job("b", 1, lasts=90),
        urgent("c", 2, 40, 20),
        job("d", 1, at=500, lasts=1),
    )
    found = simulate_trace(trace(*jobs), "windlass", placements=placements.append)
    assert [(p.pod, p.time) for p in placements] == [
        ("default/a", 0),
        ("default/b", 0),
        ("default/c", 40),
        ("default/a", 60),
        ("default/b", 60),
        ("default/d", 500),
    ]
    assert (found.gpu_milli_allocated, found.allocated_pct, max(found.curve.allocated_pct)) == (
        2000,
        100,
        100,
    )
    assert (found.pods_arrived, found.pods_placed, found.jobs_evicted) == (4, 4, 2)
    assert found.waiting.max == 0, "until the first start"
    assert found.gpu_time_pct == 100 * (2 * 40 + 2 * 20 + 100 + 90) / (2 * 500)
    assert at_hours(found, 40) == (2, 2, 0)


def test_a_gang_is_evicted_whole():
    jobs = (job("a", 1, 1, lasts=100), urgent("b", 1, 10, 20), job("c", 1, at=50, lasts=1))
    found = simulate_trace(trace(*jobs), "windlass")
    assert (found.jobs_evicted, found.pods_placed) == (1, 4)
    assert found.makespan_hours == 131 / 3600, "b until 30, then a for 100 seconds; c waits for it"


def test_without_retry_who_is_evicted_is_dropped():
    found = simulate_trace(trace(job("a", 2, lasts=100), urgent("b", 2, 10, 20), retry=False), "windlass")
    assert (found.pods_arrived, found.pods_placed, found.pods_refused, found.jobs_evicted) == (2, 1, 1, 1)
    assert found.makespan_hours == 30 / 3600


def test_what_can_never_start_ends_no_run():
    found = simulate_trace(trace(job("a", 8, at=5), job("b", 1, at=6, lasts=1)), "pack")
    assert (found.pods_placed, found.pods_refused) == (1, 1)


def test_a_job_that_ends_the_moment_it_starts_frees_its_gpu_for_the_next():
    found = simulate_trace(trace(job("a", 2, at=1, lasts=0), job("b", 2, at=1, lasts=5)), "pack")
    assert found.pods_placed == 2
    assert found.waiting.max == 0


def test_a_trace_without_times_is_measured_at_its_end():
    nodes = (gpu_node("n", 8), gpu_node("m", 2))
    jobs = (job("a", 8), job("b", 1), job("c", 4), job("d", 1))
    placements = []
    found = simulate_trace(trace(*jobs, nodes=nodes, retry=False), "fgd", placements=placements.append)
    assert [p.pod for p in placements] == ["default/a", "default/b", "default/d"]
    assert (found.gpu_milli_total, found.gpu_milli_allocated) == (10000, 10000)
    assert (found.waiting, found.makespan_hours, found.gpu_time_pct) == (None, None, None)
    assert found.curve.unit == "arrived_pct"
    assert found.curve.at[-1] == 140
    assert found.curve.allocated_pct[-1] == 100


def test_ranks_of_the_trace_decide_between_equal_nodes():
    nodes = (gpu_node("a", 1), gpu_node("b", 1))
    placements = []
    simulate_trace(trace(job("x", 1), nodes=nodes, ranks=(1, 0)), "first-fit", placements=placements.append)
    assert [p.node for p in placements] == ["b"]


@pytest.mark.parametrize("name", ["d", "default/d"])
def test_a_placed_pod_is_explained_by_its_place(name):
    explanation = simulate_trace(trace(*DAY), "windlass", explain=name).explanation
    assert (explanation.pod, explanation.time, explanation.verdict) == ("default/d", 200, None)
    assert explanation.placement.node == "n"


def test_a_refused_pod_is_explained_by_the_verdict_that_refused_it():
    explanation = simulate_trace(trace(*DAY, retry=False), "windlass", explain="c0").explanation
    assert (explanation.time, explanation.placement) == (20, None)
    assert explanation.verdict.code == "GPU_FULL"
    assert explanation.verdict.nearest[0].lacks == {"nvidia.com/gpu": "1", "GPUs": "1"}


def test_a_pod_that_waited_and_was_placed_is_explained_by_its_place():
    explanation = simulate_trace(trace(*DAY), "windlass", explain="b").explanation
    assert (explanation.time, explanation.verdict) == (100, None)


def test_a_pod_that_never_came_is_not_explained():
    assert simulate_trace(trace(*DAY), "windlass", explain="nobody").explanation is None


def test_ctrl_c_gives_what_there_is_so_far():
    def stop(done, total):
        assert total == 4
        if done == 3:
            raise KeyboardInterrupt

    found = simulate_trace(trace(*DAY), "windlass", on_progress=stop)
    assert found.interrupted
    assert (found.pods_arrived, found.pods_placed) == (4, 1)


def test_progress_is_told_job_by_job_and_ends_at_the_last():
    steps = []
    simulate_trace(trace(*DAY), "windlass", on_progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (4, 4)
    assert steps == sorted(steps)


def test_a_park_without_gpus_is_a_park():
    found = simulate_trace(trace(job("a", 0), nodes=(node("n"),)), "windlass")
    assert (found.gpu_milli_total, found.pods_placed, found.allocated_pct) == (0, 1, 0)


def test_the_mix_seen_so_far_places_what_the_declared_one_places_here():
    declared, seen = (simulate_trace(trace(*DAY), "windlass", mix=mix) for mix in ("declared", "seen"))
    assert (declared.mix, seen.mix) == ("declared", "seen")
    assert declared.pods_placed == seen.pods_placed


def test_two_runs_are_equal_but_for_the_clock():
    first, second = (simulate_trace(trace(*DAY), "random", seed=3) for _ in range(2))
    assert (first.curve, first.waiting, first.gpu_milli_allocated) == (
        second.curve,
        second.waiting,
        second.gpu_milli_allocated,
    )


def test_the_declared_mix_counts_for_more_than_the_jobs():
    shapes = (ShapeCount(pod("x", 2), 3), ShapeCount(pod("y", share="0.5"), 1))
    found = declared_mix(trace(*DAY, declared=shapes))
    assert [(each.count, each.gpus, each.milli) for each in found.classes] == [(3, 2, 1000), (1, 1, 500)]
    assert [(each.count, each.gpus) for each in declared_mix(trace(*DAY)).classes] == [(4, 1), (1, 2)]


def test_the_pods_of_a_job_form_a_group():
    whole = gang_pods(job("c", 1, 1))
    desk = Desk(gpu_node("n", 1), *whole)
    assert desk.run() == {}
    assert gang_pods(job("a", 1))[0].metadata.labels == {}


def test_devices_as_the_placements_file_has_them():
    grants = (DeviceGrant(0), DeviceGrant(3, 250), DeviceGrant(1, profile="1g.10gb", start=4))
    assert Placement("d/p", "n", grants, 7).devices_text == "0:1000;3:250;1:1g.10gb@4"
