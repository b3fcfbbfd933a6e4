"""Checks that many kinds share: names, choices, required fields, minimums.

Used by the `validate_` modules and `crds`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from windlass.embedded.api.errors import FieldError, invalid, required, unsupported
from windlass.model.unstructured import Unstructured


def problem_errors(field: str, value: str, problems: Callable[[str], Iterable[str]]) -> Iterator[FieldError]:
    """An error for each problem that a function of `names` finds with the value."""
    for problem in problems(value):
        yield invalid(field, value, problem)


def name_errors(field: str, value: str, problems: Callable[[str], Iterable[str]]) -> Iterator[FieldError]:
    """The same for a value that has to be there."""
    if value:
        yield from problem_errors(field, value, problems)
    else:
        yield required(field)


def choice_errors(tree: Unstructured, name: str, path: str, known: Collection[str]) -> Iterator[FieldError]:
    """A field that has one of a few values."""
    if tree.get(name) not in known:
        yield unsupported(f"{path}.{name}" if path else name, tree.get(name, ""), known)


def optional_choice_errors(tree: Unstructured, name: str, path: str, known: Collection[str]) -> Iterator[FieldError]:
    if tree.get(name) is not None:
        yield from choice_errors(tree, name, path, known)


def required_errors(tree: Unstructured, path: str, *names: str) -> Iterator[FieldError]:
    for name in names:
        if not tree.get(name):
            yield required(f"{path}.{name}" if path else name)


def minimum_errors(tree: Unstructured, name: str, path: str, minimum: int = 0) -> Iterator[FieldError]:
    """A number that must not be below a minimum."""
    value = tree.get(name)
    if value is not None and value < minimum:
        yield invalid(f"{path}.{name}", value, f"must be greater than or equal to {minimum}")
