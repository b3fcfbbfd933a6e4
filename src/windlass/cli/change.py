"""`windlass change`: start a fleet change, watch it, and steer it. The operator does the work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.operator_client import command, create, get_object, list_objects, patch_spec, run
from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.cli.plan_change import change as plan_command
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import WindlassError

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.operator.kinds.fleet_change import FleetChange

EXAMPLES = """\b
Examples:
  windlass change plan -f r590.yaml                  which nodes, in which order, and whom that evicts
  windlass change start -f r590.yaml
  windlass change status r590 --watch
  windlass change pause r590; windlass change resume r590
  windlass change promote r590 --reason "seen enough"
  windlass change rollback r590 --reason "slow loads"

Exit codes: 0 done, 1 not there yet or "no", 2 bad input, 3 the cluster can't be read.
"""
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
ALLOWED: dict[str, tuple[str, ...]] = {
    "Promote": ("Baking", "Held"),
    "Abort": ("Pending", "Progressing", "Baking", "Held", "RollingBack"),
    "Rollback": ("Progressing", "Baking", "Held", "Aborting", "Succeeded", "Aborted", "Failed"),
    "Retry": ("Refused", "RolledBack", "Aborted", "Failed"),
}
"""Phases in which a verb has a meaning."""


@click.group("change", epilog=EXAMPLES)
def change() -> None:
    """Change the driver, the MIG layout or the node agent of a fleet: canary first, gated, with a way back."""


@change.command("start")
@click.option("-f", "--filename", type=FILE, required=True, help="A FleetChange.")
@kubeconfig_options
def start(filename: Path, kubeconfig: str, context: str) -> None:
    """Create the FleetChange of a file; the operator begins it."""
    from windlass.cli.plan_change import read_change
    from windlass.operator.kinds.codec import encode_operator_object

    wanted = read_change(filename)

    async def use(client: KubeClient) -> None:
        await get_object(client, "GPUStack", wanted.spec.stack)
        for other in await list_objects(client, "FleetChange"):
            if other.spec.stack == wanted.spec.stack and other.is_unfinished:
                raise WindlassError(
                    f"change {other.name} of stack {wanted.spec.stack} is unfinished ({other.status.phase}): "
                    "end it first (windlass change abort, or rollback)"
                )
        await create(client, "FleetChange", encode_operator_object(wanted))

    run((kubeconfig, context), use)
    click.echo(f"change {wanted.name} is created (windlass change status {wanted.name} --watch)")


@change.command("status")
@click.argument("name", required=False, default="")
@click.option("--watch", is_flag=True, help="Until it has ended, a line for each step.")
@kubeconfig_options
@output_option("table", "json", "yaml")
def status(name: str, watch: bool, kubeconfig: str, context: str, output: str) -> int:
    """Where changes are; with a name, one of them with its gates and nodes. Exit code 1 unless it has succeeded."""
    if watch and not name:
        raise click.UsageError("--watch needs the name of a change")
    return run((kubeconfig, context), lambda client: _status(client, name, watch, output))


async def _status(client: KubeClient, name: str, watch: bool, output: str) -> int:
    import asyncio

    import msgspec

    if not name:
        found = await list_objects(client, "FleetChange")
        if output != "table":
            items = [{"name": item.name, **msgspec.to_builtins(item.status)} for item in found]
            print_document(windlass_document("FleetChangeList", items=items), output)
        else:
            print_table(
                plain_table(("NAME", "STACK", "PHASE", "WAVE", "CHANGED", "REASON", "MESSAGE"), map(_row, found))
            )
        return 0
    last = ""
    while True:
        found_change: FleetChange = await get_object(client, "FleetChange", name)
        if output != "table":
            document = windlass_document(
                "FleetChangeStatus", name=name, status=msgspec.to_builtins(found_change.status)
            )
            print_document(document, output)
            return 0 if found_change.status.phase == "Succeeded" else 1
        text = "\n".join(change_lines(found_change))
        if text != last:
            click.echo(text if not last else f"{time.strftime('%H:%M:%S')} {change_lines(found_change)[0]}")
            last = text
        if not watch or found_change.is_final:
            return 0 if found_change.status.phase == "Succeeded" else 1
        await asyncio.sleep(1.0)


def change_lines(found: FleetChange) -> list[str]:
    """The headline, then gates and nodes that are not on the wanted value."""
    status = found.status
    until = f" (until {status.deadline})" if status.deadline else ""
    lines = [f"change {found.name} {status.phase}{until}: {status.message or status.reason}"]
    lines.append(
        f"  {status.changed} of {status.nodes} nodes run {status.to}; the way back is {status.from_ or 'none'}"
    )
    lines += [f"  gate {gate.name} {gate.verdict}: {gate.message}" for gate in status.gates]
    if status.stragglers:
        lines.append(f"  not changed: {', '.join(status.stragglers)}")
    return lines


def _row(found: FleetChange) -> tuple[str, ...]:
    status = found.status
    wave = f"{status.wave + 1}/{status.waves}" if status.waves else ""
    counts = f"{status.changed}/{status.nodes}"
    return found.name, found.spec.stack, status.phase, wave, counts, status.reason, status.message


def _verb(name: str, verb: str, summary: str) -> None:
    @change.command(name, help=summary)
    @click.argument("change_name", metavar="NAME")
    @default_option("--reason", default="", help="Kept in the change.", show_default=False)
    @kubeconfig_options
    def act(change_name: str, reason: str, kubeconfig: str, context: str) -> None:
        async def use(client: KubeClient) -> None:
            found: FleetChange = await get_object(client, "FleetChange", change_name)
            if found.status.phase not in ALLOWED[verb]:
                raise WindlassError(
                    f"change {change_name} is {found.status.phase}, and {name} is for {', '.join(ALLOWED[verb])}"
                )
            await command(client, "FleetChange", change_name, verb, reason)

        run((kubeconfig, context), use)
        click.echo(f"change {change_name}: {name} is asked for")


def _pause(name: str, paused: bool, summary: str) -> None:
    @change.command(name, help=summary)
    @click.argument("change_name", metavar="NAME")
    @kubeconfig_options
    def act(change_name: str, kubeconfig: str, context: str) -> None:
        async def use(client: KubeClient) -> None:
            found: FleetChange = await get_object(client, "FleetChange", change_name)
            if found.is_final:
                raise WindlassError(f"change {change_name} has ended: {found.status.phase}")
            await patch_spec(client, "FleetChange", change_name, {"paused": paused})

        run((kubeconfig, context), use)
        click.echo(f"change {change_name}: {name} is asked for")


_pause("pause", True, "Take no further node and begin no further wave; nodes under way are finished.")
_pause("resume", False, "Go on after a pause.")
_verb("promote", "Promote", "End the bake of this wave now, whatever its gates say, and go on.")
_verb("abort", "Abort", "Stop: nodes under way go back, those that are done keep the new version.")
_verb("rollback", "Rollback", "Bring every node back to what it ran before.")
_verb("retry", "Retry", "Begin again after a refusal, a rollback, an abort or a failure.")
change.add_command(plan_command, "plan")
