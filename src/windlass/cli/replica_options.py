"""What `windlass scheduler` and `windlass operator` share: options of lease, status server and log, and the run itself.

Both are replicas of which one leads, and both run until SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import click

from windlass.cli.parameters import default_option
from windlass.kube.request_budget import RequestRate
from windlass.model.digits import is_digits

REPLICA_FIELDS = ("lease_namespace", "lease_name", "lease_seconds", "listen")
"""Of the options structs of both."""


class Address(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`, or `:PORT` for all addresses."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not colon or not is_digits(port) or int(port) > 65535:
            self.fail(f"'{value}' is not an address such as 127.0.0.1:10259", param, ctx)
        return host.strip("[]") or "0.0.0.0", int(port)


def replica_options(lease_name: str, served: str, api_qps: float) -> Callable[[Any], Any]:
    """`served`: the paths of the status server, for the help; `api_qps`: the default of that option."""
    options = (
        default_option("--leader-elect/--no-leader-elect", default=True, help="Several replicas, one leader."),
        default_option("--lease-namespace", default="windlass-system", help="Where the lease is."),
        default_option("--lease-name", default=lease_name, help="What it is called."),
        default_option("--lease-seconds", default=15.0, help="How long a lease is valid without renewal."),
        default_option(
            "--api-qps",
            type=click.FloatRange(min=0),
            default=api_qps,
            help="The most requests a second to the API server; leases are excepted. 0: no limit.",
        ),
        click.option(
            "--api-burst",
            type=click.IntRange(min=0),
            default=0,
            help="So many requests may be sent at once after a pause. [default: those of two seconds]",
        ),
        click.option("--listen", type=Address(), help=f"Serve {served} here."),
        default_option("--log-format", type=click.Choice(["json", "text"]), default="json"),
        default_option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info"),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def replica_values(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of the options struct; raises a usage error for a lease that no server could keep."""
    if given["lease_seconds"] < 1:
        raise click.BadParameter("must be at least a second", param_hint="--lease-seconds")
    return {
        **{name: given[name] for name in REPLICA_FIELDS},
        "leader_elect": given["leader_elect"] and not given["shadow"],
        "api_rate": RequestRate(given["api_qps"], given["api_burst"]),
        "identity": f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}",
    }


def run_until_stopped(run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Until SIGTERM or Ctrl-C, which set the event."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await run(stop)

    asyncio.run(main())
