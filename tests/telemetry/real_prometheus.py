"""Debian's Prometheus with a past: samples in OpenMetrics text become its blocks, then it serves them."""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.service import Service, free_ports

Series = tuple[str, Mapping[str, str], Iterable[tuple[int, float]]]
"""Name, labels, and (time, value)."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        unavailable(f"Debian's {name} is missing: run tools/test-packages")
    assert found is not None
    return found


@contextmanager
def prometheus_with(folder: Path, series: Iterable[Series], rules: Path | None = None) -> Iterator[str]:
    """Its URL."""
    text, data = folder / "past.om", folder / "data"
    text.write_text("".join(_lines(series)) + "# EOF\n")
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    config = folder / "prometheus.yml"
    config.write_text(f"rule_files: [{rules}]\n" if rules is not None else "global: {}\n")
    (port,) = free_ports(1)
    options = [f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"]
    options.append("--storage.tsdb.retention.time=100y")
    service = Service("prometheus", [program("prometheus"), *options], folder / "log", lambda: is_ready(port))
    service.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        service.stop()


def _lines(series: Iterable[Series]) -> Iterator[str]:
    by_name: dict[str, list[Series]] = {}
    for found in series:
        by_name.setdefault(found[0], []).append(found)
    for name, entries in by_name.items():
        yield f"# TYPE {name} gauge\n"
        for _, labels, samples in entries:
            inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
            yield from (f"{name}{{{inside}}} {value} {at}\n" for at, value in samples)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
