"""A committed handful of seeds; `make loop-seeds` draws new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_wrong_whatever_the_network_and_the_replicas_do() -> None:
    """In a process of its own, since the order of sets of names decides what happens first."""
    command = [sys.executable, "-m", "tests.loop", "--log", "--count=6", "--seed=110", "--jobs=1"]
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)}
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert played.returncode == 0, played.stdout[-8000:] + played.stderr[-2000:]
    assert "0 of 6 seeds have problems" in played.stdout
