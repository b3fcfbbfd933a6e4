"""What `record.py` looks at besides the agent itself: nvidia-smi, other programs, and tenants at work meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from threading import Thread
from typing import Any

from tenants import Tenants

QUERY = (
    "index,uuid,name,memory.total,pci.bus_id,driver_version,compute_cap,mig.mode.current,"
    "temperature.gpu,power.draw,clocks.sm,clocks.mem,utilization.gpu,utilization.memory,memory.used,memory.free,"
    "memory.reserved"
)


def in_background(tenants: Tenants, kind: str, seconds: float) -> Callable[[], Any]:
    """Gives the order now, and hands back how to wait for the answers."""
    answers: list[Any] = []
    thread = Thread(target=lambda: answers.extend(tenants.run(kind, seconds)))
    thread.start()

    def wait() -> Any:
        thread.join()
        return answers

    return wait


def metric_values(text: str) -> dict[str, float]:
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}


def smi() -> dict[str, str]:
    """nvidia-smi's own words about the first GPU."""
    line = shell("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits").splitlines()[0]
    return dict(zip(QUERY.split(","), (word.strip() for word in line.split(",")), strict=False))


def shell(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip()
