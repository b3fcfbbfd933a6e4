"""Where `status`, `top` and `usage` look: a dump or the live cluster for the objects, a Prometheus for measurements.

Without a Prometheus, GPUs that pods hold are unmeasured, and the output says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import msgspec

from windlass.cli.cluster_option import cluster_options
from windlass.cli.config_option import config_option, resolve_configuration
from windlass.cli.output import print_note
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.model.configuration import Settings
    from windlass.telemetry.observation import Observation
    from windlass.telemetry.prometheus import Prometheus

Command = TypeVar("Command", bound=Callable[..., Any])
NOT_MEASURED = "what held GPUs do is not measured: name a Prometheus with --prometheus"


class Source(NamedTuple):
    """The command line, as far as these commands share it."""

    dump: Path | None
    kubeconfig: str
    context: str
    config: Path | None
    prometheus: str
    token_file: Path | None
    now: str

    def open_prometheus(self) -> Prometheus | None:
        return open_prometheus(self.prometheus, self.token_file)


def open_prometheus(url: str, token_file: Path | None) -> Prometheus | None:
    from windlass.telemetry.prometheus import Prometheus

    if not url:
        if token_file is not None:
            raise click.UsageError("--prometheus-token-file is for --prometheus")
        return None
    try:
        token = token_file.read_text().strip() if token_file is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", file=str(token_file)) from None
    return Prometheus(url, token)


def observation_options(command: Command) -> Command:
    for option in (
        click.option("--now", default="", help="As of this RFC 3339 time. [default: now, or the dump's newest]"),
        click.option(
            "--prometheus-token-file",
            "token_file",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="A bearer token for it.",
        ),
        click.option(
            "--prometheus",
            default="",
            metavar="URL",
            help="A Prometheus with the metrics of dcgm-exporter or of Windlass' own exporter.",
        ),
        config_option,
    ):
        command = option(command)
    return cluster_options(command)


def take_source(given: dict[str, Any]) -> Source:
    """Takes the shared options out of `given`."""
    names = ("from_", "kubeconfig", "kube_context", "config", "prometheus", "token_file", "now")
    return Source(*(given.pop(name) for name in names))


def observe(source: Source) -> tuple[Observation, Settings]:
    """The ledger now. Notes about the input go to stderr."""
    from windlass.cli.plan_schedule import decision_time, load_live_cluster, scheduler_names
    from windlass.dump.cluster_loader import load_cluster
    from windlass.telemetry.observation import observe_objects
    from windlass.telemetry.prometheus_samples import read_samples

    if source.dump is not None and (source.kubeconfig or source.context):
        raise click.UsageError("--from is a dump instead of the live cluster: leave --kubeconfig and --context out")
    prometheus = source.open_prometheus()
    if source.dump is not None:
        loaded = load_cluster(source.dump, (), namespace="default", keep_going=True)
    else:
        loaded = load_live_cluster(source.kubeconfig, source.context)
    now = decision_time(source.now, loaded)
    configuration = resolve_configuration(source.config, loaded.published_configurations, scheduler_names(loaded))
    for text in (*configuration.used.lines, *map(str, loaded.problems), *loaded.notes):
        print_note(text)
    samples = read_samples(prometheus, now if source.dump is not None or source.now else None) if prometheus else {}
    observation = observe_objects(loaded.objects, configuration.settings, now, samples)
    for text in observation.snapshot.notes:
        print_note(text)
    if prometheus is None and any(share.holder for share in observation.ledger.shares):
        print_note(NOT_MEASURED)
    return msgspec.structs.replace(observation, frozen=loaded.frozen), configuration.settings


def settings_of(source: Source) -> Settings:
    """The settings of `--config`, else the defaults: for commands that read no cluster."""
    return resolve_configuration(source.config).settings


def current_time(source: Source) -> int:
    from windlass.model.times import parse_timestamp

    if not source.now:
        return int(time.time())
    seconds = parse_timestamp(source.now)
    if not seconds:
        raise click.BadParameter(f"'{source.now}' is not a time such as 2026-01-01T12:00:00Z", param_hint="--now")
    return seconds
