from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest, gpu_request, node_devices
from windlass.model.requests import node_quantities, pod_requests
from windlass.simulate.trace import Trace
from windlass.simulate.traces import load_trace


def load(folder: Path, name: str = "openb/default", seed: int | None = 42, **options: object) -> Trace:
    return load_trace(name, seed=seed, traces_dir=folder, **options)  # type: ignore[arg-type]


def names(trace: Trace) -> list[str]:
    return [job.name for job in trace.jobs]


def test_published_order_names_copies(folder: Path) -> None:
    trace = load(folder)
    assert names(trace) == ["pod-a", "pod-d", "pod-a-copy-1", "pod-b", "pod-a-copy-2", "pod-c"]
    assert [job.pods[0].metadata.name for job in trace.jobs] == names(trace)
    assert (trace.order, trace.retry, trace.seed) == ("published", False, 42)
    assert all(job.duration is None and job.arrival == 0 for job in trace.jobs)


def test_ranks_belong_to_the_nodes_in_order_of_their_names(folder: Path) -> None:
    trace = load(folder)
    assert [(node.name, rank) for node, rank in zip(trace.nodes, trace.ranks, strict=True)] == [
        ("node-1", 1),
        ("node-2", 0),
    ]


def test_pods_ask_for_what_the_list_says(folder: Path) -> None:
    pods = {job.name: job.pods[0] for job in load(folder).jobs}
    asked = {name: (pod_requests(pod), gpu_request(pod, pod_requests(pod))) for name, pod in pods.items()}
    mib = 1024 * 1024
    assert asked["pod-a"] == ({"cpu": 11300, "memory": 8192 * mib, "pods": 1}, GpuRequest(2, 1000))
    assert asked["pod-b"][1] == GpuRequest(1, 500, models=("T4", "G2"))
    assert asked["pod-c"] == ({"cpu": 1000, "memory": 1024 * mib, "pods": 1}, None)


def test_pods_of_one_shape_share_their_spec(folder: Path) -> None:
    pods = {job.name: job.pods[0] for job in load(folder).jobs}
    assert pods["pod-b"].spec is pods["pod-d"].spec
    assert pods["pod-b"].metadata.annotations is pods["pod-d"].metadata.annotations
    assert pods["pod-b"].metadata.labels is pods["pod-d"].metadata.labels
    assert pods["pod-a"].spec is pods["pod-a-copy-2"].spec
    assert pods["pod-a"].spec is not pods["pod-b"].spec


def test_nodes_have_the_models_and_devices_of_the_list(folder: Path) -> None:
    node = load(folder, "openb-all/default").nodes[0]
    devices = node_devices(node, *reversed(node_quantities(node)))
    assert [(device.model, device.healthy) for device in devices] == [("T4", True)] * 2
    assert node_quantities(node)[1]["pods"] >= 10_000


def test_cpu_only_nodes_have_no_devices(folder: Path) -> None:
    node = load(folder, "openb-all/default").nodes[2]
    assert node.name == "node-3"
    assert node_devices(node, *reversed(node_quantities(node))) == ()


def test_declared_mix_counts_the_list_and_not_the_arrivals(folder: Path) -> None:
    assert [(each.pod.metadata.name, each.count) for each in load(folder).declared] == [
        ("pod-b", 2),
        ("pod-a", 1),
        ("pod-c", 1),
    ]


@pytest.mark.parametrize(("name", "seed"), [("openb/default", 43), ("openb-all/default", 42)])
def test_orders_that_nobody_published_are_generated(folder: Path, name: str, seed: int) -> None:
    trace = load(folder, name, seed)
    assert trace.order == "generated"
    assert sorted(trace.ranks) == list(range(len(trace.nodes)))
    assert set(names(trace)) >= {"pod-a", "pod-b", "pod-c", "pod-d"}


def test_other_nodes_set_the_demand(folder: Path) -> None:
    few = load(folder).nodes[:1]
    trace = load(folder, nodes=few)
    assert trace.order == "generated"
    assert trace.nodes == few
    asked = [gpu_request(job.pods[0], pod_requests(job.pods[0])) for job in trace.jobs]
    # 2 GPUs × 130 %, and the list alone asks for 3
    assert sum(each.count * each.milli for each in asked if each) <= 2600


def test_no_seed_means_the_first_published_one(folder: Path) -> None:
    assert names(load(folder, seed=None)) == names(load(folder, seed=42))


def test_recorded_times(folder: Path) -> None:
    trace = load(folder, replay="times")
    assert [(job.name, job.arrival, job.duration) for job in trace.jobs] == [
        ("pod-a", 0, 90),
        ("pod-c", 5, 1),
        ("pod-b", 10, 380),
        ("pod-d", 10, 70),
    ]
    assert (trace.order, trace.retry, trace.ranks) == ("recorded", True, ())


def test_recorded_times_played_faster_on_fewer_nodes(folder: Path) -> None:
    trace = load(folder, replay="times:5:2")
    assert [(job.arrival, job.duration) for job in trace.jobs] == [(0, 90), (1, 1), (2, 380), (2, 70)]
    assert len(trace.nodes) == 1


@pytest.mark.parametrize("replay", ["times:0", "times:x", "times:1:2:3", "backwards", "times:-1"])
def test_unknown_replay(folder: Path, replay: str) -> None:
    with pytest.raises(InputError, match="expected arrivals, times, times:K"):
        load(folder, replay=replay)


BROKEN = [
    (
        "openb/openb_pod_list_default.csv",
        "11300",
        "11.3k",
        r"default.csv:3:7: cpu_milli: expected a whole number",
    ),
    ("openb/openb_pod_list_default.csv", "pod-c,1000", "pod-c,-1", r"csv:4:7: cpu_milli: .* got '-1'"),
    (
        "openb/openb_pod_list_default.csv",
        "2,1000,,BE",
        "2,500,,BE",
        r"csv:3:\d+: gpu_milli: expected 1000 for a pod",
    ),
    (
        "openb/openb_pod_list_default.csv",
        "1,500,T4",
        "1,1001,T4",
        r"csv:2:\d+: gpu_milli: .*1 to 1000, got '1001'",
    ),
    ("openb/openb_pod_list_default.csv", "T4|G2", "T4||G2", r"gpu_spec: expected GPU models joined by"),
    ("openb/openb_pod_list_default.csv", "0,0,,BE", "0,0,T4,BE", r"gpu_spec: .* for a pod with GPUs"),
    ("openb/openb_pod_list_default.csv", ",2,1000", ",17,1000", r"num_gpu: expected a whole number, 0 to 16"),
    ("openb/openb_pod_list_default.csv", "pod-d", "pod-b", r"csv:5:1: name: .* not yet used \(line 2\)"),
    ("openb/openb_pod_list_default.csv", "pod-d", "", r"csv:5:1: name: expected a name"),
    (
        "openb/openb_pod_list_default.csv",
        "Pending,5,5,",
        "Pending,5",
        r"csv:4: expected 11 fields \(name,.*, got 9",
    ),
    (
        "openb/openb_pod_list_default.csv",
        "cpu_milli",
        "cpu",
        r"csv:1: the header lacks cpu_milli; expected name,",
    ),
    ("openb/openb_pod_list_default.csv", "qos", "quality", r"csv:1: the header has 'quality'"),
    ("openb/openb_pod_list_default.csv", "pod-d", '"pod-d', r"csv:5: is not CSV"),
    ("openb/openb_pod_list_default.csv", "pod-d", '"pod\n-d"', r"csv:5: expected one record a line"),
    (
        "openb/openb_node_list_gpu_node.csv",
        "64000",
        "0",
        r"node.csv:3: Node node-1: cpu: expected CPU above 0",
    ),
    ("openb/openb_node_list_gpu_node.csv", "262144", "0", r"Node node-1: memory: expected memory above 0"),
    (
        "openb/openb_node_list_gpu_node.csv",
        ",4,G2",
        ",17,G2",
        r"csv:2: Node node-2: gpu: expected 0 to 16 GPUs, got 17",
    ),
    ("openb/openb_node_list_gpu_node.csv", ",4,G2", ",-4,G2", r"csv:2:21: gpu: expected a whole number"),
    (
        "openb/openb_node_list_gpu_node.csv",
        ",4,G2",
        ",0,G2",
        r"model: a GPU model \(G2\) on a node without GPUs",
    ),
    ("openb/openb_node_list_gpu_node.csv", "node-1", "node-2", r"csv:3:1: sn: .* not yet used \(line 2\)"),
]


@pytest.mark.parametrize(("file", "good", "bad", "message"), BROKEN)
def test_broken_line_is_named(folder: Path, file: str, good: str, bad: str, message: str) -> None:
    place = folder / file
    text = place.read_text()
    assert good in text
    place.write_text(text.replace(good, bad, 1))
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_times_out_of_order(folder: Path) -> None:
    place = folder / "openb/openb_pod_list_default.csv"
    place.write_text(place.read_text().replace("10,400,20", "10,15,20"))
    with pytest.raises(InputError, match=r"csv:2:\d+: deletion_time: expected creation 10 ≤ scheduled 20 ≤ deletion"):
        load(folder, replay="times")


def test_list_without_times(folder: Path) -> None:
    short = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\npod-a,1000,1024,1,1000\n"
    (folder / "openb/openb_pod_list_multigpu20.csv").write_text(short)
    assert load(folder, "openb/multigpu20").jobs
    with pytest.raises(InputError, match=r"has no times .*replay by arrivals"):
        load(folder, "openb/multigpu20", replay="times")


@pytest.mark.parametrize("file", ["openb_pod_list_default.csv", "openb_node_list_gpu_node.csv"])
@pytest.mark.parametrize("lines", [0, 1])
def test_empty_files(folder: Path, file: str, lines: int) -> None:
    place = folder / "openb" / file
    place.write_text("".join(place.read_text().splitlines(keepends=True)[:lines]))
    with pytest.raises(InputError, match=r"is empty|is an empty"):
        load(folder)


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (b"pods 42 0 1\nnodes 42 0 0\n", r"gz:2: expected each of the ranks 0 to 1 once"),
        (b"pods 42 0 4\nnodes 42 0 1\n", r"gz:1: expected numbers from 0 to 3"),
        (b"pods 42 0 x\nnodes 42 0 1\n", r"gz:1: expected whole numbers"),
        (b"dogs 42 0\n", r"gz:1: expected `pods SEED …` or `nodes SEED …`"),
    ],
)
def test_broken_published_order(folder: Path, orders: bytes, message: str) -> None:
    (folder / "openb-arrivals/default.txt.gz").write_bytes(gzip.compress(orders))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_published_order_that_is_no_gzip(folder: Path) -> None:
    (folder / "openb-arrivals/default.txt.gz").write_bytes(b"pods 42 0")
    with pytest.raises(InputError, match=r"default\.txt\.gz"):
        load(folder)


def test_bytes_that_are_no_text(folder: Path) -> None:
    place = folder / "openb/openb_pod_list_default.csv"
    place.write_bytes(place.read_bytes().replace(b"pod-c", b"pod-\xff"))
    with pytest.raises(InputError, match=r"csv:4: expected text in UTF-8"):
        load(folder)
