"""The Grafana dashboard: a real Prometheus that scrapes our exporter and our scheduler answers every query of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from tests.node.machines import machine, until
from tests.real_cluster.service import Service, free_ports
from tests.reference.park import A100, gpu_node, pod
from tests.telemetry.real_prometheus import is_ready, program

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.isolation import IsolatingEngine
from windlass.model.configuration import Settings
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.counters import default_counters, read_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.host_root import HostRoot
from windlass.planner import engine_config, snapshot_objects
from windlass.scheduler.ledger_recorder import LedgerRecorder
from windlass.scheduler.metrics import Metrics
from windlass.telemetry.alert_rules import rule_groups
from windlass.telemetry.dashboard import PANELS, dashboard
from windlass.telemetry.prometheus import Prometheus

NOW = 20_000 * 86_400
KUEUE = 'kueue_cluster_queue_{name}{{cluster_queue="q",flavor="f",resource="nvidia.com/gpu"}} {value}\n'


class Held:
    """Who holds what, without a kubelet."""

    def __init__(self, holders: dict[str, list[DeviceHolder]]) -> None:
        self._holders = holders

    def holders(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        return self._holders


def exporter_page() -> bytes:
    backend = machine("H200", 2)
    held = {backend.inventory().gpus[0].uuid: [DeviceHolder("train", "team-a", "main")]}
    counters = (*default_counters(), *read_counters("DCGM_EXP_XID_ERRORS_COUNT, gauge, Xids.")[0])
    exporter = Exporter(backend, counters, hostname="n1", root=HostRoot("/nowhere"), pods=Held(held))  # type: ignore[arg-type]
    exporter.collect()
    return exporter.metrics_text


def scheduler_page(metrics: Metrics) -> bytes:
    """Everything a little more each time, since rates need a change."""
    metrics.algorithm.observe(0.01)
    metrics.sli.observe(3.0)
    metrics.victims.inc()
    metrics.ledger.lost_gpu_seconds.labels("q", "Priority").inc(60)
    quotas = "".join(KUEUE.format(name=name, value=8) for name in ("resource_usage", "nominal_quota"))
    return metrics.text() + quotas.encode()


def live_metrics() -> Metrics:
    """Of a cluster in which something waits and something is stranded."""
    metrics = Metrics()
    waits = pod("waits", 1, node_selector={"nvidia.com/gpu.product": A100}, created="2024-10-03T23:00:00Z")
    objects = [gpu_node("h", 4), gpu_node("a", 1, model=A100), pod("runs", 1, on="a"), waits]
    snapshot = snapshot_objects(objects, Settings(), NOW)
    plan, advisor, _ = IsolatingEngine(engine_config(Settings())).decide_without_explanations(snapshot, NOW)
    LedgerRecorder(metrics.ledger).observe(snapshot, plan, advisor, NOW)
    return metrics


@contextmanager
def scraped() -> Iterator[int]:
    """A server with both pages; its port."""
    node, metrics = exporter_page(), live_metrics()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = node if self.path.startswith("/node") else scheduler_page(metrics)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    groups = [{**group, "interval": "1s"} for group in rule_groups()]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    (port,) = free_ports(1)
    with scraped() as pages:
        jobs = [
            {
                "job_name": name,
                "metrics_path": f"/{name}",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{pages}"]}],
            }
            for name in ("node", "scheduler")
        ]
        config = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        command = [program("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"]
        service = Service("prometheus", command, folder / "log", lambda: is_ready(port))
        service.start()
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            service.stop()


def test_every_query_is_answered(prometheus: Prometheus) -> None:
    queries = [expr.replace("$__rate_interval", "1m") for panel in PANELS for expr in panel.queries.values()]
    until(lambda: all(prometheus.query(query) for query in queries), 30, "every panel has data")
    states = prometheus.query("sum(windlass_gpus)")
    assert [sample.value for sample in states] == [5.0], "the states add up to all GPUs"


def test_it_imports_anywhere_and_reads_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(cli, ["install", "monitoring", "-o", "dashboard"], "windlass") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == dashboard()
    panels = printed["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in (panel, *panel["targets"]):
            assert target["datasource"]["uid"] == "${datasource}"
        assert all(target["legendFormat"] for target in panel["targets"])
