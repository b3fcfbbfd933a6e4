"""A committed handful of worlds; `make worlds` draws new ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [5, 30, 33, 35])
def test_nothing_is_wrong_whatever_happens(seed: int) -> None:
    """In a process of its own, since the order of sets of names decides what happens first."""
    command = [sys.executable, "-m", "tests.worlds", "--count", "1", "--seed", str(seed), "--jobs", "1", "--log"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    played = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert played.returncode == 0, played.stdout[-8000:] + played.stderr[-2000:]
    assert "0 of 1 worlds have problems" in played.stdout
