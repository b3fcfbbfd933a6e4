"""`windlass stack adopt` and `windlass stack release`: nodes of NVIDIA's operator under a GPUStack, and back again.

Both say what they would do, and do it with `--yes`. `operator.adoption` decides what an adoption is;
the operator takes parts over and gives them back; `release --abandon` does that without it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.operator_client import create, patch_spec, run
from windlass.cli.output import plain_table, print_note, print_table
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import InputError
from windlass.model.times import parse_duration

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.operator.adoption import Adoption
    from windlass.operator.observed import Observed

TAKEABLE = ("plugin", "labels", "exporter", "mig")
ADOPT_EXAMPLES = """\b
Examples:
  windlass stack adopt h100 --nodes pool=h100                  what would be made, and what differs
  windlass stack adopt h100 --nodes pool=h100 --keep mig --yes
"""
RELEASE_EXAMPLES = """\b
Examples:
  windlass stack release h100 --yes
  windlass stack release h100 --abandon --yes    the operator is dead or gone
"""


@click.command("adopt", epilog=ADOPT_EXAMPLES)
@click.argument("name")
@click.option("--nodes", "selector", required=True, metavar="KEY=VALUE,…", help="Labels of the nodes.")
@click.option(
    "--keep",
    multiple=True,
    type=click.Choice(TAKEABLE),
    help="A part that stays with NVIDIA's operator; may be repeated.",
)
@click.option("--yes", is_flag=True, help="Create the GPUStack.")
@kubeconfig_options
def adopt(name: str, selector: str, keep: tuple[str, ...], yes: bool, kubeconfig: str, context: str) -> int:
    """Make a GPUStack of nodes that NVIDIA's operator looks after.

    Without `--yes` nothing is written. Driver and container runtime stay with NVIDIA's operator; the other parts pass
    to the node agent, node by node within maxUnavailable, while pods run on. Exit code 1 if something forbids it.
    """
    labels = _parse_selector(selector)
    take = [step for step in TAKEABLE if step not in keep]

    async def use(client: KubeClient) -> tuple[Adoption, bool]:
        from windlass.operator.adoption import survey

        observed, policies = await _read(client)
        found = survey(name, labels, take, observed, policies)
        if not yes or found.obstacles:
            return found, False
        if any(stack.name == name for stack in observed.stacks):
            await patch_spec(client, "GPUStack", name, found.stack["spec"])
        else:
            await create(client, "GPUStack", found.stack)
        return found, True

    found, is_written = run((kubeconfig, context), use)
    _show(found)
    if is_written:
        print_note(f"GPUStack {name} is written; follow it with: windlass stack status")
    elif not found.obstacles:
        print_note("nothing was written (--yes writes the GPUStack)")
    return 1 if found.obstacles else 0


def _parse_selector(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not key or not sign for key, sign, _ in pairs):
        raise InputError(f"{text!r} is not a list of labels", remedy="write --nodes pool=h100")
    return {key: value for key, _, value in pairs}


async def _read(client: KubeClient) -> tuple[Observed, list[dict[str, Any]]]:
    from windlass.cli.plan_change import live_trees
    from windlass.kube.errors import NotFound
    from windlass.operator.dump_view import observed_from
    from windlass.operator.resources import CLUSTER_POLICIES

    observed = observed_from(await live_trees(client))
    try:
        policies = (await client.get(CLUSTER_POLICIES.collection))["items"] or []
    except NotFound:
        policies = []
    return observed, policies


def _show(found: Adoption) -> None:
    from windlass.cli.install import to_yaml

    click.echo(to_yaml([found.stack]), nl=False)
    rows = ((part.step, "passes" if part.passes else "stays", part.message) for part in found.parts)
    print_table(plain_table(("PART", "", "MESSAGE"), rows))
    for line in found.differences:
        print_note(f"differs: {line}")
    for line in found.obstacles:
        print_note(f"not possible: {line}")


@click.command("release", epilog=RELEASE_EXAMPLES)
@click.argument("name")
@click.option("--abandon", is_flag=True, help="Undo everything from here, without the operator.")
@click.option("--yes", is_flag=True, help="Do it.")
@default_option("--timeout", default="30m", help="How long to wait for the operator to give all parts back.")
@kubeconfig_options
def release(name: str, abandon: bool, yes: bool, timeout: str, kubeconfig: str, context: str) -> int:
    """Give the nodes of a stack back to NVIDIA's operator, and remove the stack with all that is ours on its nodes.

    Drivers that a FleetChange has brought stay, with the label that chooses them. Without `--yes` nothing is written.
    Exit code 1 if a node could not be given back.
    """
    seconds = parse_duration(timeout)

    async def use(client: KubeClient) -> int:
        from windlass.cli.stack_release import Release

        found = await Release.read(client, name)
        for line in found.lines(abandon=abandon):
            click.echo(line)
        if not yes:
            print_note("nothing was written (--yes does it)")
            return 0
        if not abandon:
            await found.ask_operator(time.monotonic() + seconds)
        return await found.remove_traces()

    return run((kubeconfig, context), use)
