"""Reads evidence from a dump (`--from`) or kubectl's current cluster, for `why`, `check`, `doctor` and `dump`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.output import print_note

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.dump.collect import CollectedCluster, Progress
    from windlass.kube.client import KubeClient

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


def cluster_options(command: Command) -> Command:
    """`--from`, `--kubeconfig`, `--context`."""
    for option in (
        click.option("--context", "kube_context", default="", help="The kubeconfig's context."),
        click.option("--kubeconfig", default="", help="The kubeconfig. [default: as kubectl finds it]"),
        click.option(
            "--from",
            "from_",
            type=click.Path(path_type=Path, exists=True),
            help="A dump, as a file or a folder, instead of the live cluster.",
        ),
    ):
        command = option(command)
    return command


def read_evidence(
    dump: Path | None, kubeconfig: str, context: str, namespace: str = "", keep_going: bool = False
) -> tuple[Evidence, int]:
    """The evidence, and the moment that it is of."""
    from windlass.diagnose.evidence import evidence_from_collected, load_evidence

    if dump is not None:
        from windlass.dump.files import newest_timestamp

        return load_evidence(dump, keep_going=keep_going), newest_timestamp(dump) or int(time.time())
    return evidence_from_collected(collect_live(kubeconfig, context, namespace)), int(time.time())


def collect_live(kubeconfig: str, context: str, namespace: str) -> CollectedCluster:
    async def read(client: KubeClient, progress: Progress) -> CollectedCluster:
        from windlass.dump.collect import collect_cluster

        return await collect_cluster(client, namespace, progress)

    return read_with_progress(kubeconfig, context, read)


def run_with_client(kubeconfig: str, context: str, use: Callable[[KubeClient], Awaitable[Result]]) -> Result:
    """What `use` does with a client of that cluster, in an event loop of its own."""
    from windlass.kube.client import KubeClient
    from windlass.kube.client_config import load_client_config

    access = load_client_config(kubeconfig, context)

    async def run() -> Result:
        async with KubeClient(access) as client:
            return await use(client)

    return asyncio.run(run())


def read_with_progress(
    kubeconfig: str, context: str, read: Callable[[KubeClient, Progress], Awaitable[Result]]
) -> Result:
    from windlass.cli.progress import ProgressBar

    with ProgressBar("Reading the cluster", 1.0) as bar:
        return run_with_client(
            kubeconfig, context, lambda client: read(client, lambda what, done, total: bar(done / total))
        )


def print_hidden(evidence: Evidence) -> None:
    for what in evidence.hidden:
        print_note(f"could not read {what}")
