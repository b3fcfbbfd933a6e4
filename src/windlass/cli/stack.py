"""`windlass stack`: what the nodes of each stack run, and why a node is not ready for GPU work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.operator_client import get_object, list_objects, run
from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.scheduler import kubeconfig_options
from windlass.cli.stack_adopt import adopt, release

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.operator.kinds.gpu_node import GPUNode
    from windlass.operator.kinds.gpu_stack import GPUStack

EXAMPLES = """\b
Examples:
  windlass stack status
  windlass stack explain gpu-7
"""


@click.group("stack", epilog=EXAMPLES)
def stack() -> None:
    """GPU stacks: which nodes are ready, and what the others wait for."""


stack.add_command(adopt)
stack.add_command(release)


@stack.command("status")
@kubeconfig_options
@output_option("table", "json", "yaml")
def status(kubeconfig: str, context: str, output: str) -> int:
    """All stacks, and the nodes that are not ready. Exit code 1 if there are any."""

    async def use(client: KubeClient) -> tuple[list[GPUStack], list[GPUNode]]:
        return await list_objects(client, "GPUStack"), await list_objects(client, "GPUNode")

    stacks, nodes = run((kubeconfig, context), use)
    waiting = [node for node in nodes if node.status.phase != "Ready"]
    if output != "table":
        import msgspec

        document = windlass_document(
            "GPUStackReport",
            stacks=[{"name": item.name, **msgspec.to_builtins(item.status)} for item in stacks],
            notReady=[{"name": item.name, **msgspec.to_builtins(item.status)} for item in waiting],
        )
        print_document(document, output)
    else:
        print_table(plain_table(("STACK", "READY", "UNAVAILABLE", "DRIVER", "MIG", "CHANGE"), map(_row, stacks)))
        if waiting:
            rows = ((node.name, node.status.phase, node.status.reason, node.status.message) for node in waiting)
            print_table(plain_table(("NODE", "PHASE", "REASON", "MESSAGE"), rows))
    return 1 if waiting else 0


@stack.command("explain")
@click.argument("node")
@kubeconfig_options
def explain(node: str, kubeconfig: str, context: str) -> int:
    """Every step of one node: its owner, state, reason, deadline, and who must do what. Exit code 1 if not ready."""
    found: GPUNode = run((kubeconfig, context), lambda client: get_object(client, "GPUNode", node))
    for line in node_lines(found):
        click.echo(line)
    return 0 if found.status.phase == "Ready" else 1


def node_lines(found: GPUNode) -> list[str]:
    from windlass.operator.kinds.reasons import REASONS, Reason

    status = found.status
    lines = [f"{found.name} {status.phase} since {status.since}" + (f": {status.message}" if status.message else "")]
    for step in status.steps:
        until = f" (until {step.deadline})" if step.deadline else ""
        lines.append(f"  {step.name:<10}{step.state:<9}{step.owner:<13}{step.message}{until}")
        if step.state not in ("Done", "NotOurs") and step.reason in set(Reason):
            info = REASONS[Reason(step.reason)]
            then = f"; then {info.after}" if info.after else ""
            lines.append(f"  {'':<10}{step.reason}: {info.remedy}{then}")
    lines += [
        f"  GPU {device.index} {device.state} {device.fault}" + (f" (repair {device.repair})" if device.repair else "")
        for device in status.devices
    ]
    if status.change is not None and not status.change.result:
        lines.append(f"  change {status.change.change}: {status.change.reason} {status.change.message}".rstrip())
    return lines


def _row(found: GPUStack) -> tuple[str, ...]:
    status = found.status
    ready = f"{status.ready}/{status.nodes}"
    out = f"{status.unavailable} (max {status.max_unavailable})"
    return found.name, ready, out, status.current.driver, status.current.mig, status.change
