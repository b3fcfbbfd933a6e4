"""`windlass node fault`: breaks or heals a GPU of a simulated node, whose agent may be running."""

from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.node_options import FILE, FOLDER
from windlass.model.errors import InputError
from windlass.node.agent import AgentOptions, make_backend
from windlass.node.backend.simulated import SimulatedBackend


@click.command()
@click.option("--fleet", type=FILE, required=True, help="The Fleet that the node was simulated from.")
@click.option("--node-name", default="", envvar="NODE_NAME", help="Which of its nodes. [default: the first with GPUs]")
@click.option("--root", type=FOLDER, required=True, help="The folder that stands for the machine.")
@click.option("--gpu", type=click.IntRange(0), required=True, help="Index of the GPU.")
@click.option("--xid", type=click.IntRange(1, 999), help="Report this Xid, as the driver would.")
@click.option("--instance", type=int, default=-1, help="GPU instance that the Xid is about. [default: the whole GPU]")
@click.option("--lost", is_flag=True, help="The GPU falls off the bus.")
@click.option("--recovery-action", type=click.IntRange(0, 7), help="What the driver asks for (1: reset, 2: reboot).")
@click.option("--heal", is_flag=True, help="Nothing is wrong any more.")
def fault(
    fleet: Path,
    node_name: str,
    root: Path,
    gpu: int,
    xid: int | None,
    instance: int,
    lost: bool,
    recovery_action: int | None,
    heal: bool,
) -> None:
    """Break or heal a GPU of a simulated node; its agent sees it as the driver would show it."""
    backend = make_backend(AgentOptions(fleet=fleet, node_name=node_name, root=root))
    assert isinstance(backend, SimulatedBackend), "a fleet was given"
    if gpu >= len(backend.inventory().gpus):
        raise InputError(f"there is no GPU {gpu}", remedy=f"the node has {len(backend.inventory().gpus)}")
    if heal:
        backend.recover(gpu)
        return
    facts: dict[str, object] = {"is_lost": True} if lost else {}
    if recovery_action is not None:
        facts["recovery_action"] = recovery_action
    if not facts and xid is None:
        raise click.UsageError("say what is to happen: --xid, --lost, --recovery-action or --heal")
    backend.inject(gpu, xid or 0, gpu_instance=instance, **facts)
