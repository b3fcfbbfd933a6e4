"""`windlass simulate SCENARIO…`: plays scenario files, checks their expectations, prints decisions and reasons.

Called by `cli.simulate` if its arguments are scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.output import print_document, print_note
from windlass.cli.printable import printable
from windlass.cli.progress import ProgressBar
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.model.configuration import Settings
    from windlass.simulate.scenario import Outcome

ABOUT_TRACES = ("policy", "seed", "nodes", "jobs", "replay", "mix", "plot", "placements", "explain")
"""Options of the command that have no meaning for a scenario."""


def wants_scenarios(arguments: Sequence[str]) -> bool:
    """Whether the arguments are scenarios; both kinds in one command are refused."""
    from windlass.simulate.scenario import is_scenario

    found = [is_scenario(argument) for argument in arguments]
    if any(found) and not all(found):
        other = arguments[found.index(False)]
        raise InputError(f"{other} is not a scenario", remedy="give traces and scenarios to separate commands")
    return any(found)


def run_scenarios(arguments: Sequence[str], output: str, settings: Settings | None = None) -> int:
    """0 if every expectation holds, 1 if one doesn't. Settings that are given replace those of the files."""
    from windlass.simulate.scenario import load_scenarios, play

    _refuse_trace_options(output)
    scenarios = [scenario for argument in arguments for scenario in load_scenarios(Path(argument))]
    if settings is not None:
        scenarios = [msgspec.structs.replace(scenario, settings=settings) for scenario in scenarios]
    outcomes: list[Outcome] = []
    with ProgressBar(f"{len(scenarios)} scenarios", len(scenarios)) as progress:
        for scenario in scenarios:
            outcomes.append(play(scenario))
            progress(len(outcomes))
    _print(outcomes, output)
    return EXIT_DONE if all(outcome.passed for outcome in outcomes) else EXIT_FINDINGS


def _print(outcomes: Sequence[Outcome], output: str) -> None:
    from windlass.simulate.scenario.report import report_document, summary_line, trace_lines

    if output in ("json", "yaml"):
        print_document(report_document(outcomes), output)
        return
    if len(outcomes) == 1:
        click.echo(printable("\n".join(trace_lines(outcomes[0]))))
        return
    for outcome in outcomes:
        whole = output == "wide" or not outcome.passed
        click.echo(printable("\n".join(trace_lines(outcome)) + "\n" if whole else summary_line(outcome)))
    passed = sum(outcome.passed for outcome in outcomes)
    print_note(f"{passed} of {len(outcomes)} scenarios pass")


def _refuse_trace_options(output: str) -> None:
    context = click.get_current_context()
    for name in ABOUT_TRACES:
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise InputError(f"--{name} is for traces", remedy="set it in the scenario's file")
    if output == "csv":
        raise InputError("a scenario's report is a trace, JSON or YAML", remedy="leave -o csv out")
