"""Simulated machines for the node agent's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from windlass.model.fleet_spec import FleetGpus, FleetPool
from windlass.node.backend.simulated import SimulatedBackend


def machine(
    model: str = "H100",
    count: int = 8,
    *,
    mig: str | tuple[str, ...] = "",
    folder: Path | None = None,
    islands: int = 1,
    numa: int = 2,
    clock: Callable[[], float] = time.time,
) -> SimulatedBackend:
    group = FleetGpus(model=model, count=count, mig=mig, islands=islands)
    return SimulatedBackend(FleetPool(name="node", gpus=(group,), numa=numa), folder=folder, clock=clock)


def until(condition: Callable[[], object], seconds: float = 15.0, what: str = "it happened") -> None:
    """Polls a condition; fails when the time is up, which on a busy machine is four times as long."""
    seconds *= 4
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


FLEET = """\
apiVersion: windlass.dev/v1
kind: Fleet
metadata: {name: lab}
spec:
  pools:
  - name: node
    gpus: [{model: H100, count: 8}]
    numa: 2
"""
