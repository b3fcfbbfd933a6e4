"""Writes docs/reference from the code, so that the two can't disagree: `make docs`.

    python -m tools.reference docs/reference

The command line comes from the click commands, the fields of documents from the structs and the strings below them, the
messages from `tools.reference.messages`.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import click
import msgspec
from tools.reference.messages import messages_reference

from windlass.cli.main import cli
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.rule import CheckFinding
from windlass.diagnose.doctor.report import Symptom
from windlass.diagnose.finding import (
    CauseLink,
    Diagnosis,
    GpuHolder,
    MissingEvidence,
    NodeSummary,
    Outlook,
    Patch,
    PatchTarget,
)
from windlass.dump.configuration import UsedConfiguration
from windlass.model import configuration, decision, fleet_spec, node, verdict
from windlass.model.hold_document import STRUCTS as PLAN_STRUCTS
from windlass.simulate import compare, placements, result, tradeoffs

GENERATED = "<!-- Written by `make docs` from the code: change it there. -->\n\n"
LINE_WIDTH = 100

CLI_INTRODUCTION = """\
# The command line

`windlass` and `kubectl-windlass` (so `kubectl windlass …`) are the same command. Data goes to standard output and
everything else to standard error. `windlass completion SHELL` prints a completion script.

| exit code | means |
| --- | --- |
| 0 | done, nothing to report |
| 1 | findings, or the answer is "no" |
| 2 | wrong usage or bad input: one line on standard error says what and where |
| 3 | the cluster, or a part of it, can't be reached or read |
| 70 | a bug in Windlass; `WINDLASS_DEBUG=1` prints the traceback |
| 130 | Ctrl-C; what there was so far has been printed |
"""

REPORT_INTRODUCTION = """\
# SimulationReport

What `windlass simulate … -o json` (or `-o yaml`) prints. Fields are only ever added.

| field | |
| --- | --- |
| `apiVersion` | `windlass.dev/v1` |
| `kind` | `SimulationReport` |
| `items` | one [RunResult](#runresult) a run, by trace, policy and seed in the order of the command line |
| `comparison` | one [PolicySummary](#policysummary) a trace and policy, over the runs that finished |

`-o csv` has one row a run with the same names; nested fields are dotted (`waiting.mean`), and `curve` is left out.
"""

REPORT_STRUCTS = (
    *(result.RunResult, result.Waiting, result.Curve, tradeoffs.TradeOffs, placements.Explanation),
    *(placements.Placement, decision.DeviceGrant, verdict.Verdict, verdict.ReasonCount, verdict.NearMiss),
    *(verdict.Limit, verdict.Relief, verdict.Change, verdict.MoveOffer, compare.PolicySummary),
    *(compare.Spread, compare.Paired),
)

FLEET_INTRODUCTION = f"""\
# Fleet

Nodes with GPUs in a few lines, for `windlass simulate --nodes FILE` (which also takes Nodes and Lists of them). A field
that is not named here is an error. Nodes get the labels that GPU Feature Discovery would give them.

```yaml
{fleet_spec.EXAMPLE}```
"""

FLEET_STRUCTS = (
    *(fleet_spec.FleetSpec, fleet_spec.FleetPool, fleet_spec.FleetGpus, fleet_spec.FleetSharing),
    *(node.Taint, fleet_spec.FleetFault),
)

PLAN_INTRODUCTION = """\
# Plan

What `windlass plan schedule … -o json` (or `-o yaml`) prints. Fields are only ever added.

| field | |
| --- | --- |
| `apiVersion` | `windlass.dev/v1` |
| `kind` | `Plan` |
| `now` | the time of the decision |
| `decisions` | in an order in which they can be executed |
| `notes` | remarks about the input |
| `configuration` | the engine's configuration: [UsedConfiguration](diagnosis.md#usedconfiguration) |

| decision | fields |
| --- | --- |
| `withdrawAsk` | `workload`, `pods`, `id`, `hasLeft`: an ask that is taken back, or over since the workload has left |
| `ask` | `workload`, `pods`, `for`, `reason` (of its eviction), `id`, `asked`, `until`, `refusedAnswer`, `notice` |
| `evict` | `workload`, `pods`, `for` (preemptor), `reason`, `lostGpuSeconds`, `leastGpuSeconds`, `message`, `after` |
| `admit` | `workload`, `kind`, `queue`, `podSets` (`name`, `count`, `wanted`, `flavors`, `nodes`), `after`, `note` |
| `bind` | `pod`, `node`, `devices` (`index`, `milli` of a share, `profile` and `start` of MIG, `replicas`), `after` |
| `resize` | `workload`, `podSets`: what a Workload asks for and holds, `before` and `after` its owner has changed |
| `reserve` | `workload`, `domain`, `from`, `until`, `nodes`: capacity kept for a planned start or a Reservation |
| `hold` | see [HoldDocument](#holddocument) |

`lostGpuSeconds` is what this eviction loses, since the last checkpoint or the start and for the restart.
`leastGpuSeconds` is what all evictions for the same preemptor lose together, whatever victims are chosen, as far as the
search could show (0: not at all). Where the sum of the first is the second, no victims that the rules allow lose less.

`notice` is why the workload has to leave, where that is for no other work; `note` is what an hour on its flavors is
expected to cost, where its queue orders them by that.

`after` names the workloads that have to be gone first. `nodes` is node → pods; `wanted` is the requested number of pods
where only some of a set start. The first holds are explained: the limit, the running workloads that would have to
end, and which smaller request would start now. The others have a code and a message.
"""

DIAGNOSIS_INTRODUCTION = """\
# Diagnosis, CheckReport, DoctorReport

What `windlass why`, `check` and `doctor` print with `-o json` (or `-o yaml`). Every document has `apiVersion:
windlass.dev/v1` and its `kind`; fields are only ever added. A `Diagnosis` has the fields below and `wait`: whether
nothing is broken and it only waits for other work. A `CheckReport` has `findings`, each a
[CheckFinding](#checkfinding) without `change`, and `configuration` where a cluster was checked against. A
`DoctorReport` has `fit`, and `findings`, each a [Symptom](#symptom).
"""

DIAGNOSIS_STRUCTS = (
    *(Diagnosis, CauseLink, NodeSummary, GpuHolder, Outlook, Patch, PatchTarget, MissingEvidence),
    *(UsedConfiguration, CheckFinding, Symptom),
)

CONFIGURATION_INTRODUCTION = """\
# SchedulerConfiguration

What `--config FILE` takes ([guide](../guide/configuration.md)). A field that is not named here is an error. Every
field may be left out.

```yaml
apiVersion: windlass.dev/v1
kind: SchedulerConfiguration
schedulerNames: [windlass]
placement: windlass
classes:
- {name: serving, selector: {matchLabels: {tier: serving}}, strategy: spread}
minRunTime: 10m
backfill: {depth: 64}
```
"""

CONFIGURATION_STRUCTS = (
    *(configuration.SchedulerConfiguration, configuration.WorkloadClass, configuration.Defragmentation),
    *(configuration.BackfillSettings, configuration.FairSharing, configuration.AdmissionFairSharing),
    *(configuration.WaitForPodsReady, configuration.RequeuingStrategy, configuration.ResourceRules),
    configuration.Transformation,
)

LINKED = {
    struct.__name__
    for structs in (REPORT_STRUCTS, FLEET_STRUCTS, PLAN_STRUCTS, DIAGNOSIS_STRUCTS, CONFIGURATION_STRUCTS)
    for struct in structs
}


def cli_reference() -> str:
    """The whole tree of commands as one page."""
    sections = [CLI_INTRODUCTION]
    for path, command in _commands(cli, "windlass"):
        text = _help_text(path, command)
        sections.append(f"## {path}\n\n```text\n{text}\n```\n")
    return GENERATED + "\n".join(sections)


def struct_reference(introduction: str, structs: Iterable[type]) -> str:
    """The fields of a document as one page."""
    return GENERATED + "\n".join([introduction, *map(_struct_section, structs)])


def diagnosis_reference() -> str:
    """The documents of diagnosis, the vocabulary of causes and the rules of `check`."""
    causes = "\n".join(
        f"| `{code}` | {'wait' if cause.is_wait else ''} | {cause.meaning} | {cause.remedy} |"
        for code, cause in CAUSES.items()
    )
    rules = "\n".join(f"| `{rule.name}` | {rule.level} | {rule.summary} |" for rule in RULES.values())
    tables = (
        f"## Codes\n\n| code | | means | what to do |\n| --- | --- | --- | --- |\n{causes}\n",
        f"## Rules of check\n\n| rule | level | what holds |\n| --- | --- | --- |\n{rules}\n",
    )
    return "\n".join([struct_reference(DIAGNOSIS_INTRODUCTION, DIAGNOSIS_STRUCTS), *tables])


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_reference,
    "configuration.md": partial(struct_reference, CONFIGURATION_INTRODUCTION, CONFIGURATION_STRUCTS),
    "diagnosis.md": diagnosis_reference,
    "fleet.md": partial(struct_reference, FLEET_INTRODUCTION, FLEET_STRUCTS),
    "messages.md": lambda: GENERATED + messages_reference(),
    "plan.md": partial(struct_reference, PLAN_INTRODUCTION, PLAN_STRUCTS),
    "simulation-report.md": partial(struct_reference, REPORT_INTRODUCTION, REPORT_STRUCTS),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=path) as ctx:
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None, name
                yield from _commands(inner, f"{path} {name}")


def _help_text(path: str, command: click.Command) -> str:
    settings = cli.context_settings
    with click.Context(command, info_name=path, terminal_width=LINE_WIDTH, **settings) as ctx:
        return "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())


def _struct_section(struct: type) -> str:
    rows = "\n".join(f"| `{name}` | {kind} | {about} |" for name, kind, about in _fields(struct))
    description = inspect.getdoc(struct) if "__doc__" in vars(struct) and struct.__doc__ else ""
    introduction = f"{_one_line(description)}\n\n" if description else ""
    return f"## {struct.__name__}\n\n{introduction}| field | type | |\n| --- | --- | --- |\n{rows}\n"


def _fields(struct: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and description of each field, as they stand in the source."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    assert isinstance(definition, ast.ClassDef), struct
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for line, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            field = fields[line.target.id]
            about = " ".join(filter(None, [_one_line(_string(following)), _default(field.default)]))
            yield field.encode_name, _type_words(line.annotation), about


def _default(value: object) -> str:
    """The default, unless it is empty, zero or a struct."""
    if not value or value is msgspec.NODEFAULT or isinstance(value, msgspec.Struct):
        return ""
    return f"Default `{', '.join(value) if isinstance(value, tuple) else value}`."


TYPE_WORDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "RawQuantity": "quantity",
}


def _type_words(annotation: ast.expr) -> str:
    """A type in terms of JSON and YAML."""
    match annotation:
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return f"{_type_words(left)}, or null"
        case ast.BinOp(left=left, right=right):
            return f"{_type_words(left)} or {_type_words(right)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, _])):
            return f"list of {_type_words(inner)}"
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return f"map of {_type_words(inner)}"
        case ast.Name(id=name) if name in TYPE_WORDS:
            return TYPE_WORDS[name]
        case ast.Name(id=name) if name in LINKED:
            return f"[{name}](#{name.lower()})"
    return f"`{ast.unparse(annotation)}`"


def _string(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
