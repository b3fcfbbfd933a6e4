"""A real Prometheus (Debian's package) scrapes the exporter, and finds what dashboards ask for."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine, until
from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.service import Service, free_ports

from windlass.node.exporter.collect import collect_families
from windlass.node.exporter.collection_context import CollectionContext, DeviceHolder
from windlass.node.exporter.counters import default_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.exporter.prometheus_text import write_text
from windlass.node.host_root import HostRoot


class Given:
    """Who holds what, without a kubelet."""

    def __init__(self, holders: dict[str, list[DeviceHolder]]) -> None:
        self._holders = holders

    def holders(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        return self._holders


@pytest.fixture
def prometheus() -> str:
    found = shutil.which("prometheus")
    if found is None:
        unavailable("Debian's prometheus is missing: run tools/test-packages")
    assert found is not None
    return found


def test_prometheus_scrapes_what_dashboards_ask_for(prometheus: str, tmp_path: Path) -> None:
    backend = machine("H200", 2, mig=("1g.18gb", "3g.71gb"))
    held = {backend.inventory().gpus[0].instances[0].uuid: [DeviceHolder("train", "team-a", "main")]}
    exporter = Exporter(
        backend,
        default_counters(),
        hostname="n1",
        root=HostRoot("/nowhere"),
        pods=Given(held),  # type: ignore[arg-type]
    )
    exporter.collect()
    server = MetricsServer(exporter, "127.0.0.1", 0)
    server.start()
    (port,) = free_ports(1)
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: gpu, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n"
    )
    command = [
        prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    service = Service("prometheus", command, tmp_path / "prometheus.log", lambda: _ready(port))
    service.start()
    try:
        until(
            lambda: _query(port, "up")[0]["value"][1] == "1" if _query(port, "up") else False,
            30,
            "it is scraped",
        )
        temperatures = _query(port, "DCGM_FI_DEV_GPU_TEMP")
        assert {temperature["metric"]["gpu"] for temperature in temperatures} == {"0", "1"}
        (mine,) = _query(port, 'DCGM_FI_DEV_FB_FREE{namespace="team-a"}')
        assert mine["metric"]["pod"] == "train"
        assert mine["metric"]["GPU_I_PROFILE"] in ("1g.18gb", "3g.71gb")
        (active,) = _query(port, "count(DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
        assert int(active["value"][1]) == 4, "one per instance"
    finally:
        service.stop()
        server.stop()


def test_promtool_can_read_the_page(prometheus: str) -> None:
    page = write_text(collect_families(machine("H200", 2), default_counters(), CollectionContext(hostname="n1")))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=30, check=False
    )
    # 1 would mean that it can't be parsed, 3 that names are not to its taste: the names are the original's.
    assert done.returncode in (0, 3), done.stderr


def _ready(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2).close()
    except OSError:
        return False
    return True


def _query(port: int, text: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": text})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found
