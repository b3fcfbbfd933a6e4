"""The cluster that the demo runs on: a running `windlass up` if it is suitable, else a new one.

Called by `cli.demo`. A new one is `windlass up` as a child process on free ports, stopped at the end.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from windlass.demo.api import ApiClient, ApiError
from windlass.demo.fixtures import PODS_PATH
from windlass.demo.steps import REQUIRED_NODES
from windlass.model.errors import ClusterUnreachable, InputError, WindlassError

DEFAULT_KUBECONFIG = Path("~/.windlass/kubeconfig")
START_SECONDS = 60.0


@contextlib.contextmanager
def demo_cluster(chosen: Path | None) -> Iterator[Path]:
    """Its kubeconfig."""
    if chosen is not None:
        problem = why_unsuitable(chosen)
        if problem:
            raise InputError(problem, file=str(chosen), remedy="run `windlass demo` without --kubeconfig")
        yield chosen
        return
    usual = DEFAULT_KUBECONFIG.expanduser()
    if usual.is_file() and not why_unsuitable(usual):
        click.echo(f"On the cluster of {usual}, which is running.")
        yield usual
        return
    with (
        tempfile.TemporaryDirectory(prefix="windlass-demo-") as folder,
        started_cluster(Path(folder)) as kubeconfig,
    ):
        yield kubeconfig


def why_unsuitable(kubeconfig: Path) -> str:
    """Why the demo can't run there; empty if it can."""
    try:
        api = ApiClient(kubeconfig)
        api.get("/windlass/sandbox")
        found = {node["metadata"]["name"] for node in api.items("/api/v1/nodes")}
        busy = api.items(PODS_PATH)
    except ApiError:
        return "is not a simulated cluster of `windlass up`"
    except (WindlassError, OSError) as error:
        return f"can't be reached: {error}"
    if not found.issuperset(REQUIRED_NODES):
        return "does not have the nodes of the default fleet"
    return "has pods in the namespace default, and the demo needs all GPUs" if busy else ""


@contextlib.contextmanager
def started_cluster(folder: Path) -> Iterator[Path]:
    kubeconfig = folder / "kubeconfig"
    program = [sys.executable, "-c", "from windlass.cli.main import main; main()", "up"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*program, "--port=0", "--page-port=0", f"--write-kubeconfig={kubeconfig}"],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops it in order
        )
    try:
        click.echo(_wait(process, folder / "log"))
        yield kubeconfig
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def _wait(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        output = log.read_text(errors="replace")
        if "\nnodes " in output:
            return output.rstrip()
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterUnreachable(f"`windlass up` did not start: {output.strip()[-500:] or 'it output nothing'}")
        time.sleep(0.05)
