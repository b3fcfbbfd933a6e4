"""Writes the index of the scenarios: `python -m windlass.simulate.scenario.index docs/scenarios`.

A test compares the index with the files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from windlass.simulate.scenario.load import CHAPTERS, load_scenarios
from windlass.simulate.scenario.spec import Scenario

WANTED = "wanted"
INDEX = "README.md"
INTRODUCTION = """\
<!-- Written by `python -m windlass.simulate.scenario.index docs/scenarios` from the files: change them. -->

# Scenarios

Each file is one rule of the engine: a story, a small cluster, a time line, and what is expected. They are documentation
and tests at once. [The guide](../guide/scenarios.md) says how to write one. Played with

    windlass simulate docs/scenarios/three-classes.yaml
    windlass simulate docs/scenarios
"""
WANTED_INTRODUCTION = """\

## Wanted

What the engine should do and doesn't do yet. These are not run as tests; `windlass simulate docs/scenarios/wanted`
shows what is seen instead. One that passes moves up.

| scenario | rule | what should happen |
| --- | --- | --- |
"""


def index_text(folder: Path) -> str:
    """The index of a folder of scenarios, chapter by chapter."""
    scenarios = list(load_scenarios(folder))
    text = INTRODUCTION
    for rule in CHAPTERS:
        chapter = [scenario for scenario in scenarios if scenario.document.rule == rule]
        if chapter:
            text += f"\n## {rule}\n\n| scenario | what it shows | from |\n| --- | --- | --- |\n"
            text += "".join(map(_row, chapter))
    wanted = list(load_scenarios(folder / WANTED)) if _has_files(folder / WANTED) else []
    if wanted:
        text += WANTED_INTRODUCTION + "".join(map(_wanted_row, wanted))
    return text


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.yaml"))


def _row(scenario: Scenario) -> str:
    sources = ", ".join(scenario.document.source)
    return f"| [{scenario.name}]({scenario.name}.yaml) | {scenario.document.title} | {sources} |\n"


def _wanted_row(scenario: Scenario) -> str:
    document = scenario.document
    return f"| [{scenario.name}]({WANTED}/{scenario.name}.yaml) | {document.rule} | {document.title} |\n"


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    (folder / INDEX).write_text(index_text(folder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
