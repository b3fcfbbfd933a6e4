"""`windlass bench embedded`, small and without a peer: every measurement is made, and the table says so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.real_cluster.api import until

from windlass_bench.embedded.contenders import EMBEDDED
from windlass_bench.embedded.report import sections_of
from windlass_bench.embedded.run import Result, Scale, measure


def test_both_forms_are_measured() -> None:
    scale = Scale(pods=40, connections=4, watchers=2, crowd=10, nodes_kept=5, pods_kept=1100)
    results = asyncio.run(measure(scale, None, (False, True), lambda _: None))
    assert [(result.server, result.durable) for result in results] == [(EMBEDDED, False), (EMBEDDED, True)]
    for result in results:
        assert min(result.creates, result.binds, result.events, result.crowd_events) > 0
        assert result.crowd == 10
        assert result.rss_mib
    (rates,) = sections_of(results, "")
    assert len(rates.rows) == 2


def test_ratios_compare_what_is_alike() -> None:
    mine = Result(EMBEDDED, True, 200, 300, 400, 10, 50, 1)
    peer = Result("other", True, 100, 100, 100, 10, 100, 1)
    other = Result("other", False, 1, 1, 1, 1, 1, 1)
    _, ratios = sections_of([mine, peer, other], "")
    assert ratios.rows == [{"kept": "on disk", "creates": 2, "binds": 3, "events": 4, "crowd_events": 0.5}]


@pytest.mark.parametrize("moment", ["server.log", "kubeconfig"])
def test_a_bench_that_is_ended_leaves_no_server_behind(tmp_path: Path, moment: str) -> None:
    """While its server starts, and while it is measured."""
    command = [sys.executable, "-c", "from windlass.cli.main import main; main()", "bench", "embedded"]
    with (tmp_path / "bench.log").open("wb") as log:
        bench = subprocess.Popen(
            [*command, "--pods=100000", "--kept=memory"],
            env={**os.environ, "TMPDIR": str(tmp_path), "PATH": str(tmp_path)},
            stdout=log,
            stderr=log,
        )
    until(lambda: list(tmp_path.glob(f"windlass-bench-*/{moment}")), what="the server is there")
    servers = Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
    until(lambda: servers.read_text().split(), what="its process is known")
    (server,) = servers.read_text().split()
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(120) == 143
    until(lambda: not Path(f"/proc/{server}").exists(), what="the server is gone")
    assert not list(tmp_path.glob("windlass-bench-*"))
