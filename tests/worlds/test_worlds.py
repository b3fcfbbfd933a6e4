"""A committed handful of worlds; `make worlds` draws new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.real_cluster.binaries import Binaries, NotAvailable
from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.recipes import CONTROL_PLANE

ROOT = Path(__file__).parents[2]


def play(*arguments: str) -> str:
    """In a process of its own, since the order of sets of names decides what happens first."""
    command = [sys.executable, "-m", "tests.worlds", "--log", *arguments]
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)}
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert played.returncode == 0, played.stdout[-8000:] + played.stderr[-2000:]
    return played.stdout


def test_nothing_is_wrong_whatever_happens() -> None:
    assert "0 of 3 worlds have problems" in play("--count=3", "--seed=1004", "--jobs=1")


def test_nothing_is_evicted_in_vain_between_two_queues() -> None:
    assert "0 of 1 worlds have problems" in play("--count=1", "--seed=300074", "--jobs=1")


def test_nothing_is_wrong_on_windlass_up() -> None:
    said = play("--count=1", "--seed=3", "--live=up", "--small", "--steps=8", "--quiet-seconds=30")
    assert "0 of 1 worlds have problems" in said


def test_nothing_is_wrong_on_a_real_api_server(binaries: Binaries) -> None:
    try:
        binaries.build(CONTROL_PLANE)
    except NotAvailable as problem:
        unavailable(str(problem))
    said = play("--count=1", "--seed=3", "--live=kube", "--small", "--steps=8", "--quiet-seconds=30")
    assert "0 of 1 worlds have problems" in said


def test_nothing_is_wrong_where_work_moves() -> None:
    assert "0 of 4 worlds have problems" in play("--count=4", "--seed=107", "--moves", "--jobs=1")
