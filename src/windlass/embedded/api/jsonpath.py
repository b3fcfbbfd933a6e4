"""The JSONPath subset of printer columns: `.status.conditions[?(@.type=="Ready")].status`.

Used by `custom_kind`. A path is parsed once into steps; the result is a list of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.embedded.api.numbers import parse_signed

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\\])+)
    |\[\s*(?P<index>-?[0-9]{1,18})\s*\]
    |\[\s*\*\s*\]
    |\[\s*(?P<quote>['"])(?P<key>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*\]
    |\[\?\(\s*@\.(?P<field>[\w.\-/\\]+)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.\-]+)\s*\)\]""",
    re.VERBOSE,
)


class BadPath(ValueError):
    """A path that can't be parsed."""


@bounded_cache(4096)
def compile_path(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadPath(f"unrecognized character in action at {text[position:]!r}")
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def find(value: Any, path: str) -> list[Any]:
    """All values at the path."""
    found = [value]
    for step in compile_path(path):
        found = [inner for item in found for inner in step(item)]
    return found


def _step(match: re.Match[str]) -> Step:
    if match["name"] == "*" or match[0].replace(" ", "") == "[*]":
        return _all
    if match["name"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["name"]))
    if match["index"] is not None:
        return _element(int(match["index"]))
    if match["key"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["key"]))
    return _filter(match["field"].split("."), match["operator"] == "==", _literal(match["value"]))


def _literal(text: str) -> Any:
    if text[:1] in "\"'":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    number = parse_signed(text)
    return text if number is None else number


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _element(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _filter(names: list[str], equal: bool, wanted: Any) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for element in value if isinstance(value, list) else ():
            found = element
            for name in names:
                found = found.get(name) if isinstance(found, dict) else None
            if (found == wanted) == equal:
                yield element

    return step
