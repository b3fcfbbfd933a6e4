"""`windlass check -f FILE…`: will this manifest run.

Reads manifests, runs the rules of `diagnose.check`, offline or against a cluster, and prints the findings.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass import __version__
from windlass.cli.cluster_option import print_hidden, read_evidence, run_with_client
from windlass.cli.config_option import config_option, print_configuration, resolve_configuration
from windlass.cli.output import atomic_output_file, check_writable, counted, output_option, print_document, print_note
from windlass.cli.parameters import default_option
from windlass.cli.printable import printable

if TYPE_CHECKING:
    from windlass.diagnose.check.manifest import Manifest
    from windlass.diagnose.check.rule import CheckFinding
    from windlass.diagnose.evidence import Evidence
    from windlass.dump.configuration import Configuration, UsedConfiguration
    from windlass.model.configuration import Settings

EXAMPLES = """\b
Examples:
  windlass check -f job.yaml
  windlass check -f manifests/ --live --fail-on warning
  windlass check -f manifests/ --from dump/
  helm template chart/ | windlass check -f - -o sarif > findings.sarif
  windlass check -f job.yaml --fix
  windlass check --list

A rule is silenced for one object by the annotation windlass.dev/ignore: RULE,RULE.
Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 bad input, 3 no cluster.
"""
COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


@click.command("check", epilog=EXAMPLES)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option(
    "-f",
    "--filename",
    type=click.Path(path_type=Path, exists=True, allow_dash=True),
    multiple=True,
    help="A manifest, a folder of them, or - for stdin.",
)
@click.option(
    "--from",
    "from_",
    type=click.Path(path_type=Path, exists=True),
    help="Also check against this cluster: a dump, as a file or a folder.",
)
@click.option("--live", is_flag=True, help="Also check against kubectl's current cluster.")
@click.option("--kubeconfig", default="", help="The kubeconfig. [default: as kubectl finds it]")
@click.option("--context", "kube_context", default="", help="The kubeconfig's context.")
@config_option
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Only this rule; may be given again.")
@default_option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    help="The lowest level that makes the exit code 1.",
)
@click.option("--fix", "mend", is_flag=True, help="Write the changes that findings propose into the files.")
@click.option("--list", "list_rules", is_flag=True, help="List the rules.")
@output_option("table", "json", "yaml", "sarif", "github")
@click.pass_context
def check(
    context: click.Context,
    files: tuple[Path, ...],
    filename: tuple[Path, ...],
    from_: Path | None,
    live: bool,
    kubeconfig: str,
    kube_context: str,
    config: Path | None,
    rules: tuple[str, ...],
    fail_on: str,
    mend: bool,
    list_rules: bool,
    output: str,
) -> None:
    """Will these manifests run: rules that need no cluster, and with --live or --from those that do."""
    from windlass.diagnose.check.all_rules import RULES
    from windlass.diagnose.check.manifest import read_manifests
    from windlass.diagnose.check.report import reaches_level
    from windlass.diagnose.check.rule import check_all

    if list_rules:
        for rule in RULES.values():
            click.echo(f"{rule.name:<34} {rule.level:<8} {rule.summary}")
        return
    filename = (*filename, *files)
    _refuse_misuse(filename, rules)
    evidence = None
    if live or from_ is not None:
        evidence, _ = read_evidence(from_, kubeconfig, kube_context)
        print_hidden(evidence)
    stdin = sys.stdin.read() if Path("-") in filename else ""
    manifests = read_manifests(list(filename), stdin)
    if not manifests:
        raise click.UsageError(f"nothing to check: there is no object in {', '.join(map(str, filename))}")
    if evidence is not None and from_ is None:
        _ask_for_secrets(evidence, manifests, kubeconfig, kube_context)
    configuration = _configuration(config, evidence, manifests)
    if mend:
        _mend(filename, evidence, frozenset(rules), configuration.settings)
    checked = read_manifests(list(filename), stdin) if mend else manifests
    findings = check_all(checked, evidence, int(time.time()), frozenset(rules), configuration.settings)
    _print(findings, output, len(manifests), configuration.used if evidence is not None else None)
    context.exit(1 if reaches_level(findings, fail_on) else 0)


def _ask_for_secrets(evidence: Evidence, manifests: list[Manifest], kubeconfig: str, context: str) -> None:
    """Whether the pull secrets that the manifests name exist; a Secret's content is not asked for."""
    from windlass.diagnose.check.written_names import pull_secrets
    from windlass.dump.secret_names import existing_secrets

    named = ((manifest, name) for manifest in manifests for view in manifest.pods for name in pull_secrets(view))
    names = {f"{manifest.namespace}/{name}" for manifest, name in named}
    if names:
        evidence.secrets = run_with_client(kubeconfig, context, lambda client: existing_secrets(client, names))


def _refuse_misuse(files: tuple[Path, ...], rules: tuple[str, ...]) -> None:
    from windlass.diagnose.check.all_rules import RULES

    if not files:
        raise click.UsageError("nothing to check: give -f FILE")
    unknown = [name for name in rules if name not in RULES]
    if unknown:
        raise click.BadParameter(f"there is no rule '{unknown[0]}' (see --list)", param_hint="--rule")


def _configuration(path: Path | None, evidence: Evidence | None, manifests: list[Manifest]) -> Configuration:
    pods = [view.pod for manifest in manifests for view in manifest.pods if view.pod is not None]
    published = evidence.published_configurations if evidence is not None else []
    configuration = resolve_configuration(path, published, [pod.spec.scheduler_name for pod in pods])
    print_configuration(configuration.used)
    return configuration


def _mend(paths: tuple[Path, ...], evidence: Evidence | None, only: frozenset[str], settings: Settings) -> None:
    from windlass.diagnose.check.fixing import fixed_text
    from windlass.dump.files import list_files

    for path in paths:
        if path == Path("-"):
            raise click.UsageError("--fix can't change stdin: give a file")
        for file in list_files(path):
            text, mended = fixed_text(file, evidence, int(time.time()), only, settings)
            if mended:
                check_writable(file)
                with atomic_output_file(file) as temporary:
                    temporary.write_text(text, encoding="utf-8")
            for finding in mended:
                print_note(f"{file}:{finding.line}: fixed {finding.rule}: {finding.fix}")


def _print(found: list[CheckFinding], output: str, checked: int, configuration: UsedConfiguration | None) -> None:
    from windlass.diagnose.check import report

    if output in ("json", "yaml"):
        print_document(report.document(found, configuration), output)
    elif output == "sarif":
        print_document(report.sarif(found, __version__), "json")
    elif output == "github":
        for line in report.github_annotations(found):
            click.echo(printable(line))
    else:
        for finding in found:
            level = click.style(finding.level.upper(), fg=COLOURS[finding.level], bold=True)
            text = f"{finding.file}:{finding.line}: {level} {finding.rule}: {report.format_finding(finding)}"
            click.echo(printable(text))
        counts = {level: sum(finding.level == level for finding in found) for level in ("error", "warning", "info")}
        print_note(
            f"{counted(checked, 'object')}: " + ", ".join(f"{number} {level}" for level, number in counts.items())
        )
