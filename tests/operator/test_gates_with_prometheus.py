"""The operator's gates with a real Prometheus that scrapes an exporter: good, degrading, silent and flapping nodes.

One embedded cluster, one Prometheus and one change after the other. What the exporter says of a node follows the driver
that the node runs, as a service on it would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.operator.test_embedded import CHANGES, OLD, Cluster, brought_up, cluster
from tests.real_cluster.service import Service, free_ports
from tests.telemetry.real_prometheus import is_ready, program

from windlass.embedded.runtime.simulated_drivers import DriverBehaviour

GATE = {"name": "p99", "family": "slo", "query": 'p99_seconds{node=~"$nodes"}', "maxRatio": 1.2}
SCRAPE = "300ms"


class Exporter:
    """Answers with one number a node; None: nothing is said of that node."""

    def __init__(self) -> None:
        self.value: Callable[[str], float | None] = lambda node: 0.2
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                names = [f"h100-{number}" for number in range(4)]
                values = ((name, exporter.value(name)) for name in names)
                lines = [f'p99_seconds{{node="{name}"}} {value}\n' for name, value in values if value is not None]
                self.send_response(200)
                self.end_headers()
                self.wfile.write("".join(lines).encode())

            def log_message(self, format: str, *args: object) -> None:
                """Every scrape would be a line."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@contextmanager
def scraped(folder: Path) -> Iterator[tuple[Exporter, str]]:
    """The exporter, and the URL of a Prometheus that scrapes it."""
    exporter = Exporter()
    thread = threading.Thread(target=exporter.server.serve_forever, daemon=True)
    thread.start()
    (port,) = free_ports(1)
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {SCRAPE}, scrape_timeout: {SCRAPE}}}\n"
        f"scrape_configs: [{{job_name: service, static_configs: [{{targets: ['{exporter.address}']}}]}}]\n"
    )
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    service = Service("prometheus", [program("prometheus"), *options], folder / "log", lambda: is_ready(port))
    service.start()
    try:
        yield exporter, f"http://127.0.0.1:{port}"
    finally:
        service.stop()
        exporter.server.shutdown()
        thread.join()
        exporter.server.server_close()


def runs(made: Cluster, version: str) -> set[str]:
    label = "nvidia.com/cuda.driver-version.full"
    return {node["metadata"]["name"] for node in made.nodes() if node["metadata"]["labels"].get(label) == version}


def start(made: Cluster, version: str, bake: str) -> str:
    assert made.embedded.simulated_nodes is not None
    made.embedded.simulated_nodes.drivers.behaviours[version] = DriverBehaviour(load_seconds=0.2)
    name = f"to-{version.replace('.', '-')}"
    waves = [{"nodes": 1, "bake": bake}, {"nodes": "100%", "bake": "1s"}]
    spec = {"stack": "h100", "driver": {"version": version}, "waves": waves, "gates": [GATE]}
    made.client.create(CHANGES, "", {"metadata": {"name": name}, "spec": spec})
    return name


def verdicts(made: Cluster, name: str) -> dict[str, str]:
    status = made.client.get(CHANGES, "", name)["status"]
    return {gate["name"]: gate["verdict"] for gate in status.get("gates", ())}


@pytest.mark.asyncio
async def test_the_operator_decides_by_what_prometheus_has_scraped(tmp_path: Path) -> None:
    with scraped(tmp_path) as (exporter, url):
        async with cluster() as made:
            await brought_up(made, prometheus=url)

            # Degrading: fine at first, slower and slower on the canary. It goes back before its bake is over.
            began = time.monotonic()
            slow = start(made, "1.1", bake="10m")
            exporter.value = lambda node: 0.2 + ((time.monotonic() - began) / 20 if node in runs(made, "1.1") else 0.0)
            await made.until(lambda: made.phase(slow) == "RolledBack", "it is too slow")
            assert "gate p99: " in made.message(slow)
            assert "is above 1.2" in made.message(slow)
            assert runs(made, OLD) == {f"h100-{number}" for number in range(4)}

            # Flapping: every other second the canary is five times slower. One bad look is enough.
            flapping = start(made, "2.1", bake="10m")
            exporter.value = lambda node: 1.0 if node in runs(made, "2.1") and int(time.monotonic()) % 2 else 0.2
            await made.until(lambda: made.phase(flapping) == "RolledBack", "it flaps")
            assert "the ratio 5 is above 1.2" in made.message(flapping)

            # Silent: the service on the canary says nothing. That holds the change; when data comes, it goes on.
            silent = start(made, "3.1", bake="3s")
            exporter.value = lambda node: None if node in runs(made, "3.1") else 0.2
            await made.until(lambda: made.phase(silent) == "Held", "no data never passes")
            assert verdicts(made, silent)["p99"] == "NoData"
            assert "gate p99: no data of 1 of 1 changed nodes" in made.message(silent)
            assert len(runs(made, "3.1")) == 1
            exporter.value = lambda node: 0.2
            await made.until(lambda: made.phase(silent) == "Succeeded", "good data lets it go on")
            assert len(runs(made, "3.1")) == 4
