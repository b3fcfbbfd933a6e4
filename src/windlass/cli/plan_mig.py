"""`windlass plan mig`: what would have to change for a MIG layout, GPU by GPU. Nothing is executed.

Asks this node's GPUs, or those of a Fleet; `sharing.mig_plan` plans, as the MIG manager would.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.node_options import FILE, hardware_options, open_backend
from windlass.cli.output import output_option, plain_table, print_document, print_table
from windlass.model.errors import InputError
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.node.config_source import read_yaml
from windlass.node.mig_apply import describe_step
from windlass.node.mig_manager import plan_node
from windlass.sharing.mig_config import MigConfigs, generated_configs, read_mig_configs, select_config
from windlass.sharing.mig_plan import GpuPlan

if TYPE_CHECKING:
    pass

EXAMPLES = """\b
Examples:
  windlass plan mig all-1g.18gb
  windlass plan mig all-balanced --fleet fleet.yaml --root sim -o json
  windlass plan mig -f config.yaml custom --in-use MIG-1f6b…
"""


@click.command("mig", epilog=EXAMPLES)
@click.argument("layout")
@click.option("-f", "--filename", type=FILE, help="mig-parted's config. [default: layouts made for the GPUs at hand]")
@click.option("--in-use", multiple=True, metavar="UUID", help="A GPU or MIG device that must not be touched.")
@hardware_options
@output_option("table", "json", "yaml")
def mig(
    layout: str,
    filename: Path | None,
    in_use: tuple[str, ...],
    fleet: Path | None,
    node_name: str,
    root: Path,
    output: str,
) -> int:
    """What LAYOUT would change: which instances are destroyed, kept and created, and where; nothing is executed.

    The plan has as few changes as possible and touches no instance in use: instances with processes are found, --in-use
    names more. Exit 1 if a GPU can't get the layout, with the reason.
    """
    if fleet is not None and str(root) == "/":
        raise InputError("a simulated node needs a folder of its own", remedy="give --root FOLDER")
    backend = open_backend(fleet, node_name, root)
    inventory = backend.inventory()
    configs: MigConfigs = (
        read_mig_configs(read_yaml(filename), str(filename)) if filename else generated_configs(inventory.gpus)
    )
    busy = set(in_use)
    for gpu in inventory.gpus:
        for process in backend.processes(gpu.uuid):
            inside = [instance.uuid for instance in gpu.instances if instance.gpu_instance == process.gpu_instance]
            busy.update(inside or [gpu.uuid])
    plans = plan_node(inventory, select_config(configs, layout), frozenset(busy))
    if output == "table":
        print_table(plain_table(("GPU", "STEP", "WHAT"), _table_rows(plans)))
    else:
        print_document(mig_plan_document(layout, plans), output)
    return EXIT_FINDINGS if any(plan.refusal for plan in plans) else EXIT_DONE


def mig_plan_document(layout: str, plans: tuple[GpuPlan, ...]) -> dict[str, Any]:
    """`kind: MigPlan`."""
    return {
        "apiVersion": WINDLASS_API_VERSION,
        "kind": "MigPlan",
        "layout": layout,
        "possible": not any(plan.refusal for plan in plans),
        "gpus": [
            {
                "index": plan.index,
                "uuid": plan.uuid,
                "migEnabled": plan.enabled,
                "wanted": list(plan.wanted),
                "steps": [describe_step(step) for step in plan.steps],
                "kept": [{"profile": profile, "start": start} for profile, start in plan.kept],
                "changes": plan.changes,
                "refusal": plan.refusal,
            }
            for plan in plans
        ],
    }


def _table_rows(plans: tuple[GpuPlan, ...]) -> Iterator[tuple[str, str, str]]:
    for plan in plans:
        gpu = str(plan.index)
        if plan.refusal:
            yield (gpu, "", f"not possible: {plan.refusal}")
        for profile, start in plan.kept:
            yield (gpu, "", f"keep {profile} at slice {start}")
        for number, step in enumerate(plan.steps, start=1):
            yield (gpu, str(number), describe_step(step))
        if not plan.steps and not plan.refusal:
            yield (gpu, "", "nothing to change")
