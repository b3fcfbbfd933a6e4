"""`windlass why KIND/NAME`: why it is not running, what is nearest, and the smallest change that would help.

Reads evidence from the live cluster or a dump, calls `diagnose.why`, and prints the diagnosis. Nothing is written: on a
live cluster the patches are tried as dry runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windlass.cli.cluster_option import cluster_options, print_hidden, read_evidence, read_with_progress
from windlass.cli.config_option import config_option, load_configuration, print_configuration
from windlass.cli.live_answer import LiveQuestion, live_answer
from windlass.cli.output import output_option, print_document, print_note
from windlass.cli.printable import printable
from windlass.cli.why_patch import print_patch
from windlass.model.names.windlass import WINDLASS_API_VERSION

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.diagnose.finding import Diagnosis
    from windlass.dump.configuration import Configuration

EXAMPLES = """\b
Examples:
  windlass why pod/train-0
  windlass why pod/train-0 --from dump/
  windlass why pytorchjob/llm -n research --from cluster.json -o json
  windlass why deploy/server --from dump/ --patch > patch.yaml
  windlass why pod/train-0 --exec     # it runs but does not see its GPU
  windlass why -A                     # everything that needs a person, worst first
  windlass why -n research            # the same for one namespace

Exit codes: 0 nothing is wrong, 1 a cause was found or is unknown, 2 bad input, 3 no cluster.
"""


@click.command("why", epilog=EXAMPLES)
@click.argument("question", metavar="[KIND/NAME]", default="")
@cluster_options
@config_option
@click.option("-n", "--namespace", default="", help="Its namespace, if several have the name; alone: all of it.")
@click.option(
    "-A", "--all-namespaces", "whole_cluster", is_flag=True, help="Everything that needs a person, worst first."
)
@click.option("--now", default="", help="Judge as of this RFC 3339 time. [default: the dump's newest]")
@click.option("--patch", "only_patch", is_flag=True, help="Print only the patch that would help, as YAML.")
@click.option(
    "--dry-run/--no-dry-run",
    "tries_patches",
    default=True,
    help="Live: try the patches on the API server, which stores nothing.",
    show_default=True,
)
@click.option(
    "--exec",
    "look_inside",
    is_flag=True,
    help="Live: run nvidia-smi inside its containers, and nvidia-smi and dmesg in the GPU stack's pods on its nodes.",
)
@click.option("--keep-going", is_flag=True, help="Report invalid files and continue without them.")
@output_option("table", "wide", "json", "yaml")
@click.pass_context
def why_command(
    context: click.Context,
    question: str,
    from_: Path | None,
    kubeconfig: str,
    kube_context: str,
    config: Path | None,
    namespace: str,
    whole_cluster: bool,
    now: str,
    only_patch: bool,
    tries_patches: bool,
    look_inside: bool,
    keep_going: bool,
    output: str,
) -> None:
    """Why KIND/NAME is not running, and what to do.

    KIND is Pod, Job, Deployment, PyTorchJob, Workload or anything with pods; it may be left out if the name is unique.
    Without KIND/NAME: everything that needs a person, in a namespace (-n) or everywhere (-A).
    """
    if from_ is not None and look_inside:
        raise click.UsageError("--exec needs a live cluster: leave out --from")
    question, namespace = _scope(question, namespace, whole_cluster)
    if not question and (only_patch or look_inside):
        raise click.UsageError("--patch and --exec need a KIND/NAME")
    moment, given = _moment(now), load_configuration(config)
    with gc_disabled():
        if not question:
            evidence, newest = read_evidence(from_, kubeconfig, kube_context, namespace, keep_going)
            context.exit(_print_survey(evidence, namespace, moment or newest, given, output))
        if from_ is not None:
            diagnosis = _answer_from_dump(from_, question, namespace, moment, given, keep_going)
        else:
            asked = LiveQuestion(question, namespace, moment, given, look_inside, tries_patches)
            evidence, diagnosis = read_with_progress(kubeconfig, kube_context, partial(live_answer, asked))
            _print_read_errors(evidence)
    if only_patch:
        print_patch(diagnosis)
    else:
        _print_diagnosis(diagnosis, output)
    # Last, since the answer comes first; a comment below a patch, so that it stays YAML.
    print_configuration(diagnosis.configuration, "# " if only_patch else "")
    context.exit(0 if diagnosis.code == "NONE" else 1)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """A large dump is a million long-lived objects: garbage collection would take a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(diagnosis)
    waits = fields.pop("is_wait")
    return {"apiVersion": WINDLASS_API_VERSION, "kind": "Diagnosis", **fields, "wait": waits}


def _moment(now: str) -> int:
    """`--now` in seconds since 1970; 0 if it is not given."""
    from windlass.model.times import parse_timestamp

    seconds = parse_timestamp(now) if now else 0
    if now and not seconds:
        raise click.BadParameter(f"'{now}' is not a time such as 2026-01-01T12:00:00Z", param_hint="--now")
    return seconds


def _scope(question: str, namespace: str, whole_cluster: bool) -> tuple[str, str]:
    """The object (empty: everything) and the namespace (empty: all of them) that are asked about."""
    kind, _, name = question.rpartition("/")
    if kind.lower() in ("ns", "namespace", "namespaces"):
        question, namespace = "", name
    if whole_cluster and (question or namespace):
        raise click.UsageError("-A asks about everything: leave out KIND/NAME and -n")
    if not question and not namespace and not whole_cluster:
        raise click.UsageError("name an object, such as pod/train-0, a namespace with -n, or everything with -A")
    return question, namespace


def _answer_from_dump(
    dump: Path, question: str, namespace: str, moment: int, given: Configuration | None, keep_going: bool
) -> Diagnosis:
    from windlass.diagnose.why import why

    evidence, newest = read_evidence(dump, "", "", namespace, keep_going)
    _print_read_errors(evidence)
    return why(evidence, question, namespace, moment or newest, given)


def _print_read_errors(evidence: Evidence) -> None:
    for problem in evidence.read_errors[:20]:
        print_note(str(problem))


def _print_survey(evidence: Evidence, namespace: str, now: int, given: Configuration | None, output: str) -> int:
    """Prints what needs a person; the exit code."""
    from windlass.cli.why_survey import survey_document, survey_text
    from windlass.diagnose.finding import WAITING
    from windlass.diagnose.survey import survey

    _print_read_errors(evidence)
    print_hidden(evidence)
    found = survey(evidence, namespace, now, given)
    if output in ("json", "yaml"):
        print_document(survey_document(found), output)
    else:
        click.echo(printable(survey_text(found, now, wide=output == "wide")))
    return 1 if not found.has_pods or any(entry.state != WAITING for entry in found.entries) else 0


def _print_diagnosis(diagnosis: Diagnosis, output: str) -> None:
    from windlass.cli.why_text import diagnosis_text

    if output in ("json", "yaml"):
        print_document(diagnosis_document(diagnosis), output)
    else:
        click.echo(printable(diagnosis_text(diagnosis, wide=output == "wide")))
