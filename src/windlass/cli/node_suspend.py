"""`windlass node suspend` and `resume`: `node.suspension` decides and does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from windlass.cli.node_options import FOLDER, open_backend
from windlass.cli.output import (
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.cli.parameters import default_option
from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.cuda_checkpoint import CudaCheckpoint
from windlass.node.host_root import HostRoot
from windlass.node.suspension import CudaProcess, Suspender, Suspension

if TYPE_CHECKING:
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])
EXAMPLES = """\b
Examples:
  windlass node suspend notebook-0 -n research
  windlass node resume notebook-0 -n research
  windlass node suspend --pid 41273 -o json
"""


def _target_options(command: Command) -> Command:
    for option in (
        output_option("table", "json", "yaml"),
        default_option("--root", type=FOLDER, default="/", help="Where the host's /proc, /sys and /var/log are."),
        click.option("--pid", "pids", type=click.IntRange(1), multiple=True, help="A process instead of a pod."),
        default_option("-n", "--namespace", default="default", help="Namespace of the pod."),
        click.argument("pod", default=""),
    ):
        command = option(command)
    return command


@click.command(epilog=EXAMPLES)
@_target_options
@default_option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=10.0,
    help="Seconds in which the GPU work under way must end, for each process.",
)
@click.option("--dry-run", is_flag=True, help="Print the processes and what they hold; change nothing.")
def suspend(
    pod: str, namespace: str, pids: tuple[int, ...], root: Path, output: str, timeout: float, dry_run: bool
) -> None:
    """Take the work of a pod of this node off its GPUs, in place.

    What it has in GPU memory moves to host memory and counts in its pod's memory limit; its processes stay, and wait
    at their next CUDA call until `windlass node resume`. All of the pod's processes are suspended or none. It needs
    root and a driver from 570 on. The kubelet still counts the GPU as the pod's: what runs meanwhile needs a share of
    it.
    """
    suspender = _open_suspender(root)
    processes = _find(suspender, pod, namespace, pids)
    if dry_run:
        _print_processes(processes, output)
        return
    done = suspender.suspend(processes, round(timeout * 1000))
    _print_done("Suspension", done, output)
    print_note(f"suspended {_count(len(done))} with {sum(each.memory_mib for each in done)} MiB on GPUs")


@click.command()
@_target_options
def resume(pod: str, namespace: str, pids: tuple[int, ...], root: Path, output: str) -> None:
    """Put the suspended work of a pod of this node back on its GPUs.

    The memory that it had on the GPUs must be free there; if it is not, the pod stays suspended as it is.
    """
    suspender = _open_suspender(root)
    done = suspender.resume(_find(suspender, pod, namespace, pids))
    _print_done("Resumption", done, output)
    print_note(f"resumed {_count(len(done))}")


def _open_suspender(root: Path) -> Suspender:
    backend = open_backend(None, "", root)
    backend.acquire()
    try:
        return Suspender(CudaCheckpoint(), HostRoot(root), memory_by_process(backend))
    finally:
        backend.release()  # NVML would keep the GPU open


def memory_by_process(backend: DeviceBackend) -> dict[int, int]:
    """MiB that each process has on all GPUs."""
    found: dict[int, int] = {}
    for gpu in backend.inventory().gpus:
        for usage in backend.processes(gpu.uuid):
            found[usage.pid] = found.get(usage.pid, 0) + usage.memory_mib
    return found


def _find(suspender: Suspender, pod: str, namespace: str, pids: Iterable[int]) -> list[CudaProcess]:
    if bool(pod) == bool(pids):
        raise InputError("name a pod or processes", remedy="windlass node suspend POD -n NAMESPACE, or --pid PID")
    found = suspender.processes(pids) if pids else suspender.processes_of_pod(namespace, pod)
    if not found:
        raise InputError(
            f"{'none of the processes' if pids else f'no process of pod {namespace}/{pod}'} uses CUDA here"
        )
    return found


def _count(number: int) -> str:
    return f"{number} process{'' if number == 1 else 'es'}"


def _print_processes(processes: list[CudaProcess], output: str) -> None:
    if output != "table":
        items = [{**msgspec.structs.asdict(process), "state": process.state.name.lower()} for process in processes]
        print_document(windlass_document("CudaProcessList", items=items), output)
        return
    rows = [
        (str(process.pid), process.command, process.state.name.lower(), str(process.memory_mib))
        for process in processes
    ]
    print_table(plain_table(("PID", "COMMAND", "STATE", "GPU MIB"), rows))


def _print_done(kind: str, done: list[Suspension], output: str) -> None:
    if output == "table":
        print_table(_done_table(done))
    else:
        print_document(windlass_document(kind, items=msgspec.to_builtins(done)), output)


def _done_table(done: list[Suspension]) -> Table:
    rows = [(str(each.pid), each.command, str(each.memory_mib), f"{each.seconds:.2f}") for each in done]
    return plain_table(("PID", "COMMAND", "GPU MIB", "SECONDS"), rows)
