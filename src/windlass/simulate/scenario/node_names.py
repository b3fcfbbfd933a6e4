"""Refuses names of nodes in a scenario that no node has: of running work, and in expectations.

Called by `scenario.load` with the file and the names of all nodes that it makes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator

from windlass.model.errors import InputError
from windlass.simulate.scenario.spec import Expect, RunningCheck, ScenarioFile


def check_node_names(document: ScenarioFile, known: Collection[str]) -> None:
    """Raises an `InputError` with the field that has a name that isn't among the known ones."""
    for path, names in _named_nodes(document):
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), 3) or sorted(known)[:3]
                remedy = f"there are nodes such as {', '.join(near)}" if near else "there are no nodes"
                raise InputError(f"there is no node {name!r}", path=path, remedy=remedy)


def _named_nodes(document: ScenarioFile) -> Iterator[tuple[str, Iterable[str]]]:
    for index, work in enumerate(document.running):
        yield f"running[{index}].nodes", work.nodes
    for index, moment in enumerate(document.timeline):
        if moment.expect is not None:
            yield from _expected_nodes(moment.expect, f"timeline[{index}].expect")


def _expected_nodes(expect: Expect, path: str) -> Iterator[tuple[str, Iterable[str]]]:
    yield f"{path}.free", expect.free
    for index, check in enumerate(expect.running):
        if isinstance(check, RunningCheck):
            yield f"{path}.running[{index}].nodes", check.nodes
