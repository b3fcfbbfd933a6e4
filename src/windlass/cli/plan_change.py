"""`windlass plan change`: which nodes a fleet change takes, wave by wave, how long it lasts, and which pods it evicts.

The operator's own decisions, played ahead on a dump or on the live cluster (`operator.forecast`). Nothing is executed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.cluster_option import cluster_options, run_with_client
from windlass.cli.output import (
    counted,
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.cli.parameters import default_option
from windlass.model.errors import InputError
from windlass.model.times import format_duration, parse_duration

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.operator.forecast import Forecast
    from windlass.operator.kinds.fleet_change import FleetChange

EXAMPLES = """\b
Examples:
  windlass plan change -f r590.yaml
  windlass plan change -f r590.yaml --from dump.yaml --node-time 12m
"""
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("change", epilog=EXAMPLES)
@click.option("-f", "--filename", type=FILE, required=True, help="A FleetChange; a GPUStack in the same file is added.")
@cluster_options
@default_option("--node-time", default="5m", help="How long a node takes to come up with the new version.")
@output_option("table", "json", "yaml")
def change(filename: Path, from_: Path | None, kubeconfig: str, kube_context: str, node_time: str, output: str) -> int:
    """Which nodes a fleet change would take, in which order and when, and which pods would be evicted.

    Gates are taken to pass, and every node to come up. Exit code 1 if the change would be refused or could not end.
    """
    from windlass.operator.dump_view import observed_from
    from windlass.operator.forecast import forecast

    seconds = parse_duration(node_time)
    wanted = read_change(filename)
    trees = _dump_trees(from_) if from_ is not None else run_with_client(kubeconfig, kube_context, live_trees)
    trees += [tree for tree in _file_trees(filename) if tree.get("kind") == "GPUStack"]
    observed = observed_from(trees)
    for broken in observed.invalid:
        print_note(f"{broken.kind} {broken.name} is left out: {broken.message}")
    if wanted.spec.stack not in {stack.name for stack in observed.stacks}:
        names = ", ".join(sorted(stack.name for stack in observed.stacks)) or "none"
        raise InputError(f"there is no GPUStack {wanted.spec.stack!r}", path="spec.stack", remedy=f"there are: {names}")
    found = forecast(observed, wanted, _moment(from_), seconds)
    if output != "table":
        import msgspec

        print_document(windlass_document("FleetChangeForecast", **msgspec.to_builtins(found)), output)
    else:
        _show(found, wanted)
    return 0 if found.phase == "Succeeded" else 1


def _show(found: Forecast, wanted: FleetChange) -> None:
    rows = (
        (str(taken.wave + 1), taken.node, format_duration(taken.seconds), str(taken.gpus), ", ".join(taken.evicted))
        for taken in found.taken
    )
    print_table(plain_table(("WAVE", "NODE", "AFTER", "GPUS", "EVICTED PODS"), rows))
    gpus = sum(taken.gpus for taken in found.taken)
    pods = sum(len(taken.evicted) for taken in found.taken)
    evicted = f"{counted(pods, 'pod')} with {counted(gpus, 'GPU')} {'is' if pods == 1 else 'are'} evicted"
    print_note(
        f"{found.phase} after {format_duration(found.seconds)}: {counted(len(found.taken), 'node')}, at most "
        f"{found.most_unavailable} at once; {evicted}. {found.message}"
    )
    for gate in wanted.spec.gates:
        print_note(f"gate {gate.name} ({gate.family}) is taken to pass: {gate.query}")
    if found.not_ready:
        print_note(f"left out, since they are not ready for GPU work: {', '.join(found.not_ready[:16])}")


def read_change(file: Path) -> FleetChange:
    """The one FleetChange of a file."""
    from windlass.operator.kinds.codec import decode_operator_object

    found = [tree for tree in _file_trees(file) if tree.get("kind") == "FleetChange"]
    if len(found) != 1:
        raise InputError(f"expected one FleetChange, found {len(found)}", file=str(file), remedy="one change a file")
    try:
        obj = decode_operator_object(found[0])
    except InputError as error:
        raise error.with_context(file=str(file)) from None
    return obj  # type: ignore[return-value]  # by its kind


def _file_trees(file: Path) -> list[dict[str, Any]]:
    from windlass.dump.raw_objects import read_raw

    return [obj.data for obj in read_raw(file).objects]


def _dump_trees(dump: Path) -> list[dict[str, Any]]:
    files = (
        sorted(path for path in dump.rglob("*") if path.suffix in (".json", ".yaml", ".yml"))
        if dump.is_dir()
        else [dump]
    )
    return [tree for file in files for tree in _file_trees(file)]


async def live_trees(client: KubeClient) -> list[dict[str, Any]]:
    from windlass.kube.discovery import discover
    from windlass.operator.resources import WATCHED_BY_OPERATOR

    trees = []
    for resource in await discover(client, WATCHED_BY_OPERATOR):
        items = (await client.get(resource.collection))["items"] or ()
        trees += [{**item, "apiVersion": resource.api_version, "kind": resource.kind} for item in items]
    return trees


def _moment(dump: Path | None) -> int:
    if dump is None:
        return int(time.time())
    from windlass.dump.files import newest_timestamp

    return newest_timestamp(dump) or int(time.time())
