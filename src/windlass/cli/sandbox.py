"""`windlass sandbox`: fail and repair nodes and GPUs of the cluster that `windlass up` runs, through its API server."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.embedded_cluster import embedded_cluster_options, request_embedded_cluster
from windlass.cli.parameters import default_option

EXAMPLES = """\b
Examples:
  windlass sandbox                               what is broken
  windlass sandbox fail node/h100-1
  windlass sandbox fail gpu/h100-0:3 --xid 79
  windlass sandbox heal gpu/h100-0:3
  windlass sandbox heal                          everything
  windlass sandbox driver 590.44.01 --xid 119    what this driver version does wherever it is loaded

The kubeconfig is the one that `windlass up` wrote. Exit codes: 0 done, 2 bad input, 3 no such cluster.
"""
PATH = "/windlass/sandbox"


@click.group(
    "sandbox",
    epilog=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@embedded_cluster_options
@click.pass_context
def sandbox(ctx: click.Context, kubeconfig: str, kube_context: str) -> None:
    """Fail and repair nodes and GPUs of the cluster that `windlass up` runs; without a command, list the faults."""
    ctx.obj = (kubeconfig, kube_context)
    if ctx.invoked_subcommand is None:
        _show(_ask(ctx.obj, "GET"))


@sandbox.command("fail")
@click.argument("target")
@click.option("--xid", type=click.IntRange(1, 999), help="The Xid that the GPU reports. [default: 79]")
@click.pass_obj
def fail(where: tuple[str, str], target: str, xid: int | None) -> None:
    """Stop the heartbeat of node/NAME, or let gpu/NODE:INDEX report an Xid."""
    click.echo(_ask(where, "POST", {"action": "fail", "target": target, "xid": xid})["message"])


@sandbox.command("heal")
@click.argument("target", default="")
@click.pass_obj
def heal(where: tuple[str, str], target: str) -> None:
    """Repair node/NAME or gpu/NODE:INDEX; without a target, everything."""
    click.echo(_ask(where, "POST", {"action": "heal", "target": target})["message"])


@sandbox.command("driver")
@click.argument("version")
@click.option("--xid", type=click.IntRange(1, 999), help="GPU 0 reports it after the driver was loaded.")
@default_option("--after", type=click.FloatRange(0, 86_400), default=5.0, help="Seconds until it does.")
@default_option("--load", type=click.FloatRange(0, 3600), default=2.0, help="Seconds that loading takes.")
@click.option("--broken", is_flag=True, help="It never becomes ready.")
@click.pass_obj
def driver(where: tuple[str, str], version: str, xid: int | None, after: float, load: float, broken: bool) -> None:
    """Decide how a driver version behaves on simulated nodes, to watch a fleet change fail or succeed."""
    body = {"action": "driver", "target": version, "xid": xid, "after": after, "load": load, "broken": broken}
    click.echo(_ask(where, "POST", body)["message"])


def _show(answer: dict[str, Any]) -> None:
    if not answer["items"]:
        click.echo(f"Nothing is broken. {len(answer['nodes'])} simulated nodes: {', '.join(answer['nodes'][:12])}")
    for fault in answer["items"]:
        xid = f"Xid {fault['xid']}: " if fault["xid"] else ""
        click.echo(f"{fault['target']:<24} {xid}{fault['says']}")


def _ask(where: tuple[str, str], method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    return request_embedded_cluster(
        where, method, PATH, body, not_found_message="is not a simulated cluster of `windlass up`"
    )
