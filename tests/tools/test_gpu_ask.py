"""The recorder of asks on a GPU, with its engine for machines that have none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "gpu" / "ask.py"


def test_no_step_is_lost_or_repeated_over_three_interruptions(tmp_path: Path) -> None:
    arguments = ["--engine", "numpy", "--steps", "900", "--width", "16"]
    found = subprocess.run(
        [sys.executable, str(TOOL), *arguments], env={**os.environ, "OUT": str(tmp_path)}, timeout=200
    )
    document = json.loads((tmp_path / "ask.json").read_text())
    assert (found.returncode, document["problems"]) == (0, [])
    assert len(document["interruptedAfterStep"]) == 3
