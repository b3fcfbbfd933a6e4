"""Trends of jobs out of a real Prometheus that knows only dcgm-exporter and kube-state-metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tests.telemetry.real_prometheus import Series, prometheus_with

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.model.times import format_timestamp

START = 20_454 * 86_400
END = START + 5 * 3600 + 600
FIELDS = ("GPU_UTIL", "SM_CLOCK", "POWER_USAGE", "FB_USED", "FB_FREE")
Value = Callable[[int], float]


def gpu(
    job: str, number: int, busy: Value, *, clock: float = 1_900, power: float = 600, used: Value = lambda at: 20_000
) -> Iterator[Series]:
    """A GPU of a job, a sample a minute."""
    labels = {"Hostname": "n", "gpu": str(number), "UUID": f"GPU-{job}-{number}", "modelName": "NVIDIA H100"}
    labels |= {"namespace": "team", "pod": f"{job}-{number}", "container": "c"}
    values: tuple[Value, ...] = (busy, lambda at: clock, lambda at: power, used, lambda at: 80_000 - used(at))
    for field, value in zip(FIELDS, values, strict=True):
        yield f"DCGM_FI_DEV_{field}", labels, [(at, value(at)) for at in range(START, END, 60)]
    kind = "ReplicaSet" if job == "serve" else "Job"
    owner = {"namespace": "team", "pod": f"{job}-{number}", "owner_kind": kind, "owner_name": job}
    yield "kube_pod_owner", owner, [(at, 1) for at in range(START, END, 60)]


def series() -> Iterator[Series]:
    hour = 3600
    for number in range(2):
        yield from gpu("idles", number, lambda at: 90.0 if at < END - 2 * hour else 0.0)
        grows = lambda at: 20_000 + 1_000 * (at - START) / hour  # noqa: E731
        yield from gpu("serve", number, lambda at: 90.0 if at < END - 2 * hour else 0.0, used=grows)
        yield from gpu("well", number, lambda at: 90.0)
    yield from gpu("hangs", 0, lambda at: 100.0)
    active = {"Hostname": "n", "gpu": "0", "UUID": "GPU-hangs-0", "namespace": "team", "pod": "hangs-0"}
    yield (
        "DCGM_FI_PROF_SM_ACTIVE",
        active,
        [(at, 0.9 if at < END - 2 * hour else 0.007) for at in range(START, END, 60)],
    )
    yield from gpu("leaks", 0, lambda at: 90.0, used=lambda at: 20_000 + 1_000 * (at - START) / hour)
    for number in range(6):
        yield from gpu("slow", number, lambda at: 95.0, clock=1_200 if number == 4 else 1_900)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with(tmp_path_factory.mktemp("prometheus"), series()) as found:
        yield found


def test_jobs_are_found_and_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = ("--now", format_timestamp(END - 60))
    assert run_command(cli, ["trends", "--prometheus", url, *now, "-o", "json"], "windlass") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(entry["job"], entry["kind"], entry["gpus"]) for entry in found] == [
        ("Job hangs", "spinning", 1),
        ("Job idles", "idle", 2),
        ("Job leaks", "leak", 1),
        ("Job slow", "slow GPU", 6),
    ]
    assert found[2]["text"].startswith("memory of GPU-leaks-0 grows by 1,000 MiB an hour")
    assert "the other GPUs wait for GPU-slow-4: 63% of their clock" in found[3]["text"]
    assert run_command(cli, ["trends", "--prometheus", url, *now, "-n", "elsewhere"], "windlass") == 0
    assert "no job idles" in capsys.readouterr().err
