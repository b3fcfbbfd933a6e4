"""Changes trees and texts so that they are nearly right: the values that break programs, at places that matter.

`targets` draws its inputs with it. A tree keeps its form where it can: a quantity becomes another strange quantity more
often than a list, fields come from those that other objects have, and parts of other objects are grafted in.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from random import Random
from typing import Any

from windlass.embedded.api.json_trees import deep_copy

NAME_MODULES = ("kai", "kubernetes", "kueue", "nvidia", "others", "volcano", "windlass")
QUANTITIES = (
    *("0", "-1", "1", "0.5", "500m", "1k", "1Ei", "5000000000", "9223372036854775807", "9223372036854775808"),
    *("1e400", "1e-400", "1e1000000000", "9" * 40, "9" * 5000, "Ki", "0x10", "+5", " 5", "1_000", "NaN", "Infinity"),
    *("²", "１", "٣", "1.5.5", "100%", "-5%", "1e", "m", "0.0000000000001"),
)
TIMES = (
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z"),
    *(
        "2026-01-01T00:00:00+99:99",
        "1970-01-01T00:00:00.999999999Z",
        "2026-01-01T24:00:00Z",
        "now",
        "1969-12-31T00:00Z",
    ),
    *("１９７０-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "2026-01-01", "1e9", "2026-01-01T00:00:00-23:59"),
)
DURATIONS = ("1h", "0s", "-1s", "9000000000s", "2000000h", "1e99h", ".5h", "h", "１h", "9" * 30 + "h", "1ns", "60", "∞")
TEXTS = (
    *("", "a", "x" * 300, "é", "\x1b[31mred\x1b]0;t\x07", "\x00", "\u2028", "..", "a/b/c", "/", "-", "$(X)", "{{x}}"),
    *(
        "true",
        "null",
        "~",
        "[1]",
        "{",
        "{}",
        '{"a":1}',
        "a,b",
        "a=b",
        "a in (b)",
        "'",
        '"',
        "\\",
        "x" * 5000,
        "*",
        "0-9",
    ),
    *("0-2147483646", "default", "kube-system", "main", "nvidia.com/gpu", "windlass.dev/x", "%s", "\r\nX: y", "🧨"),
)
NUMBERS = (0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1.5, -0.5, 1e308, 1e-308)
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, ["a", "a"], [1, "b"])
EXPRESSIONS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "exists", "")
MAX_REPEATED, MAX_REPEATED_BYTES = 40, 100_000


@functools.cache
def known_names() -> tuple[str, ...]:
    """Labels, annotations and resources that Windlass reads."""
    found: set[str] = set()
    for module in NAME_MODULES:
        values = vars(import_module(f"windlass.model.names.{module}")).items()
        found |= {value for name, value in values if name.isupper() and isinstance(value, str)}
    return tuple(sorted(found))


def strange_value(rng: Random, like: Any = None) -> Any:
    """Any value; where there was one, mostly of the same form."""
    if isinstance(like, str) and rng.random() < 0.75:
        return rng.choice(_texts_like(like))
    if isinstance(like, int | float) and not isinstance(like, bool) and rng.random() < 0.7:
        return rng.choice(NUMBERS)
    group: Sequence[Any] = rng.choice((QUANTITIES, TIMES, DURATIONS, TEXTS, NUMBERS, SHAPES, EXPRESSIONS))
    return deep_copy(rng.choice(group))


def _texts_like(text: str) -> Sequence[str]:
    if text[:1].isdigit() and "T" in text and "-" in text:
        return TIMES
    if text[-1:] in ("s", "h") and text[:1].isdigit():
        return DURATIONS
    if text[:1].isdigit():
        return QUANTITIES
    return (*TEXTS, *EXPRESSIONS)


class Mutator:
    """Mutates with what other trees have: `samples` are where fields and parts are taken from."""

    def __init__(self, samples: Iterable[Any]) -> None:
        self._values: dict[str, list[Any]] = {}
        for sample in samples:
            for container, key in places(sample):
                if isinstance(container, dict):
                    self._values.setdefault(key, []).append(container[key])
        self._keys = sorted(self._values)

    def tree(self, tree: Any, rng: Random, changes: int) -> Any:
        """A changed copy; apiVersion and kind stay, so that it gets past the first check."""
        made = deep_copy(tree)
        for _ in range(changes):
            there = [place for place in places(made) if place[1] not in ("apiVersion", "kind")]
            if not there:
                return made
            container, key = rng.choice(there)
            self._change(container, key, there, rng)
        return made

    def _change(self, container: Any, key: Any, there: list[tuple[Any, Any]], rng: Random) -> None:
        value, how = container[key], rng.random()
        if how < 0.4:
            container[key] = strange_value(rng, value)
        elif how < 0.5:
            del container[key]
        elif how < 0.6 and isinstance(value, dict):
            field = rng.choice(self._keys)
            value[field] = deep_copy(rng.choice(self._values[field]))
        elif how < 0.72 and key in self._values:
            container[key] = deep_copy(rng.choice(self._values[key]))
        elif how < 0.82 and key in ("labels", "annotations", "limits", "requests", "allocatable", "nodeSelector"):
            name = rng.choice(known_names())
            container[key] = {**(value if isinstance(value, dict) else {}), name: strange_value(rng, "1")}
        elif how < 0.88:
            other, other_key = rng.choice(there)
            container[key] = deep_copy(other[other_key])
        elif how < 0.93 and isinstance(value, list) and value:
            container[key] = value * min(rng.randint(2, MAX_REPEATED), 1 + MAX_REPEATED_BYTES // size_of(value))
        else:
            container[key] = [value] if rng.random() < 0.5 else {"value": value}

    def text(self, text: str, rng: Random, changes: int) -> str:
        """A text with some of its letters or lines changed, doubled, moved or cut."""
        for _ in range(changes):
            how, at = rng.random(), rng.randint(0, len(text))
            lines = text.splitlines(keepends=True)
            if how < 0.35:
                text = text[:at] + str(strange_value(rng, "1")) + text[at + rng.randint(0, 4) :]
            elif how < 0.5 and lines:
                del lines[rng.randrange(len(lines))]
                text = "".join(lines)
            elif how < 0.65 and lines:
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                text = "".join(lines)
            elif how < 0.75:
                text = text[:at]
            elif how < 0.9:
                text = text[:at] + rng.choice("{}[]:,-&*!|>%@`'\"#\t \n\0\ufeff") + text[at:]
            else:
                text = text[:at] + rng.choice(YAML_TRICKS) + text[at:]
        return text


YAML_TRICKS = (
    *("!!timestamp x", "!!binary é", "!!set {a}", "!!python/name:os.system ", "&a [*a]", "<<: *x", "--- \n", "...\n"),
    *("? [a]\n: b", "!!float nan", "0o17", "1:30:00", "=", "\n\t- x\n", "%YAML 9.9\n", "|9\n", "!!int 1_0", ".inf"),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree: the container and the key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from places(item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from places(item)


def size_of(tree: Any) -> int:
    return len(json.dumps(tree))
