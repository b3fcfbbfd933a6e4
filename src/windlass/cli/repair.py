"""`windlass repair` and `windlass quarantine`: what is being healed, and a person's word on it."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import click

from windlass.cli.operator_client import command, create, get_object, list_objects, run
from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import InputError, WindlassError

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.model.unstructured import Unstructured
    from windlass.operator.kinds.gpu_repair import GPURepair

EXAMPLES = """\b
Examples:
  windlass repair list
  windlass repair show gpu-7-3-1
  windlass repair hold gpu-7-3-1 --reason "a technician is there"
  windlass repair return gpu-7-3-1
"""
QUARANTINE_EXAMPLES = """\b
Examples:
  windlass quarantine gpu-7:3 --reason "wrong results in team-a/train"     one GPU
  windlass quarantine gpu-7 --reason "fan noise"                           the whole node
  windlass repair return NAME                                              back again, once it is validated
"""


@click.group("repair", epilog=EXAMPLES)
def repair() -> None:
    """GPUs and nodes that are being healed or wait for a person."""


@repair.command("list")
@click.option("--all", "also_ended", is_flag=True, help="Those too that are over.")
@kubeconfig_options
@output_option("table", "json", "yaml")
def list_repairs(also_ended: bool, kubeconfig: str, context: str, output: str) -> None:
    """All repairs that are not over."""
    found = run((kubeconfig, context), lambda client: list_objects(client, "GPURepair"))
    shown = [item for item in found if also_ended or item.is_open]
    if output != "table":
        import msgspec

        items = [{"name": item.name, **msgspec.to_builtins(item)} for item in shown]
        print_document(windlass_document("GPURepairList", items=items), output)
        return
    print_table(plain_table(("NAME", "GPU", "FAULT", "PHASE", "REASON", "SINCE", "MESSAGE"), map(_row, shown)))


@repair.command("show")
@click.argument("name")
@kubeconfig_options
@output_option("text", "json", "yaml")
def show(name: str, kubeconfig: str, context: str, output: str) -> None:
    """One repair with every attempt."""
    found: GPURepair = run((kubeconfig, context), lambda client: get_object(client, "GPURepair", name))
    if output != "text":
        import msgspec

        print_document(windlass_document("GPURepairReport", name=name, repair=msgspec.to_builtins(found)), output)
        return
    for line in repair_lines(found):
        click.echo(line)


def repair_lines(found: GPURepair) -> list[str]:
    status = found.status
    until = f" (until {status.deadline})" if status.deadline else ""
    lines = [f"repair {found.device_name} {status.phase}{until}: {status.message or status.reason}"]
    by = f", asked for by {found.spec.requested_by}" if found.spec.requested_by else ""
    lines.append(f"  opened {status.opened} for {found.spec.fault or 'no fault'}{by}")
    lines += [
        f"  {attempt.at} {attempt.rung} {attempt.result} {attempt.message}".rstrip() for attempt in status.attempts
    ]
    if status.ticket.state:
        lines.append(f"  ticket {status.ticket.state} {status.ticket.reference}".rstrip())
    return lines


def _row(found: GPURepair) -> tuple[str, ...]:
    status = found.status
    return found.name, found.device_name, found.spec.fault, status.phase, status.reason, status.since, status.message


def _verb(name: str, verb: str, summary: str) -> None:
    @repair.command(name, help=summary)
    @click.argument("repair_name", metavar="NAME")
    @default_option("--reason", default="", help="Kept in the repair.", show_default=False)
    @kubeconfig_options
    def act(repair_name: str, reason: str, kubeconfig: str, context: str) -> None:
        async def use(client: KubeClient) -> None:
            found: GPURepair = await get_object(client, "GPURepair", repair_name)
            if not found.is_open:
                raise WindlassError(f"repair {repair_name} is over since {found.status.ended}")
            if verb == "Retry" and found.status.phase not in ("Held", "Ticket"):
                raise WindlassError(f"repair {repair_name} is {found.status.phase}, and goes on by itself")
            await command(client, "GPURepair", repair_name, verb, reason)

        run((kubeconfig, context), use)
        click.echo(f"repair {repair_name}: {name} is asked for")


_verb("hold", "Hold", "Do nothing more; the GPU stays out of service.")
_verb("retry", "Retry", "Begin again with the first rung.")
_verb("return", "Return", "Validate it, and put it back into service.")


@click.command("quarantine", epilog=QUARANTINE_EXAMPLES)
@click.argument("target", metavar="NODE[:GPU]")
@click.option("--reason", required=True, help="Why; kept in the repair.")
@kubeconfig_options
def quarantine(target: str, reason: str, kubeconfig: str, context: str) -> None:
    """Take a GPU, or a whole node, out of service and drain it; `windlass repair return` brings it back."""
    node, colon, index = target.partition(":")
    if not node or (colon and not (index.isascii() and index.isdigit() and int(index) < 256)):
        raise InputError(f"{target[:80]!r} is not a node or a GPU", remedy="write NODE, or NODE:3")
    device = int(index) if colon else -1
    name = f"{node[:200]}-q-{hashlib.sha256(f'{target}{time.time_ns()}'.encode()).hexdigest()[:8]}"

    async def use(client: KubeClient) -> None:
        from windlass.cli.freeze import user_name
        from windlass.model.names.windlass import OPERATOR_API_VERSION

        known = {item.name: item for item in await list_objects(client, "GPUNode")}
        if node not in known or known[node].status.phase == "NotOurs":
            raise InputError(f"no GPUStack looks after node {node!r}", remedy="windlass stack status")
        if colon:
            _check_index(await client.get(f"/api/v1/nodes/{node}"), device)
        spec = {"node": node, "device": device, "fault": reason, "requestedBy": await user_name(client)}
        tree = {"apiVersion": OPERATOR_API_VERSION, "kind": "GPURepair", "metadata": {"name": name}, "spec": spec}
        await create(client, "GPURepair", tree)

    run((kubeconfig, context), use)
    click.echo(f"{target} is taken out of service by repair {name} (windlass repair return {name})")


def _check_index(tree: Unstructured, index: int) -> None:
    """Refuses an index that the node doesn't have. Of a node that advertises no GPUs now, nobody knows."""
    from windlass.model.codec import decode_object
    from windlass.model.device import node_devices
    from windlass.model.names.windlass import UNHEALTHY_DEVICES_ANNOTATION
    from windlass.model.node import Node
    from windlass.model.requests import node_quantities

    tree.get("metadata", {}).get("annotations", {}).pop(UNHEALTHY_DEVICES_ANNOTATION, None)
    node = decode_object({**tree, "apiVersion": "v1", "kind": "Node"})
    assert isinstance(node, Node)
    capacity, allocatable = node_quantities(node)
    known = [device.index for device in node_devices(node, allocatable, capacity)]
    if known and index not in known:
        raise InputError(f"node {node.name} has no GPU {index}", remedy=f"its GPUs are {', '.join(map(str, known))}")
