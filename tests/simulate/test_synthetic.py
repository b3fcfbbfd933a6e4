from __future__ import annotations

import hashlib
from collections import Counter

import msgspec
import numpy as np
import pytest

from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.requests import pod_requests
from windlass.simulate.fleet import count_gpus
from windlass.simulate.synthetic import SYNTHETIC_TRACES, make_synthetic, openb_like_fleet
from windlass.simulate.trace import Job, Trace


def kind(job: Job) -> str:
    """The kinds that the published table of pod lists counts."""
    asked = gpu_request(job.pods[0], pod_requests(job.pods[0]))
    if asked is None:
        return "cpu-only"
    return "share" if asked.milli < 1000 else str(asked.count)


def demand_milli(job: Job) -> int:
    asked = [gpu_request(pod, pod_requests(pod)) for pod in job.pods]
    return sum(each.count * each.milli for each in asked if each)


def digest(trace: Trace) -> str:
    return hashlib.sha256(msgspec.json.encode(trace)).hexdigest()


@pytest.fixture(scope="module")
def openb_like() -> Trace:
    return make_synthetic("synthetic/openb-like", seed=1)


@pytest.fixture(scope="module")
def training() -> Trace:
    return make_synthetic("synthetic/training", seed=1)


@pytest.mark.parametrize("name", SYNTHETIC_TRACES)
def test_a_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    assert digest(make_synthetic(name, seed=5)) == digest(make_synthetic(name, seed=5))
    assert digest(make_synthetic(name, seed=5)) != digest(make_synthetic(name, seed=6))


def test_bytes_are_the_same_for_ever() -> None:
    """Pinned: a published number must be printed again by every later version."""
    small, training = (make_synthetic(f"synthetic/{name}", seed=42) for name in ("small", "training"))
    cpus = [job.pods[0].spec.containers[0].resources.requests["cpu"] for job in small.jobs[:6]]
    assert cpus == ["12", "6", "8", "11400m", "8", "24200m"]
    times = [(job.arrival, job.duration) for job in training.jobs[:4]]
    assert times == [(227, 469383), (598, 66), (986, 234), (1103, 4990)]


def test_kinds_come_as_often_as_published(openb_like: Trace) -> None:
    """Shares of the default list: 8,152 pods."""
    published = {"cpu-only": 1088, "share": 3078, "1": 3911, "2": 16, "4": 15, "8": 44}
    counts = Counter(kind(job) for job in openb_like.jobs)
    assert set(counts) <= set(published)
    for name, count in published.items():
        expected = count / 8152
        spread = (expected * (1 - expected) / len(openb_like.jobs)) ** 0.5
        assert abs(counts[name] / len(openb_like.jobs) - expected) < 4 * spread


def test_gpus_and_cpus_per_pod_as_published(openb_like: Trace) -> None:
    """6,087 GPUs and 85,436 vCPUs for 8,152 pods."""
    pods = len(openb_like.jobs)
    gpus = sum(demand_milli(job) for job in openb_like.jobs) / 1000
    cpus = sum(pod_requests(job.pods[0])["cpu"] for job in openb_like.jobs) / 1000
    assert gpus / pods == pytest.approx(6087 / 8152, rel=0.03)
    assert cpus / pods == pytest.approx(85_436 / 8152, rel=0.03)


def test_share_sizes_as_published(openb_like: Trace) -> None:
    """Of 3,078 shares 1,078 ask for 810 thousandths, 750 for 470 and 328 for 320."""
    shares = [demand_milli(job) for job in openb_like.jobs if kind(job) == "share"]
    for milli, count in ((810, 1078), (470, 750), (320, 328)):
        assert shares.count(milli) / len(shares) == pytest.approx(count / 3078, abs=0.03)


def test_park_is_openbs(openb_like: Trace) -> None:
    assert (len(openb_like.nodes), count_gpus(openb_like.nodes)) == (1213, 6212)
    assert len({tuple(node.status.allocatable.items()) for node in openb_like.nodes}) == 15
    assert sorted(openb_like.ranks) == list(range(1213))


@pytest.mark.parametrize("count", [1, 2, 64, 500, 10_000])
def test_park_keeps_its_proportions(count: int) -> None:
    nodes = openb_like_fleet(count)
    assert len({node.name for node in nodes}) == len(nodes) == count
    if count >= 64:
        assert count_gpus(nodes) / count == pytest.approx(6212 / 1213, rel=0.05)


def test_demand_stops_just_within_130_percent(openb_like: Trace) -> None:
    asked = sum(demand_milli(job) for job in openb_like.jobs)
    assert 1300 * 6212 - 8000 < asked <= 1300 * 6212
    assert not openb_like.retry


def test_demand_follows_the_given_nodes() -> None:
    nodes = openb_like_fleet(10)
    trace = make_synthetic("synthetic/small", seed=1, nodes=nodes)
    assert trace.nodes == nodes
    assert sum(demand_milli(job) for job in trace.jobs) <= 1300 * count_gpus(nodes)


def test_large_is_large() -> None:
    trace = make_synthetic("synthetic/large", seed=1)
    assert (len(trace.nodes), len(trace.jobs)) == (10_000, 100_000)
    assert len({id(job.pods[0].spec) for job in trace.jobs}) == len(trace.declared)


def test_training_gangs(training: Trace) -> None:
    gpus = [demand_milli(job) // 1000 for job in training.jobs]
    assert set(gpus) == {1, 2, 4, 8, 16, 32, 64, 128}
    assert np.mean(gpus) == pytest.approx(5.06, rel=0.15)
    assert all(len(job.pods) == -(-size // 8) for job, size in zip(training.jobs, gpus, strict=True))
    assert training.retry


def test_training_times_have_phillys_quantiles() -> None:
    """One GPU: median 1,117 s and nine tenths below 8,512 s; eight and more: median 23,649 s."""
    jobs = [job for seed in range(5) for job in make_synthetic("synthetic/training", seed=seed).jobs]
    small = [job.duration for job in jobs if demand_milli(job) == 1000]
    large = [job.duration for job in jobs if demand_milli(job) >= 8000]
    assert np.mean(np.array(small) <= 1117) == pytest.approx(0.5, abs=0.02)
    assert np.mean(np.array(small) <= 8512) == pytest.approx(0.9, abs=0.02)
    assert np.mean(np.array(large) <= 23_649) == pytest.approx(0.5, abs=0.03)


def test_training_day_has_phillys_peak() -> None:
    """Twice the mean at seven in the morning, two thirds of it at two in the afternoon."""
    jobs = [job for seed in range(5) for job in make_synthetic("synthetic/training", seed=seed).jobs]
    hours = np.bincount([job.arrival // 3600 % 24 for job in jobs], minlength=24) / (len(jobs) / 24)
    assert hours[7] == pytest.approx(2.09, abs=0.3)
    assert hours[14] == pytest.approx(0.64, abs=0.2)
    assert max(job.arrival for job in jobs) < 14 * 86_400


@pytest.mark.parametrize(("name", "least", "most"), [("training", 0.7, 1.2), ("inference", 0.9, 1.2)])
def test_queued_traces_load_their_park(name: str, least: float, most: float) -> None:
    """Enough work for a queue, and not so much that it only grows."""
    trace = make_synthetic(f"synthetic/{name}", seed=1)
    work = sum(demand_milli(job) * (job.duration or 0) for job in trace.jobs) / 1000
    assert least < work / (count_gpus(trace.nodes) * trace.jobs[-1].arrival) < most
    arrivals = [job.arrival for job in trace.jobs]
    assert arrivals == sorted(arrivals)


def test_unknown_name_and_seed() -> None:
    with pytest.raises(InputError, match="did you mean synthetic/training"):
        make_synthetic("synthetic/trainig")
    with pytest.raises(InputError, match="a seed is a whole number"):
        make_synthetic("synthetic/small", seed=-1)
