"""`windlass status`, `top` and `usage` on a dump and on history: numbers, formats and errors."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.invariants.objects import node, pod, pod_spec

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL
from windlass.telemetry.history.folder import DAY_SECONDS
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import COVERED, SLOT_SECONDS, LedgerHistory, series_name

A100, V100 = "NVIDIA-A100-SXM4-40GB", "Tesla-V100-SXM2-16GB"
DAY = 20_454
NOON = "2026-01-01T12:00:00Z"


def machine(name: str, gpus: int, model: str) -> dict[str, Any]:
    made = node(name, 32, gpus, "p", "r")
    made["metadata"]["labels"][GPU_PRODUCT_LABEL] = model
    return made


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """40 % idle, and everything that waits wants the other model."""
    held = pod("train", pod_spec(1, 2), created=DAY * DAY_SECONDS)
    held["spec"]["nodeName"] = "a"
    held["status"] = {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"}
    waits = pod("waits", pod_spec(1, 1, nodeSelector={GPU_PRODUCT_LABEL: A100}), created=DAY * DAY_SECONDS)
    items = [machine("a", 2, A100), machine("v", 4, V100), held, waits]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: windlass.dev/v1\nkind: SchedulerConfiguration\n"
        "usage: {currency: EUR, gpuHourPrices: {A100-40: 2.5, V100: '0.8'}}\n"
    )
    return str(path)


@pytest.fixture
def history(tmp_path: Path) -> str:
    """Two days: a team computes on one GPU, the other one is free."""
    folder = tmp_path / "history"
    made = LedgerHistory(folder)
    used = series_name(UsageKey("blue", "q", "ada", "Job b/x", A100), "computing")
    free = series_name(UsageKey(model=A100), "free")
    for slot in range(2 * DAY_SECONDS // SLOT_SECONDS):
        amounts = {COVERED: SLOT_SECONDS, used: SLOT_SECONDS * 1000, free: SLOT_SECONDS * 1000}
        made.writer.append(DAY * DAY_SECONDS + slot * SLOT_SECONDS, amounts)
    made.evicted(DAY * DAY_SECONDS, UsageKey("blue", "q", "ada", "Job b/x"), 3600, "Priority", "b/y")
    made.close()
    return str(folder)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command(cli, list(arguments), "windlass")
    found = capsys.readouterr()
    return code, found.out, found.err


def test_status_tells_the_story(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    code, out, err = run(capsys, "status", "--from", dump, "--now", NOON)
    assert code == 0
    assert out.startswith("6 GPUs on 2 nodes at 2026-01-01T12:00:00Z\n")
    assert "1 GPU waits for A100-40 while 4 V100 are free (1 workload, the oldest for 12h; GPU_FULL)" in out
    assert "not measured" in err
    code, out, _ = run(capsys, "status", "--from", dump, "--now", NOON, "-o", "json")
    found = json.loads(out)
    assert (found["kind"], found["gpus"], sum(found["states"].values())) == ("Status", 6.0, 6.0)
    assert found["why"]["stranded"] == {"SELECTOR_MISMATCH": 4.0}


def test_top_lists_who_holds_and_who_waits(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    code, out, _ = run(capsys, "top", "--once", "--from", dump, "--now", NOON, "-o", "json")
    assert code == 0
    assert json.loads(out)["rows"] == [
        {"name": "Pod team/train", "unmeasured": 2.0},
        {"name": "Pod team/waits", "waiting": 1.0},
    ]
    assert "a     2 " in run(capsys, "top", "--once", "--by", "node", "--from", dump, "--now", NOON)[1]


def test_usage_of_a_dump_counts_what_pods_hold(capsys: pytest.CaptureFixture[str], dump: str, prices: str) -> None:
    at = ("--from", dump, "--now", NOON, "--since", "1h")
    code, out, err = run(capsys, "usage", *at, "--config", prices, "-o", "csv")
    assert code == 0
    assert "those that have ended are not in it" in err
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["team"], row["allocated_gpu_hours"], row["cost"], row["currency"]) == (
        "team",
        "2.000000",
        "5.000000",
        "EUR",
    )


def test_usage_of_history_adds_up(capsys: pytest.CaptureFixture[str], history: str, prices: str) -> None:
    at = ("--history", history, "--now", "2026-01-03T00:00:00Z", "--since", "2d")
    code, out, err = run(capsys, "usage", *at, "--config", prices, "--by", "user", "-o", "json")
    assert code == 0
    found = json.loads(out)
    assert found["notes"] == []
    (row,) = found["rows"]
    assert (row["name"], row["allocatedGpuHours"], row["lostGpuHours"], row["busyShare"]) == ("ada", 48.0, 1.0, 1.0)
    assert found["unusedGpuHours"]["free"] == 48.0
    code, out, _ = run(capsys, "usage", *at, "--config", prices, "-o", "focus")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["ChargePeriodStart"][:10] for row in rows] == ["2026-01-01"] * 2 + ["2026-01-02"] * 2
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(96 * 2.5)
    code, out, err = run(capsys, "usage", *at)
    assert "blue" in out
    assert "held by nobody: free 48.0" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--history", "/nowhere"), 2, "/nowhere: there is no such folder"),
        (("--prometheus", "localhost"), 2, "'localhost' is no address of a Prometheus"),
        (("--prometheus", "http://127.0.0.1:1"), 3, "http://127.0.0.1:1 did not answer"),
        (("--history", ".", "--prometheus", "http://127.0.0.1:1"), 2, "two sources: choose one"),
        (("--since", "later", "--prometheus", "http://127.0.0.1:1"), 2, "'later' is neither a duration"),
        (("--now", "noon", "--prometheus", "http://127.0.0.1:1"), 2, "'noon' is not a time"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = run(capsys, "usage", *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
