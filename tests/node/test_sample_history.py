"""The agent's own history: what the exporter reads is there, by UUID, and `node history` and `node trends` read it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from tests.node.machines import machine
from tests.telemetry.curves import service

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.model.errors import InputError
from windlass.model.times import format_timestamp
from windlass.node.exporter.counters import default_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.sample_history import SampleHistory, step_of
from windlass.node.host_root import HostRoot
from windlass.storage.disk import Disk
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.history.writer import HistoryWriter

START = 20_454 * 86_400


class Clock:
    def __init__(self) -> None:
        self.now = float(START)

    def __call__(self) -> float:
        return self.now


def test_every_pass_is_kept_by_uuid_and_serial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock, backend = Clock(), machine("H200", 2, mig=("1g.18gb",))
    history = SampleHistory(tmp_path, 30.0, "n1", clock=clock)
    exporter = Exporter(backend, default_counters(), hostname="n1", root=HostRoot("/nowhere"), history=history)
    for _ in range(240):
        exporter.collect()
        clock.now += 30
    assert b"windlass_history_lost_samples_total 0" in exporter.metrics_text
    history.close()
    gpu = backend.inventory().gpus[0]
    reader = HistoryReader(Disk(tmp_path), 30)
    assert reader.facts(START, START + 7200)[gpu.uuid]["index"] == "0"
    assert len(reader.points(f"{gpu.uuid}/DCGM_FI_DEV_GPU_TEMP", START, START + 7200)) == 240
    assert reader.points(f"{gpu.instances[0].uuid}/DCGM_FI_DEV_FB_USED", START, START + 60)
    now = ("--now", format_timestamp(START + 7200))
    code = run_command(cli, ["node", "history", str(tmp_path), "--gpu", "1", *now, "-o", "json"], "windlass")
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    assert [row["time"] for row in rows] == [format_timestamp(START), format_timestamp(START + 3600)]
    assert run_command(cli, ["node", "history", str(tmp_path), "--gpu", "GPU-x", *now], "windlass") == 2
    assert "there is no GPU 'GPU-x' in the history" in capsys.readouterr().err
    assert run_command(cli, ["node", "trends", str(tmp_path), *now], "windlass") == 0


def test_trends_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One GPU leaks, another one has PCIe replays; the third is well."""
    writer = HistoryWriter(Disk(tmp_path), 30)
    names = ("GPU-leak", "GPU-replay", "GPU-well")
    facts = {name: {"serial": name, "model": "H100", "node": "n", "index": str(n)} for n, name in enumerate(names)}
    writer.add_facts(START, facts)
    for second in range(0, 6 * 3600, 30):
        row: dict[str, int | None] = {}
        for name in names:
            grows = 2_000 * second // 3600 if name == "GPU-leak" and second > 600 else 0
            replays = second // 120 if name == "GPU-replay" and second > 3 * 3600 else 0
            row |= {f"{name}/DCGM_FI_DEV_FB_USED": 20_000 + grows if second > 600 else 0}
            row |= {f"{name}/DCGM_FI_DEV_FB_TOTAL": 81_559, f"{name}/DCGM_FI_DEV_PCIE_REPLAY_COUNTER": replays}
        writer.append(START + second, row)
    writer.close()
    arguments = ["node", "trends", str(tmp_path), "--now", format_timestamp(START + 6 * 3600), "-o", "json"]
    assert run_command(cli, arguments, "windlass") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(entry["uuid"], entry["kind"]) for entry in found] == [("GPU-leak", "leak"), ("GPU-replay", "errors")]
    assert found[0]["text"].startswith("memory grows by 2,000 MiB an hour")


def test_memory_that_follows_the_day_is_no_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = HistoryWriter(Disk(tmp_path), 300)
    writer.add_facts(START, {"GPU-serve": {"serial": "1", "model": "H100", "node": "n", "index": "0"}})
    for at, used in service(Random(1), days=4):
        values: dict[str, int | None] = {
            "GPU-serve/DCGM_FI_DEV_FB_USED": int(used),
            "GPU-serve/DCGM_FI_DEV_FB_TOTAL": 81_559,
        }
        writer.append(START + at, values)
    writer.close()
    for hour in range(60, 96, 3):  # also in the hours of the day in which its memory grows
        now = ("--now", format_timestamp(START + hour * 3600), "--interval", "300")
        assert run_command(cli, ["node", "trends", str(tmp_path), *now], "windlass") == 0, capsys.readouterr().out


def test_two_agents_do_not_write_one_folder(tmp_path: Path) -> None:
    first = SampleHistory(tmp_path, 30.0, "n1")
    with pytest.raises(InputError, match="another process writes history there"):
        SampleHistory(tmp_path, 30.0, "n1")
    first.close()


@pytest.mark.parametrize(("interval", "step"), [(30.0, 30), (0.2, 1), (7.0, 8), (15.4, 15), (300.0, 300)])
def test_a_day_has_a_whole_number_of_slots(interval: float, step: int) -> None:
    assert step_of(interval) == step
