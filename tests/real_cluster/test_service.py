"""Programs of the test cluster are started, paused and ended, and never outlive the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.real_cluster.api import until
from tests.real_cluster.service import Service, StartFailed

ROOT = Path(__file__).parents[2]


def service(folder: Path, script: str, **options: float) -> Service:
    ready = folder / "ready"
    return Service("program", ["sh", "-c", script], folder / "log", ready.exists, {"READY": str(ready)}, **options)


def state(pid: int) -> str:
    """R, S, T (stopped), Z, or '' once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_it_starts_pauses_stops_and_starts_again(tmp_path: Path) -> None:
    program = service(tmp_path, 'touch "$READY"; exec sleep 100')
    program.start()
    program.pause()
    until(lambda: state(program.pid) == "T", 5)
    program.resume()
    until(lambda: state(program.pid) == "S", 5)
    program.stop()
    assert not program.running
    program.start()
    assert program.running
    program.pause()
    program.kill()
    assert not program.running


def test_one_that_dies_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="program ended with 3: no such flag"):
        service(tmp_path, "echo no such flag; exit 3").start()


def test_one_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    program = service(tmp_path, "echo still busy; exec sleep 100", patience=0.5)
    with pytest.raises(StartFailed, match=r"not ready after .*still busy"):
        program.start()
    program.stop()


def test_one_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    program = service(tmp_path, "trap '' TERM; touch \"$READY\"; while :; do sleep 0.1; done", grace=0.3)
    program.start()
    program.stop()
    assert not program.running


def test_nothing_outlives_tests_that_were_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.real_cluster.service import Service\n"
        "program = Service('p', ['sleep', '1000'], Path(sys.argv[1]), lambda: True); program.start()\n"
        "print(program.pid, flush=True); time.sleep(1000)"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    pid = int(tests.stdout.readline())
    os.kill(tests.pid, signal.SIGKILL)
    tests.wait()
    until(lambda: state(pid) in ("", "Z"), 10, "the program is gone")
