"""The public trace files as they are: every published count comes out of the readers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from windlass.model.gpu import GpuRequest, gpu_request
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests
from windlass.simulate.fleet import count_gpus
from windlass.simulate.trace import Trace
from windlass.simulate.traces import list_traces, load_trace
from windlass.simulate.traces.openb import POD_LISTS

pytestmark = pytest.mark.traces

# list: pods, CPU-only, GPU share, 1, 2, 4, 8 GPUs, GPUs asked for, vCPUs asked for, with a model constraint
PUBLISHED = {
    "default": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 0),
    "cpu0": (7064, 0, 3078, 3911, 16, 15, 44, 6087, 66_238, 0),
    "cpu037": (7336, 272, 3078, 3911, 16, 15, 44, 6087, 70_988, 0),
    "cpu050": (7439, 375, 3078, 3911, 16, 15, 44, 6087, 72_762, 0),
    "cpu072": (7608, 544, 3078, 3911, 16, 15, 44, 6087, 75_836, 0),
    "cpu100": (7853, 789, 3078, 3911, 16, 15, 44, 6087, 80_292, 0),
    "cpu200": (8832, 1768, 3078, 3911, 16, 15, 44, 6087, 97_253, 0),
    "cpu235": (9240, 2176, 3078, 3911, 16, 15, 44, 6087, 104_634, 0),
    "cpu250": (9420, 2356, 3078, 3911, 16, 15, 44, 6087, 107_460, 0),
    "cpu300": (10094, 3030, 3078, 3911, 16, 15, 44, 6087, 119_445, 0),
    "gpushare20": (8152, 1088, 2324, 4653, 12, 13, 62, 6532, 90_173, 0),
    "gpushare40": (8152, 1088, 4001, 3001, 12, 11, 39, 5641, 80_383, 0),
    "gpushare60": (8152, 1088, 5233, 1801, 7, 9, 14, 4908, 72_020, 0),
    "gpushare80": (8152, 1088, 6279, 768, 2, 3, 12, 4408, 67_189, 0),
    "gpushare100": (8152, 1088, 7064, 0, 0, 0, 0, 3953, 61_762, 0),
    "gpuspec05": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 369),
    "gpuspec10": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 732),
    "gpuspec20": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 1444),
    "gpuspec25": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 1759),
    "gpuspec33": (8152, 1088, 3078, 3911, 16, 15, 44, 6087, 85_436, 2388),
    "multigpu20": (8324, 1088, 3078, 3911, 54, 52, 141, 7087, 95_172, 0),
    "multigpu30": (8508, 1088, 3078, 3911, 112, 83, 236, 8087, 104_870, 0),
    "multigpu40": (8746, 1088, 3078, 3911, 156, 154, 359, 9443, 118_032, 0),
    "multigpu50": (9061, 1088, 3078, 3911, 222, 206, 556, 11359, 137_776, 0),
}
WITH_ORDERS = {
    *(
        "default",
        "cpu050",
        "cpu100",
        "cpu200",
        "cpu250",
        "gpushare40",
        "gpushare60",
        "gpushare80",
        "gpushare100",
    ),
    *(
        "gpuspec10",
        "gpuspec20",
        "gpuspec25",
        "gpuspec33",
        "multigpu20",
        "multigpu30",
        "multigpu40",
        "multigpu50",
    ),
}


def request(pod: Pod) -> GpuRequest | None:
    return gpu_request(pod, pod_requests(pod))


def asked_milli(trace: Trace) -> int:
    by_spec: dict[tuple[int, int], int] = {}
    for job in trace.jobs:
        for pod in job.pods:
            key = (id(pod.spec), id(pod.metadata.annotations))
            if key not in by_spec:
                gpus = request(pod)
                by_spec[key] = gpus.count * gpus.milli if gpus else 0
    return sum(by_spec[id(pod.spec), id(pod.metadata.annotations)] for job in trace.jobs for pod in job.pods)


@pytest.mark.parametrize("pods", POD_LISTS)
def test_declared_mix_has_the_published_counts(traces_dir: Path, pods: str) -> None:
    trace = load_trace(f"openb/{pods}", seed=42, traces_dir=traces_dir)
    kinds: Counter[str] = Counter()
    gpus = cpus = constrained = 0
    for each in trace.declared:
        gpu = request(each.pod)
        kinds["cpu" if gpu is None else "share" if gpu.milli < 1000 else str(gpu.count)] += each.count
        cpus += pod_requests(each.pod).get("cpu", 0) * each.count
        if gpu is not None:
            gpus += gpu.count * gpu.milli * each.count
            constrained += each.count if gpu.models else 0
    counted = (kinds.total(), *(kinds[kind] for kind in ("cpu", "share", "1", "2", "4", "8")))
    assert (*counted, round(gpus / 1000), round(cpus / 1000), constrained) == PUBLISHED[pods]
    assert trace.order == ("published" if pods in WITH_ORDERS else "generated")


@pytest.mark.parametrize("pods", ["default", "gpushare100", "multigpu40", "cpu300"])
@pytest.mark.parametrize("seed", [42, 51, 52])
def test_every_order_asks_for_130_percent(traces_dir: Path, pods: str, seed: int) -> None:
    trace = load_trace(f"openb/{pods}", seed=seed, traces_dir=traces_dir)
    assert 8_075_600 - 8000 < asked_milli(trace) <= 8_075_600
    assert sorted(trace.ranks) == list(range(1213))
    names = [job.name for job in trace.jobs]
    assert len(set(names)) == len(names)


def test_default_42(traces_dir: Path) -> None:
    trace = load_trace("openb/default", seed=42, traces_dir=traces_dir)
    assert (len(trace.nodes), count_gpus(trace.nodes), len(trace.jobs)) == (1213, 6212, 10_866)
    assert [job.name for job in trace.jobs[:3]] == ["openb-pod-0255", "openb-pod-1685", "openb-pod-6784"]
    assert trace.ranks[:4] == (601, 815, 450, 13)
    assert asked_milli(trace) == 8_075_080
    assert len({id(job.pods[0].spec) for job in trace.jobs}) == len(trace.declared) == 151


def test_same_seed_same_bytes(traces_dir: Path) -> None:
    for name, seed in (("openb/default", 42), ("openb/default", 7), ("helios", 42)):
        one, other = (load_trace(name, seed=seed, traces_dir=traces_dir) for _ in range(2))
        assert msgspec.json.encode(one) == msgspec.json.encode(other)


def test_all_nodes(traces_dir: Path) -> None:
    nodes = load_trace("openb-all/default", seed=42, traces_dir=traces_dir).nodes
    assert (len(nodes), count_gpus(nodes)) == (1523, 6212)


def test_recorded_times(traces_dir: Path) -> None:
    trace = load_trace("openb/default", seed=None, traces_dir=traces_dir, replay="times:100:10")
    assert len(trace.jobs) == 8152
    assert len(trace.nodes) in (121, 122)
    assert count_gpus(trace.nodes) == pytest.approx(621, rel=0.05)


def test_philly(traces_dir: Path) -> None:
    trace = load_trace("philly", seed=None, traces_dir=traces_dir)
    assert (len(trace.jobs), count_gpus(trace.nodes)) == (82_247, 2490)
    sizes = Counter(len(job.pods) for job in trace.jobs)
    assert (sizes[16], sizes[8], sizes[4]) == (3, 6, 67)
    hours = sum(
        (job.duration or 0) * sum(pod_requests(pod)["nvidia.com/gpu"] for pod in job.pods) for job in trace.jobs
    )
    assert hours // 3600 == 978_078


def test_philly_clusters_are_those_of_the_file(traces_dir: Path) -> None:
    listed = {info.name.partition("/")[2] for info in list_traces(traces_dir) if info.name.startswith("philly/")}
    lines = (traces_dir / "philly/philly_jobs_82k.csv").read_text().split()[1:]
    assert listed == {line.rpartition(",")[2] for line in lines if line.count(",") == 4} - {"cluster"}
    assert len(load_trace("philly/ee9e8c", seed=None, traces_dir=traces_dir).jobs) == 1511


@pytest.mark.parametrize("name", ["helios", "philly-last15k"])
def test_logs(traces_dir: Path, name: str) -> None:
    trace = load_trace(name, seed=None, traces_dir=traces_dir)
    days = {"helios": 20.2, "philly-last15k": 57.6}[name]
    assert len(trace.jobs) == 15_000
    assert trace.jobs[-1].arrival / 86_400 == pytest.approx(days, abs=0.05)
    largest = {gpu.count for each in trace.declared if (gpu := request(each.pod))}
    assert max(largest) == 8


def test_everything_in_the_catalogue_loads_where_it_is_at_hand(traces_dir: Path) -> None:
    infos = list_traces(traces_dir)
    assert all(info.at_hand for info in infos)
