"""`windlass doctor cluster|node|here`: fit for GPU work? Each finding with evidence, meaning and what mends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.cluster_option import cluster_options, print_hidden, read_evidence
from windlass.cli.output import counted, output_option, print_document, print_note
from windlass.cli.parameters import default_option
from windlass.cli.printable import printable
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.diagnose.doctor.report import Symptom

EXISTING = click.Path(path_type=Path, exists=True)
MARKS = {"ok": ("OK", "green"), "warning": ("WARN", "yellow"), "error": ("ERROR", "red")}


@click.group("doctor")
def doctor() -> None:
    """Is this cluster, this node or this container ready for GPU work.

    Exit codes: 0 fit, 1 findings that are errors, 2 bad input, 3 no cluster.
    """


@doctor.command("cluster")
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def cluster(context: click.Context, from_: Path | None, kubeconfig: str, kube_context: str, output: str) -> None:
    """Every GPU node of a cluster, and how they compare."""
    from windlass.diagnose.doctor.cluster import examine_cluster

    evidence, now = read_evidence(from_, kubeconfig, kube_context)
    print_hidden(evidence)
    _report(context, examine_cluster(evidence, now), output)


@doctor.command("node")
@click.argument("name")
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def node(
    context: click.Context, name: str, from_: Path | None, kubeconfig: str, kube_context: str, output: str
) -> None:
    """One node of a cluster."""
    from windlass.diagnose.doctor.cluster import examine_node

    evidence, now = read_evidence(from_, kubeconfig, kube_context)
    print_hidden(evidence)
    known = evidence.nodes.get(name)
    if known is None:
        raise InputError(
            f"there is no node {name} in the cluster",
            remedy=f"there are {', '.join(list(evidence.nodes)[:8])}",
        )
    _report(context, examine_node(evidence, known, now), output)


@doctor.command("here")
@default_option("--root", type=EXISTING, default=Path("/"), help="Where the host's files are.")
@output_option("table", "json", "yaml")
@click.pass_context
def here(context: click.Context, root: Path, output: str) -> None:
    """This container or host: why it does not see the GPU."""
    from windlass.diagnose.doctor.local_host import Host, examine_here

    _report(context, examine_here(Host(root)), output)


def _report(context: click.Context, symptoms: list[Symptom], output: str) -> None:
    from windlass.diagnose.doctor.report import document

    if output in ("json", "yaml"):
        print_document(document(symptoms), output)
    else:
        for group in _grouped(symptoms):
            symptom = group[0]
            mark, colour = MARKS[symptom.level]
            where = symptom.where if len(group) == 1 else f"{symptom.where} and {len(group) - 1} more"
            mark = click.style(f"{mark:<5}", fg=colour, bold=True)
            click.echo(printable(f"{mark} {where}: {symptom.check}: {symptom.saw}"))
            for line in (symptom.meaning, f"run: {symptom.command}" if symptom.command else ""):
                if line:
                    click.echo(printable(f"        {line}"))
        errors = sum(symptom.level == "error" for symptom in symptoms)
        print_note(f"{counted(len(symptoms), 'check')}, {counted(errors, 'error')}")
    context.exit(1 if any(symptom.level == "error" for symptom in symptoms) else 0)


def _grouped(symptoms: list[Symptom]) -> list[list[Symptom]]:
    """Symptoms by level, check and observation, so that the same on many nodes is one line."""
    groups: dict[tuple[str, str, str], list[Symptom]] = {}
    for symptom in symptoms:
        groups.setdefault((symptom.level, symptom.check, symptom.saw), []).append(symptom)
    return list(groups.values())
