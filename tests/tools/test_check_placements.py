"""The independent checker: passes what is right, and catches every kind of wrong placement with its line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli

CHECKER = Path(__file__).resolve().parents[2] / "tools" / "check_placements.py"
HEADER = "trace,policy,seed,pod,node,devices,time"

PARK = """\
# windlass-nodes 1
node,cpu,memory,gpu,model
big,16,64Gi,2,G2
small,8,16Gi,1,T4
"""
JOBS = """\
# windlass-trace 1 retry=no nodes=park.csv
job,cpu,memory,gpu,gpu_milli,models
whole,4,8Gi,2,,
share-a,2,4Gi,1,600,T4
share-b,2,4Gi,1,300,
picky,1,1Gi,1,500,G2
busy,6,1Gi,,,
fat,1,10Gi,,,
late,1,1Gi,1,500,
"""
RIGHT = {
    "whole": ("big", "0:1000;1:1000", 0),
    "share-a": ("small", "0:600", 0),
    "share-b": ("small", "0:300", 0),
    "busy": ("big", "", 0),
    "fat": ("big", "", 0),
}
TIMED_JOBS = """\
# windlass-trace 1 retry=yes nodes=park.csv
job,arrival,duration,pods,cpu,memory,gpu
first,0,100,,1,1Gi,2
gang,10,50,2,1,1Gi,1
after,20,10,,1,1Gi,2
"""
TIMED = {
    "first": ("big", "0:1000;1:1000", 0),
    "gang-0": ("big", "0:1000", 100),
    "gang-1": ("big", "1:1000", 100),
    "after": ("big", "0:1000;1:1000", 150),
}
Places = dict[str, tuple[str, str, int]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "park.csv").write_text(PARK)
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "timed.csv").write_text(TIMED_JOBS)
    return tmp_path


def lines_of(places: Places, trace: str = "jobs.csv") -> list[str]:
    return [f"{trace},any,,default/{pod},{node},{devices},{time}" for pod, (node, devices, time) in places.items()]


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Without any package in reach, so that it can only be the checker's own work."""
    return subprocess.run(
        [sys.executable, "-I", "-S", CHECKER, *arguments], capture_output=True, text=True, check=False
    )


def check_lines(lines: list[str]) -> subprocess.CompletedProcess[str]:
    Path("placements.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return check("placements.csv")


def run_simulator(*arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Leaves `placements.csv` and `report.json` behind."""
    command = ["simulate", *arguments, "--placements", "placements.csv", "-o", "json"]
    assert run_command(cli, command, "windlass") == 0
    Path("report.json").write_text(capsys.readouterr().out)


def test_shares_no_code_with_the_engine() -> None:
    assert not re.search(r"^\s*(from|import) windlass", CHECKER.read_text(), re.MULTILINE)


@pytest.mark.usefixtures("folder")
class TestRightPlacements:
    def test_pass_with_the_allocation(self) -> None:
        done = check_lines(lines_of(RIGHT))
        assert (done.returncode, done.stderr) == (0, "")
        assert "5 of 7 pods placed, 2,900 of 3,000 milli-GPU allocated (96.667 %)" in done.stdout

    def test_pass_where_pods_come_and_go(self) -> None:
        done = check_lines(lines_of(TIMED, "timed.csv"))
        assert (done.returncode, done.stderr) == (0, "")
        assert "4 of 4 pods placed, 2,000 of 3,000" in done.stdout

    def test_pass_as_the_simulator_writes_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_simulator("jobs.csv", "timed.csv", "--policy", "fgd,windlass,first-fit,random", capsys=capsys)
        done = check("placements.csv", "--report", "report.json")
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 8


Corruption = Callable[[Places], None]


def moved(pod: str, node: str, devices: str = "", time: int = 0) -> Corruption:
    return lambda places: places.update({pod: (node, devices, time)})


def removed(pod: str) -> Corruption:
    return lambda places: places.pop(pod) and None


CORRUPTIONS = {
    "device over-committed": (
        moved("share-b", "big", "0:300"),
        "line 4: .*device 0 of big is over-committed",
    ),
    "CPU over-committed": (moved("busy", "small"), "line 5: .*the CPU of small is over-committed"),
    "memory over-committed": (moved("fat", "small"), "line 6: .*the memory of small is over-committed"),
    "no such device": (moved("whole", "big", "0:1000;2:1000"), "line 2: .*big has no device 2"),
    "too few devices": (moved("whole", "big", "0:1000"), "line 2: .*not as many as it asks for"),
    "a device twice": (moved("whole", "big", "0:1000;0:1000"), "line 2: .*some twice"),
    "a smaller share": (
        moved("share-a", "small", "0:500"),
        "line 3: .*got 500 milli of device 0, asks for 600",
    ),
    "the wrong model": (moved("share-a", "big", "0:600"), "line 3: .*big has G2, it allows T4"),
    "no such node": (moved("share-a", "huge", "0:600"), "line 3: .*no node huge"),
    "no such pod": (moved("nobody", "big"), "line 7: default/nobody: no such pod"),
    "a pod that fitted left out": (removed("share-b"), "share-b: not placed, and would have fitted on small"),
    "a pod without GPUs left out": (removed("fat"), "fat: not placed, and would have fitted on big"),
}
TIMED_CORRUPTIONS = {
    "started before it came": (moved("after", "big", "0:1000;1:1000", 19), "starts at 19, comes at 20"),
    "a gang that starts apart": (moved("gang-1", "big", "1:1000", 101), "don't start together"),
    "half a gang": (removed("gang-1"), "don't start together"),
    "started before there was room": (
        moved("after", "big", "0:1000;1:1000", 149),
        "device 0 .*over-committed",
    ),
    "kept waiting though it fits": (
        moved("after", "big", "0:1000;1:1000", 151),
        "fitted on big at second 150",
    ),
}


@pytest.mark.usefixtures("folder")
class TestWrongPlacements:
    @pytest.mark.parametrize("name", CORRUPTIONS)
    def test_are_caught(self, name: str) -> None:
        corrupt, message = CORRUPTIONS[name]
        places = dict(RIGHT)
        corrupt(places)
        done = check_lines(lines_of(places))
        assert done.returncode == 1
        assert re.search(message, done.stderr), done.stderr

    @pytest.mark.parametrize("name", TIMED_CORRUPTIONS)
    def test_are_caught_where_pods_come_and_go(self, name: str) -> None:
        corrupt, message = TIMED_CORRUPTIONS[name]
        places = dict(TIMED)
        corrupt(places)
        done = check_lines(lines_of(places, "timed.csv"))
        assert done.returncode == 1
        assert re.search(message, done.stderr), done.stderr

    def test_a_pod_placed_twice(self) -> None:
        lines = lines_of(RIGHT)
        done = check_lines([*lines, lines[-1].replace("big", "small")])
        assert done.returncode == 1
        assert "line 7: default/fat: placed before, on line 6" in done.stderr

    def test_a_report_that_says_something_else(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_simulator("jobs.csv", "--policy", "first-fit", capsys=capsys)
        report = Path("report.json")
        report.write_text(report.read_text().replace('"gpu_milli_allocated": 2900', '"gpu_milli_allocated": 2901'))
        done = check("placements.csv", "--report", "report.json")
        assert done.returncode == 1
        assert "reported (5, 2901)" in done.stderr

    def test_a_reported_run_without_placements(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_simulator("jobs.csv", "--policy", "first-fit,fgd", capsys=capsys)
        text = Path("placements.csv").read_text()
        Path("placements.csv").write_text("".join(line for line in text.splitlines(True) if "fgd" not in line))
        done = check("placements.csv", "--report", "report.json")
        assert done.returncode == 1
        assert "reported, but without a placement" in done.stderr


@pytest.mark.usefixtures("folder")
class TestWhatItCannotRead:
    def test_another_file(self) -> None:
        assert check("park.csv").returncode == 2

    def test_a_trace_that_it_does_not_know(self) -> None:
        done = check_lines(lines_of(RIGHT, "synthetic/small"))
        assert done.returncode == 2
        assert "synthetic/small" in done.stderr


@pytest.mark.traces
def test_the_production_trace(
    traces_dir: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_TRACES", str(traces_dir))
    traces = ("openb/default", "openb/gpuspec33")
    run_simulator(*traces, "--policy", "fgd,windlass", "--seed", "42", capsys=capsys)
    done = check("placements.csv", "--traces", traces_dir, "--report", "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "openb/default fgd 42: 8,334 of 10,866 pods placed, 5,919,410 of 6,212,000 milli-GPU" in done.stdout
    assert len(done.stdout.splitlines()) == 4
