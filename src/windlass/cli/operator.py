"""`windlass operator`: brings nodes up, changes fleets and repairs GPUs of a real cluster, until SIGTERM or Ctrl-C.

Reads the command line into `operator.controller.OperatorOptions`; everything else happens in `windlass.operator`.
"""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.parameters import default_option
from windlass.cli.replica_options import replica_options, replica_values, run_until_stopped
from windlass.cli.scheduler import kubeconfig_options

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
@default_option("--canary-namespace", default="windlass-canary", help="Where canary work runs.")
@replica_options("windlass-operator", "/healthz and /readyz", api_qps=200.0)
def operator(**given: Any) -> None:
    """Bring GPU nodes up in order, change fleets by canary with a way back, take broken GPUs out and heal them.

    Acts on GPUStack, FleetChange and GPURepair objects (`windlass install operator` has their kinds); without a
    GPUStack it touches nothing. Every replica may be killed at any moment.
    """
    from windlass.kube.client_config import load_client_config
    from windlass.operator.controller import OperatorOptions, run_operator
    from windlass.scheduler.logs import set_up_logs

    options = OperatorOptions(
        shadow=given["shadow"],
        driver_namespace=given["driver_namespace"],
        canary_namespace=given["canary_namespace"],
        prometheus=given["prometheus"],
        **replica_values(given),
    )
    access = load_client_config(given["kubeconfig"], given["context"])
    set_up_logs(given["log_format"], given["log_level"])
    run_until_stopped(lambda stop: run_operator(access, options, stop))
