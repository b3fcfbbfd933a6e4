"""`windlass trends`: jobs that idle, spin, leak memory, or wait for one slow GPU, out of a Prometheus."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.observation_source import Source, current_time
from windlass.cli.output import output_option, plain_table, print_document, print_note, print_table, windlass_document
from windlass.model.times import format_timestamp

EXAMPLES = """\b
Examples:
  windlass trends --prometheus http://prometheus:9090
  windlass trends --prometheus http://prometheus:9090 -n vision -o json
"""


@click.command("trends", epilog=EXAMPLES)
@click.option(
    "--prometheus",
    required=True,
    metavar="URL",
    help="A Prometheus with the metrics of dcgm-exporter or of Windlass' own exporter.",
)
@click.option(
    "--prometheus-token-file",
    "token_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A bearer token for it.",
)
@click.option("-n", "--namespace", default="", help="Only this namespace. [default: all]")
@click.option("--now", default="", help="As of this RFC 3339 time. [default: now]")
@output_option("table", "json")
def trends(prometheus: str, token_file: Path | None, namespace: str, now: str, output: str) -> int:
    """Jobs whose GPUs did nothing for half an hour and more, spin, leak memory, or wait for one slow GPU.

    Exit code 1 if there are any. Nothing is stopped. `windlass node trends` looks at the GPUs themselves: cooling and
    errors.
    """
    from windlass.telemetry.prometheus_trends import find_job_trends

    source = Source(None, "", "", None, prometheus, token_file, now)
    server, at = source.open_prometheus(), current_time(source) if now else int(time.time())
    assert server is not None  # its URL is required
    found = find_job_trends(server, at, namespace)
    if output == "json":
        document = windlass_document("Trends", now=format_timestamp(at), findings=msgspec.to_builtins(found))
        print_document(document, output)
    elif found:
        rows = [(entry.namespace, entry.job, entry.kind, str(entry.gpus), entry.text) for entry in found]
        print_table(plain_table(("NAMESPACE", "JOB", "KIND", "GPUS", "WHAT"), rows))
    else:
        print_note("no job idles, spins, leaks memory or waits for a slow GPU")
    return EXIT_FINDINGS if found else EXIT_DONE
