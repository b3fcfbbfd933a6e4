"""`windlass operator`: brings nodes up, changes fleets and repairs GPUs of a real cluster, until SIGTERM or Ctrl-C.

Reads the command line into `operator.controller.OperatorOptions`; everything else happens in `windlass.operator`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from typing import Any

import click

from windlass.cli.parameters import default_option
from windlass.cli.scheduler import Address, kubeconfig_options

EXAMPLES = """\b
Examples:
  windlass operator --shadow --context production
  windlass operator --prometheus http://prometheus.monitoring:9090
"""


@click.command("operator", epilog=EXAMPLES)
@kubeconfig_options
@click.option("--shadow", is_flag=True, help="Decide, write nothing, and log what would be written.")
@click.option("--prometheus", default="", metavar="URL", help="Where the queries of gates are asked.")
@default_option("--driver-namespace", default="windlass-node", help="Where driver containers run.")
@default_option("--leader-elect/--no-leader-elect", default=True, help="Several replicas, one leader.")
@default_option("--lease-namespace", default="windlass-system", help="Where the lease is.")
@default_option("--lease-name", default="windlass-operator", help="What it is called.")
@default_option("--lease-seconds", default=15.0, help="How long a lease is valid without renewal.")
@click.option("--listen", type=Address(), help="Serve /healthz and /readyz here.")
@default_option("--log-format", type=click.Choice(["json", "text"]), default="json")
@default_option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def operator(**given: Any) -> None:
    """Bring GPU nodes up in order, change fleets by canary with a way back, take broken GPUs out and heal them.

    Acts on GPUStack, FleetChange and GPURepair objects (`windlass install operator` has their kinds); without a
    GPUStack it touches nothing. Every replica may be killed at any moment.
    """
    from windlass.kube.client_config import load_client_config
    from windlass.operator.controller import OperatorOptions
    from windlass.scheduler.logs import set_up_logs

    if given["lease_seconds"] < 1:
        raise click.BadParameter("must be at least a second", param_hint="--lease-seconds")
    access = load_client_config(given["kubeconfig"], given["context"])
    options = OperatorOptions(
        shadow=given["shadow"],
        leader_elect=given["leader_elect"],
        lease_namespace=given["lease_namespace"],
        lease_name=given["lease_name"],
        lease_seconds=given["lease_seconds"],
        identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}",
        listen=given["listen"],
        driver_namespace=given["driver_namespace"],
        prometheus=given["prometheus"],
    )
    set_up_logs(given["log_format"], given["log_level"])
    asyncio.run(_until_stopped(access, options))


async def _until_stopped(access: Any, options: Any) -> None:
    from windlass.operator.controller import run_operator

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_operator(access, options, stop)
