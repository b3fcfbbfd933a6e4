from __future__ import annotations

from pathlib import Path

import pytest

from windlass.model.errors import InputError
from windlass.model.requests import node_quantities, pod_requests
from windlass.simulate.trace import Job, Trace
from windlass.simulate.traces import load_trace


def load(folder: Path, name: str) -> Trace:
    return load_trace(name, seed=None, traces_dir=folder)


def gpus(job: Job) -> list[int]:
    return [pod_requests(pod).get("nvidia.com/gpu", 0) for pod in job.pods]


def test_philly_jobs_are_cut_and_in_order_of_submission(folder: Path) -> None:
    trace = load(folder, "philly")
    large, small = trace.jobs
    assert (large.name, large.arrival, large.duration, gpus(large)) == ("philly-00001", 0, 100, [8, 8, 8, 4])
    assert (small.name, small.arrival, small.duration, gpus(small)) == ("philly-00000", 3600, 66, [1])
    assert [pod.metadata.name for pod in large.pods] == [f"philly-00001-{index}" for index in range(4)]
    assert small.pods[0].metadata.name == "philly-00000"
    assert (trace.retry, trace.order) == (True, "recorded")


def test_philly_park(folder: Path) -> None:
    nodes = load(folder, "philly").nodes
    sizes = [node_quantities(node)[1]["nvidia.com/gpu"] for node in nodes]
    assert (len(nodes), sum(sizes), set(sizes)) == (552, 2490, {2, 8})


def test_one_virtual_cluster(folder: Path) -> None:
    assert [job.name for job in load(folder, "philly/11cb48").jobs] == ["philly-00000"]
    with pytest.raises(InputError, match="empty trace: it has no job of philly/ed69ec"):
        load(folder, "philly/ed69ec")


def test_helios_cpus_are_spread_over_the_pods(folder: Path) -> None:
    trace = load(folder, "helios")
    training, other = trace.jobs
    assert gpus(training) == [8, 8, 8]
    assert [pod_requests(pod)["cpu"] for pod in training.pods] == [334, 334, 334]
    assert (other.arrival, other.duration, gpus(other)) == (94, 1, [0, 0])
    assert [pod_requests(pod)["cpu"] for pod in other.pods] == [2000, 2000]


def test_helios_park(folder: Path) -> None:
    nodes = load(folder, "helios").nodes
    assert len(nodes) == 802
    assert sum(node_quantities(node)[1]["nvidia.com/gpu"] for node in nodes) == 6416


def test_pods_of_one_size_share_their_spec(folder: Path) -> None:
    large, small = load(folder, "philly").jobs
    assert large.pods[0].spec is large.pods[1].spec
    assert large.pods[0].spec is not large.pods[3].spec
    assert [(gpus_of.pod.metadata.name, gpus_of.count) for gpus_of in load(folder, "philly").declared] == [
        (large.pods[0].metadata.name, 3),
        (large.pods[3].metadata.name, 1),
        (small.name, 1),
    ]


@pytest.mark.parametrize(
    ("file", "name", "good", "bad", "message"),
    [
        (
            "philly/philly_jobs_82k.csv",
            "philly",
            "2017-10-09 07:01:55",
            "yesterday",
            r"csv:2:1: timestamp: expected a time",
        ),
        (
            "philly/philly_jobs_82k.csv",
            "philly",
            "100.0,28",
            "1e2,28",
            r"csv:3:21: duration: expected whole seconds",
        ),
        ("philly/philly_jobs_82k.csv", "philly", "100.0,28", "100.5,28", r"duration: expected whole seconds"),
        (
            "philly/philly_jobs_82k.csv",
            "philly",
            ",28,",
            ",0,",
            r"num_gpus: expected a whole number, 1 to 100000",
        ),
        ("helios/helios_last15k.csv", "helios", "0,1,24", "0,1,", r"csv:2:\d+: gpu_num: expected"),
        ("helios/helios_last15k.csv", "helios", "2,94", "2,-94", r"csv:3:\d+: interval: .* got '-94'"),
        ("philly/philly_last15k.csv", "philly-last15k", "2,94", "0,94", r"csv:3:\d+: node_num: expected"),
    ],
)
def test_broken_line_is_named(folder: Path, file: str, name: str, good: str, bad: str, message: str) -> None:
    place = folder / file
    text = place.read_text()
    assert good in text
    place.write_text(text.replace(good, bad, 1))
    with pytest.raises(InputError, match=message):
        load(folder, name)
