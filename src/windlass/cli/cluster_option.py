"""Where a command's evidence comes from: a dump (`--from`), or the live cluster that kubectl would talk to.

`why`, `check` and `doctor` share it, so that both ways lead to the same verdict from the same evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.output import note

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.dump.collect import Collected, Progress
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


def evidence_from(
    dump: Path | None, kubeconfig: str, context: str, namespace: str = "", keep_going: bool = False
) -> tuple[Evidence, int]:
    """The evidence, and the moment that it is of."""
    from windlass.diagnose.evidence import evidence_of, load_evidence

    if dump is not None:
        from windlass.dump.files import newest_time

        return load_evidence(dump, keep_going=keep_going), newest_time(dump) or int(time.time())
    return evidence_of(collect_live(kubeconfig, context, namespace)), int(time.time())


def live_evidence(
    kubeconfig: str, context: str, namespace: str, question: str, look_inside: bool
) -> tuple[Evidence, int]:
    """Of the live cluster, with the logs of the pods that the question is about and, where asked, a look inside."""
    from windlass.cli.live_pods import add_pods
    from windlass.diagnose.evidence import evidence_of

    async def read(client: KubeClient, progress: Progress) -> Evidence:
        from windlass.dump.collect import collect

        evidence = evidence_of(await collect(client, namespace, progress))
        await add_pods(client, evidence, question, namespace, look_inside)
        return evidence

    return _with_client(kubeconfig, context, read), int(time.time())


def collect_live(kubeconfig: str, context: str, namespace: str) -> Collected:
    async def read(client: KubeClient, progress: Progress) -> Collected:
        from windlass.dump.collect import collect

        return await collect(client, namespace, progress)

    return _with_client(kubeconfig, context, read)


def _with_client(
    kubeconfig: str, context: str, read: Callable[[KubeClient, Progress], Awaitable[Result]]
) -> Result:
    from windlass.cli.progress import ProgressBar
    from windlass.kube.access import find_access
    from windlass.kube.client import KubeClient

    access = find_access(kubeconfig, context)

    async def run(bar: ProgressBar) -> Result:
        async with KubeClient(access) as client:
            return await read(client, lambda what, done, total: bar(done / total))

    with ProgressBar("Reading the cluster", 1.0) as bar:
        return asyncio.run(run(bar))


def tell_hidden(evidence: Evidence) -> None:
    for what in evidence.hidden:
        note(f"could not read {what}")
