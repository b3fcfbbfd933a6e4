"""`windlass bench embedded`: reads the command line; `windlass_bench.embedded` measures and makes the tables."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.output import output_option, print_note
from windlass.cli.parameters import default_option

if TYPE_CHECKING:
    from windlass_bench.embedded.contenders import PeerPrograms

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option("--kube-apiserver", type=FILE, help="The peer's program. [default: on the PATH]")
@click.option("--etcd", type=FILE, help="The peer's store. [default: on the PATH]")
@default_option("--pods", type=click.IntRange(100, 100_000), default=5000, help="To create.")
@default_option("--watchers", type=click.IntRange(1, 20_000), default=1000, help="At once.")
@default_option(
    "--kept",
    type=click.Choice(["memory", "disk", "both"]),
    default="both",
    help="Where objects are: in memory (etcd without fsync), on disk, or one after the other.",
)
@click.option("--no-memory", is_flag=True, help="Leave out the cluster of 5,000 nodes and 20,000 pods.")
@output_option("table", "json", "yaml", "markdown")
def embedded(
    kube_apiserver: Path | None,
    etcd: Path | None,
    pods: int,
    watchers: int,
    kept: str,
    no_memory: bool,
    output: str,
) -> None:
    """The embedded API server beside a real kube-apiserver with etcd, in one run: creates, binds and watches.

    Both get the same requests from the same client, by 32 connections; then 20 watchers and 1,000 watchers see every
    pod that is made; then there are 5,000 nodes and 20,000 pods, and the processes' memory is read.
    """
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.embedded.report import sections_of
    from windlass_bench.embedded.run import Scale, measure
    from windlass_bench.embedded.sigterm import sigterm_as_exit
    from windlass_bench.report import report_document

    programs = _programs(kube_apiserver, etcd)
    if programs is None:
        print_note("there is no kube-apiserver with etcd to compare with (--kube-apiserver, --etcd)")
    durable = {"memory": (False,), "disk": (True,), "both": (False, True)}[kept]
    scale = Scale(pods=pods, crowd=watchers)
    if no_memory:
        scale = Scale(pods=pods, crowd=watchers, nodes_kept=0, pods_kept=0)
    with sigterm_as_exit():
        results = asyncio.run(measure(scale, programs, durable, print_note))
    words = f"{pods:,} pods by {scale.connections} connections; {scale.watchers} and {watchers:,} watchers"
    sections = sections_of(results, words)
    print_report(sections, report_document(sections), output)


def _programs(apiserver: Path | None, etcd: Path | None) -> PeerPrograms | None:
    from windlass_bench.embedded.contenders import PeerPrograms

    found = {}
    for name, given in (("kube-apiserver", apiserver), ("etcd", etcd)):
        on_path = shutil.which(name)
        found[name] = given or (Path(on_path) if on_path else None)
    if found["kube-apiserver"] is None or found["etcd"] is None:
        return None
    return PeerPrograms(found["kube-apiserver"], found["etcd"])
