"""`windlass scheduler`: the live loop on a real cluster, until SIGTERM or Ctrl-C.

Reads the command line into `scheduler.options.SchedulerOptions`; everything else happens in `windlass.scheduler`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass.cli.config_option import config_option, print_configuration, resolve_configuration
from windlass.cli.extras import require_extra
from windlass.cli.parameters import default_option
from windlass.cli.replica_options import replica_options, replica_values, run_until_stopped
from windlass.model.configuration import Settings

EXAMPLES = """\b
Examples:
  windlass scheduler
  windlass scheduler --scheduler-name default-scheduler --node-selector pool=gpu
  windlass scheduler --shadow --context production
"""
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")


class Labels(click.ParamType[dict[str, str]]):
    """`key=value,key=value`."""

    name = "KEY=VALUE,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        labels = {}
        for part in str(value).split(","):
            key, equals, wanted = part.strip().partition("=")
            if not equals or not LABEL.fullmatch(key):
                self.fail(f"'{part}' is not a label such as pool=gpu", param, ctx)
            labels[key] = wanted
        return labels


def kubeconfig_options(command: Any) -> Any:
    """`--kubeconfig` and `--context`, as kubectl has them."""
    command = click.option("--context", default="", help="The kubeconfig's context. [default: the current one]")(
        command
    )
    return click.option("--kubeconfig", default="", help="The kubeconfig. [default: as kubectl finds it]")(command)


@click.command("scheduler", epilog=EXAMPLES)
@kubeconfig_options
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    help="Take pods that name this scheduler; may be repeated. [default: the configuration's, windlass]",
)
@click.option("--node-selector", type=Labels(), help="Use only nodes with these labels. [default: the configuration's]")
@config_option
@click.option(
    "--shadow",
    is_flag=True,
    help="Decide on every pod, write nothing, log decisions and what really happened.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write every event and decision into this folder, for `windlass simulate`.",
)
@click.option(
    "--audit",
    default="",
    metavar="FOLDER|-",
    help="Put every admission and eviction on record, in files of this folder or on stdout; `windlass audit` reads it.",
)
@default_option("--audit-days", type=click.IntRange(1), default=90, help="How long files of the record are kept.")
@default_option("--audit-megabytes", type=click.IntRange(1), default=4096, help="What they may take together.")
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep what every GPU did, and for whom, in this folder: 13 months; `windlass usage` reads it.",
)
@click.option(
    "--prometheus",
    default="",
    metavar="URL",
    help="A Prometheus with the GPUs' metrics, to tell computing GPUs from idle ones in history and metrics.",
)
@click.option(
    "--take-over",
    multiple=True,
    metavar="QUEUE",
    help="Admit this queue (namespace/name, or a ClusterQueue) although Kueue runs; may be repeated.",
)
@replica_options("windlass-scheduler", "/healthz, /readyz and /metrics", api_qps=2000.0)
def scheduler(**given: Any) -> None:
    """Schedule a real cluster: place pods, whole gangs at once, and say why the others wait.

    Runs until SIGTERM or Ctrl-C; every replica may be killed at any moment. Exit code 3 where the cluster can't be
    found at all; a server that is away later is waited for.
    """
    require_extra("scheduler", "windlass scheduler")
    from windlass.kube.client_config import load_client_config
    from windlass.scheduler.audit_log import AuditLogOptions
    from windlass.scheduler.logs import set_up_logs
    from windlass.scheduler.options import SchedulerOptions
    from windlass.scheduler.scheduler import run_scheduler

    replica = replica_values(given)
    settings = _settings(given)
    access = load_client_config(given["kubeconfig"], given["context"])
    options = SchedulerOptions(
        settings=settings,
        shadow=given["shadow"],
        record=given["record"],
        take_over=frozenset(given["take_over"]),
        history=given["history"],
        prometheus=given["prometheus"],
        audit=AuditLogOptions(given["audit"], given["audit_days"], given["audit_megabytes"]),
        **replica,
    )
    set_up_logs(given["log_format"], given["log_level"])
    run_until_stopped(lambda stop: run_scheduler(access, options, stop))


def _settings(given: dict[str, Any]) -> Settings:
    """The configuration, with what the command line says instead."""
    configuration = resolve_configuration(given["config"])
    print_configuration(configuration.used)
    settings = configuration.settings
    return msgspec.structs.replace(
        settings,
        scheduler_names=tuple(given["scheduler_names"]) or settings.scheduler_names,
        node_selector=settings.node_selector if given["node_selector"] is None else given["node_selector"],
    )
