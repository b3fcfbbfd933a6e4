"""Plays worlds in real time, on `windlass up` or on a real kube-apiserver, with the driver and the judge of all worlds.

Run times and pauses are a twentieth of those on the virtual clock. In every fourth world the machine is short of CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.worlds.draw_world import WorldSpec, draw_world
from tests.worlds.judge import Patience
from tests.worlds.live_cluster import LiveCluster
from tests.worlds.play import Report, play_world

PACE = 0.05
GANG_GRACE_SECONDS = 5
PATIENCE = Patience(lag=30.0, decision=60.0, reclaim=60.0, gang=60.0, gain=60.0, stable=20.0, recovery=20.0)
"""Of a machine that others use too: what may never be counts at once, how soon something happens only in a minute."""
QUIET_SECONDS = 100.0
"""Time at the end, so that everything that takes its time is judged, too."""


def live_spec(seed: int, small: bool) -> WorldSpec:
    spec = draw_world(seed, pace=PACE, small=small)
    settings = msgspec.structs.replace(spec.settings, gang_grace_seconds=GANG_GRACE_SECONDS)
    nodes = [node for node in spec.nodes if "windlass.dev/devices-layout" in node.tree["metadata"]["annotations"]]
    return WorldSpec(**{**vars(spec), "settings": settings, "nodes": nodes})


@contextlib.contextmanager
def servers(kind: str) -> Iterator[object]:
    """What worlds of this kind share: a control plane, which is wiped before each of them."""
    if kind != "kube":
        yield None
        return
    from tests.real_cluster.binaries import Binaries
    from tests.real_cluster.fixtures import started
    from tests.real_cluster.recipes import CONTROL_PLANE

    binaries = Binaries(tell=print)
    binaries.build(CONTROL_PLANE)
    with tempfile.TemporaryDirectory() as folder:
        plane = started(binaries, Path(folder))
        try:
            yield plane
        finally:
            plane.stop()


def play_live(
    seed: int, kind: str, shared: object, steps: int | None, quiet: float = QUIET_SECONDS, small: bool = False
) -> Report:
    report, spec, began = Report(seed), live_spec(seed, small), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        cluster, steps = _cluster(kind, spec, Path(folder), shared), steps or spec.theme.steps
        asyncio.run(play_world(spec, cluster, report, (steps, quiet), PATIENCE))
        for log in Path(folder).glob("*.log"):
            report.log += log.read_text(errors="replace").splitlines()[-40:]
    report.cpu_seconds = time.process_time() - began
    return report


def _cluster(kind: str, spec: WorldSpec, folder: Path, shared: object) -> LiveCluster:
    if kind == "up":
        from tests.worlds.live_up import UpCluster

        return UpCluster(spec, folder)
    from tests.real_cluster.control_plane import ControlPlane
    from tests.worlds.live_kube import KubeCluster

    assert isinstance(shared, ControlPlane)
    shared.restore()
    return KubeCluster(spec, folder, shared)
