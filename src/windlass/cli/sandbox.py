"""`windlass sandbox`: break and mend nodes and GPUs of the cluster that `windlass up` runs, through its HTTPS route."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from windlass.model.errors import ClusterUnreachable, InputError

EXAMPLES = """\b
Examples:
  windlass sandbox                               what is broken
  windlass sandbox fail node/h100-1
  windlass sandbox fail gpu/h100-0:3 --xid 79
  windlass sandbox heal gpu/h100-0:3
  windlass sandbox heal                          everything

The kubeconfig is the one that `windlass up` wrote. Exit codes: 0 done, 2 bad input, 3 no such cluster.
"""
PATH = "/windlass/sandbox"


@click.group(
    "sandbox",
    epilog=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--kubeconfig", default="", help="The kubeconfig. [default: KUBECONFIG, else ~/.windlass/kubeconfig]"
)
@click.option("--context", "kube_context", default="", help="The kubeconfig's context.")
@click.pass_context
def sandbox(ctx: click.Context, kubeconfig: str, kube_context: str) -> None:
    """Break and mend nodes and GPUs of the cluster that `windlass up` runs; without a command, list what is broken."""
    ctx.obj = (kubeconfig, kube_context)
    if ctx.invoked_subcommand is None:
        _show(_ask(ctx.obj, "GET"))


@sandbox.command("fail")
@click.argument("target")
@click.option("--xid", type=click.IntRange(1, 999), help="The Xid that the GPU reports. [default: 79]")
@click.pass_obj
def fail(where: tuple[str, str], target: str, xid: int | None) -> None:
    """Let node/NAME fall silent, or gpu/NODE:INDEX report an Xid."""
    click.echo(_ask(where, "POST", {"action": "fail", "target": target, "xid": xid})["message"])


@sandbox.command("heal")
@click.argument("target", default="")
@click.pass_obj
def heal(where: tuple[str, str], target: str) -> None:
    """Mend node/NAME or gpu/NODE:INDEX; without a target, everything."""
    click.echo(_ask(where, "POST", {"action": "heal", "target": target})["message"])


def _show(answer: dict[str, Any]) -> None:
    if not answer["items"]:
        click.echo(
            f"Nothing is broken. {len(answer['nodes'])} simulated nodes: {', '.join(answer['nodes'][:12])}"
        )
    for each in answer["items"]:
        xid = f"Xid {each['xid']}: " if each["xid"] else ""
        click.echo(f"{each['target']:<24} {xid}{each['says']}")


def _ask(where: tuple[str, str], method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    return asyncio.run(_request(where, method, body))


async def _request(where: tuple[str, str], method: str, body: dict[str, Any] | None) -> dict[str, Any]:
    import aiohttp

    from windlass.kube.access import find_access
    from windlass.kube.tls import tls_context

    own = Path("~/.windlass/kubeconfig").expanduser()
    given = where[0] or ("" if os.environ.get("KUBECONFIG") or not own.is_file() else str(own))
    access = find_access(given, where[1])
    headers = await access.credentials.headers()
    secure = tls_context(access.ca, access.insecure, await access.credentials.identity())
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session,
            session.request(method, access.server + PATH, headers=headers, json=body, ssl=secure) as response,
        ):
            answer: dict[str, Any] = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise ClusterUnreachable(f"{access.server}: {error}") from None
    if response.status == 404:
        raise ClusterUnreachable(f"{access.server} is no simulated cluster of `windlass up`")
    if response.status >= 400:
        raise InputError(str(answer.get("message") or f"HTTP {response.status}"))
    return answer
