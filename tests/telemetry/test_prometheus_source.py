"""A real Prometheus that knows only dcgm-exporter and kube-state-metrics: who held GPUs, and what they did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.telemetry.real_prometheus import Series, prometheus_with

from windlass.model.errors import ClusterUnreachable
from windlass.telemetry.activity import activity_of
from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_samples import read_samples
from windlass.telemetry.prometheus_usage import FREE_NOTE, read_prometheus_usage
from windlass.telemetry.usage import UsageKey, usage_rows

START = 20_454 * 86_400
END = START + 2 * 3600
H100 = "NVIDIA H100 80GB HBM3"


def gpu(host: str, index: int, pod: str = "", namespace: str = "", **more: str) -> dict[str, str]:
    labels = {"Hostname": host, "gpu": str(index), "UUID": f"GPU-{host}-{index}", "modelName": H100, **more}
    return {**labels, "namespace": namespace, "pod": pod, "container": "c"} if pod else labels


def constant(name: str, labels: dict[str, str], value: float, start: int = START, end: int = END) -> Series:
    return name, labels, [(at, value) for at in range(start, end, 60)]


def series() -> Iterator[Series]:
    """Two hours: one GPU computes for the first of them, one is held and idle, one spins, one is free; an instance."""
    busy = gpu("n1", 0, "train-0", "vision")
    yield constant("DCGM_FI_DEV_FB_USED", busy, 1000)
    yield constant("DCGM_FI_DEV_GPU_UTIL", busy, 90, END - 7200, END - 3600)
    yield constant("DCGM_FI_DEV_GPU_UTIL", busy, 0, END - 3600, END)
    idle = gpu("n1", 1, "notebook", "speech")
    yield constant("DCGM_FI_DEV_FB_USED", idle, 1000)
    yield constant("DCGM_FI_DEV_GPU_UTIL", idle, 0)
    spin = gpu("n1", 2, "hangs", "speech")
    yield constant("DCGM_FI_DEV_FB_USED", spin, 1000)
    yield constant("DCGM_FI_DEV_GPU_UTIL", spin, 100)
    yield constant("DCGM_FI_PROF_SM_ACTIVE", spin, 0.0076)
    free = gpu("n1", 3)
    yield constant("DCGM_FI_DEV_FB_USED", free, 0)
    yield constant("DCGM_FI_DEV_GPU_UTIL", free, 0)
    instance = gpu("n2", 0, "serve", "chat", GPU_I_PROFILE="3g.40gb", GPU_I_ID="1")
    yield constant("DCGM_FI_DEV_FB_USED", instance, 500)
    yield constant(
        "kube_pod_owner", {"namespace": "vision", "pod": "train-0", "owner_kind": "Job", "owner_name": "train"}, 1
    )
    labels = {"namespace": "vision", "pod": "train-0", "label_kueue_x_k8s_io_queue_name": "gpu"}
    yield constant("kube_pod_labels", {**labels, "label_windlass_dev_user": "ada"}, 1)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with(tmp_path_factory.mktemp("prometheus"), series()) as found:
        yield found


def test_usage_from_names_of_the_ecosystem_alone(url: str) -> None:
    usage = read_prometheus_usage(Prometheus(url), START, END)
    model = H100.replace(" ", "-")
    hour = 3_600_000
    assert usage.sums[UsageKey("vision", "vision/gpu", "ada", "Job vision/train", model)] == {
        "computing": hour,
        "held_idle": hour,
    }
    speech = {row.name: row for row in usage_rows(usage, "job", {})}
    assert speech["Pod speech/notebook"].idle_hours == 2
    assert speech["Pod speech/hangs"].spinning_hours == 2
    assert speech["Pod chat/serve"].unmeasured_hours == 1, "half of a GPU, and instances have no utilisation"
    assert usage.sums[UsageKey(model=model)] == {"free": 2 * hour}
    assert usage.covered_seconds == 7200
    assert usage.notes == [FREE_NOTE]


def test_days_are_cut_so_that_nothing_counts_twice(url: str) -> None:
    whole = read_prometheus_usage(Prometheus(url), START, END)
    parts = [
        read_prometheus_usage(Prometheus(url), START + part * 1800, START + (part + 1) * 1800) for part in range(4)
    ]
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    assert total.sums == whole.sums


def test_samples_of_now(url: str) -> None:
    found = read_samples(Prometheus(url), END - 60)
    assert set(found) == {("n1", 0), ("n1", 1), ("n1", 2), ("n1", 3), ("n2", 0)}
    assert found["n1", 2].uuid == "GPU-n1-2"
    activities = {key: activity_of(sample, END - 60) for key, sample in found.items()}
    assert activities["n1", 2] == "spinning"
    assert activities["n1", 1] == "held_idle"
    assert activities["n2", 0] == "unmeasured"


def test_a_query_that_is_refused_is_one_sentence(url: str) -> None:
    with pytest.raises(ClusterUnreachable, match=r"refused a query: .*parse error"):
        Prometheus(url).query("sum(")
    with pytest.raises(ClusterUnreachable, match="refused a query: 404"):
        Prometheus(url + "/elsewhere").query("up")
