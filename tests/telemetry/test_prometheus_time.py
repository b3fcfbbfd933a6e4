"""The Time and Job views out of a real Prometheus: of the scheduler's metrics, and of dcgm-exporter's alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.telemetry.real_prometheus import Series, prometheus_with
from tests.telemetry.test_prometheus_source import END, START, constant, series

from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_job import job_selector, read_job_curves
from windlass.telemetry.prometheus_time import DEVICES_NOTE, LEDGER_NOTE, PrometheusSummaries
from windlass.telemetry.prometheus_usage import read_prometheus_usage
from windlass.telemetry.team_view import make_team_view
from windlass.telemetry.time_view import Audience, make_time_view
from windlass.web.past_sources import PrometheusPast

HALF = START + 3600


def ledger_series() -> Iterator[Series]:
    """Two hours: 40 of 100 GPUs are held; in the second 10 of these are idle and 41 are waited for. Ten minutes in the
    middle were not scraped. A second replica has the metrics, too."""
    for replica in ("a", "b"):

        def state(name: str, model: str, values: tuple[int, int], replica: str = replica) -> Series:
            points = [
                (at, float(values[at >= HALF])) for at in range(START, END, 60) if not START + 1800 <= at < START + 2400
            ]
            return "windlass_gpus", {"state": name, "model": model, "pod": replica}, points

        yield state("computing", "A100", (40, 30))
        yield state("held_idle", "A100", (0, 10))
        yield state("stranded", "V100", (60, 60))
    waiting = {"cluster_queue": "research", "cause": "GPU_FULL"}
    yield constant("windlass_waiting_gpus", waiting, 41, HALF)
    cell = {"cluster_queue": "research", "flavor": "a100", "resource": "nvidia.com/gpu", "cohort": ""}
    yield constant("kueue_cluster_queue_resource_usage", cell, 40)
    yield constant("kueue_cluster_queue_nominal_quota", cell, 32)
    lost = {"cluster_queue": "research", "reason": "Priority"}
    points = [(at, 0.0 if at < HALF else 7200.0) for at in range(START, END, 60)]
    yield "windlass_lost_gpu_seconds_total", lost, points


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_with(tmp_path_factory.mktemp("ledger"), ledger_series()) as url:
        yield Prometheus(url)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_with(tmp_path_factory.mktemp("devices"), series()) as url:
        yield Prometheus(url)


def test_the_ledger_is_read_from_the_schedulers_metrics(scheduler: Prometheus) -> None:
    view = make_time_view(PrometheusSummaries(scheduler), START, END)
    # Without a marker of its end, which these blocks lack, a Prometheus takes a series for five minutes longer.
    assert view.covered_seconds == 7200 - 300, "what was not scraped is a gap"
    assert view.gpu_hours["computing"] == pytest.approx(40 * 55 / 60 + 30)
    assert view.gpu_hours["held_idle"] == pytest.approx(10)
    assert view.mean_allocation == pytest.approx(0.4)
    assert view.allocation[6:9] == [0.4, None, 0.4]
    assert view.utilisation[-1] == 0.75
    (cause,) = view.bottleneck
    assert (cause.cause, cause.line[-1]) == ("GPU_FULL", 41.0)
    (share,) = view.shares
    assert (share.queue, share.quota) == ("research", pytest.approx(32, rel=0.1))
    (eviction,) = view.preemptions
    assert (eviction.queue, eviction.evictions) == ("research", None)
    assert eviction.lost_gpu_hours == pytest.approx(2, rel=0.05)
    assert LEDGER_NOTE in view.notes
    own = make_time_view(PrometheusSummaries(scheduler), START, END, Audience(frozenset({"speech"})))
    assert (own.preemptions, own.shares) == ([], [])


def test_without_the_scheduler_gpus_are_read_and_what_waits_is_not_known(devices: Prometheus) -> None:
    view = make_time_view(PrometheusSummaries(devices), START, END)
    usage = read_prometheus_usage(devices, START, END)
    hours = {state: amount / 3_600_000 for state, amount in usage.by_state.items()}
    assert view.gpu_hours == pytest.approx(hours), "the same sums as the bill"
    assert view.covered_seconds == 7200
    assert view.bottleneck == []
    assert DEVICES_NOTE in view.notes


def test_no_sample_counts_in_two_steps(devices: Prometheus) -> None:
    whole = make_time_view(PrometheusSummaries(devices), START, END).gpu_hours
    halves = [make_time_view(PrometheusSummaries(devices), *part).gpu_hours for part in ((START, HALF), (HALF, END))]
    assert {state: sum(half[state] for half in halves) for state in whole} == pytest.approx(whole)


def test_a_jobs_past_and_the_curves_of_its_gpus(devices: Prometheus) -> None:
    past = PrometheusPast(devices).job("Job vision/train", [], START, END, Audience())
    assert (past.gpu_hours["computing"], past.gpu_hours["held_idle"]) == (1.0, 1.0)
    (utilisation, memory) = past.curves
    assert [line.name for line in utilisation.gpus] == ["n1:0"]
    assert utilisation.gpus[0].line[2] == 90.0
    assert utilisation.gpus[0].line[-1] == 0.0
    assert (memory.metric, memory.gpus[0].line[3]) == ("Memory in use", 1000.0)
    nothing = PrometheusPast(devices).job("Job vision/other", [], START, END, Audience())
    assert (nothing.curves, nothing.states) == ([], {})


def test_only_pods_of_the_job_are_taken(devices: Prometheus) -> None:
    """A name is no pattern, and neither is what stands in a request."""
    for name in (".*", 'x"} or vector(1) #', "notebook"):
        assert job_selector(devices, f"Job speech/{name}", [], START, END) == ""
    selector = job_selector(devices, "Pod speech/note.*", [], START, END)
    assert read_job_curves(devices, selector, START, END) == []
    living = job_selector(devices, "StatefulSet speech/notes", ["notebook"], START, END)
    assert [line.name for line in read_job_curves(devices, living, START, END)[0].gpus] == ["n1:1"]


def test_teams_are_those_of_the_bill(devices: Prometheus) -> None:
    view = make_team_view(read_prometheus_usage(devices, START, END), Audience(frozenset({"speech"})))
    assert {row.name for row in view.teams} == {"speech", "(other teams)"}
    assert {row.name for row in view.jobs} == {"Pod speech/notebook", "Pod speech/hangs"}
