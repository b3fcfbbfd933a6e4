"""Several tenants on one GPU at once: starts them, gives them the same order at the same moment, collects answers.

Used by `record.py` for every way of sharing; the way is in the tenants' environment (`CUDA_VISIBLE_DEVICES`, MPS pipe).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
PATIENCE = 60.0


class Tenants:
    """Processes that share a GPU; a context manager that leaves none behind."""

    def __init__(self, environments: list[dict[str, str]]) -> None:
        self.processes = [self._start(extra) for extra in environments]

    def __enter__(self) -> Tenants:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.stdin:
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)

    def ready(self) -> list[dict[str, Any]]:
        """The first word of each: its device, or why it couldn't start."""
        return [self._answer(process) for process in self.processes]

    def run(self, kind: str, seconds: float) -> list[dict[str, Any]]:
        order = {"kind": kind, "start": time.monotonic() + 0.25, "seconds": seconds}
        return self.ask(order)

    def ask(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        for process in self.processes:
            if process.stdin and process.poll() is None:
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
        return [self._answer(process) for process in self.processes]

    @staticmethod
    def _start(extra: dict[str, str]) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            [sys.executable, str(HERE / "tenant.py")],
            env={**os.environ, "PYTHONPATH": paths, **extra},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if readable else ""
        if not line:
            process.kill()
            said = process.stderr.read()[-400:] if process.stderr else ""
            return {"error": f"the tenant said nothing: {said}"}
        answer = json.loads(line)
        return dict(answer)
