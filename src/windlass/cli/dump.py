"""`windlass dump`: what `why`, `check`, `doctor` and `plan` need from a live cluster, in one file or folder.

Collects through `dump.collect`, writes through `dump.save`. Read-only towards the cluster.
"""

from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.cluster_option import collect_live
from windlass.cli.output import counted, print_note
from windlass.model.errors import InputError

EXAMPLES = """\b
Examples:
  windlass dump cluster/
  windlass dump cluster.json --redact
  windlass dump cluster/ --redact --rename && windlass why pod/x --from cluster/

Exit codes: 0 done, 2 wrong usage, 3 the cluster can't be reached.
"""


@click.command("dump", epilog=EXAMPLES)
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--redact",
    is_flag=True,
    help="Drop environment values, commands, secrets, foreign annotations, and log lines that show no known fault.",
)
@click.option("--rename", is_flag=True, help="Replace names and images, consistently, in logs and messages too.")
@click.option("-n", "--namespace", default="", help="The namespace to read if the whole cluster may not be read.")
@click.option("--kubeconfig", default="", help="The kubeconfig. [default: as kubectl finds it]")
@click.option("--context", default="", help="The kubeconfig's context.")
def dump(target: Path, redact: bool, rename: bool, namespace: str, kubeconfig: str, context: str) -> None:
    """Write the cluster to TARGET: a .json file, or a folder that also holds the GPU stack's logs."""
    from windlass.diagnose.log_patterns import matches_any_pattern
    from windlass.dump.save import Privacy, save_dump

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError("already exists", file=str(target), remedy="name a new file or an empty folder")
    if not target.absolute().parent.is_dir():
        raise InputError("can't be written, since its folder does not exist", file=str(target))
    collected = collect_live(kubeconfig, context, namespace)
    for what in collected.not_readable:
        print_note(f"could not read {what}")
    save_dump(collected, target, Privacy(redact, rename, matches_any_pattern))
    print_note(f"{counted(len(collected.objects), 'object')} and {counted(len(collected.logs), 'log')} in {target}")
