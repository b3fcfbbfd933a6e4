"""The stopwatch of a newcomer's first pod still speaks to the package that it measures."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.first_pod import start


def test_the_first_pod_runs_after_the_address_is_printed(tmp_path: Path) -> None:
    printed, running = start(Path(sys.prefix), tmp_path)
    assert 0 < printed < running
