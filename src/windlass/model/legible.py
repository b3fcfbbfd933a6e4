"""Annotations of ours that can't be read: they bound, rank or place nothing, and that is said instead of passed over.

`planner` asks for them with every plan of a set of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windlass.model.configuration import PLACEMENTS
from windlass.model.errors import InputError
from windlass.model.meta import ObjectMeta
from windlass.model.times import duration_seconds, seconds_of

OURS = "windlass.dev/"
MOST_SAID = 8


def illegible(things: Iterable[object]) -> list[str]:
    """One sentence for each such annotation, the first few."""
    said: list[str] = []
    for thing in things:
        metadata = getattr(thing, "metadata", None)
        if isinstance(metadata, ObjectMeta) and metadata.annotations:
            where = f"{metadata.namespace or 'default'}/{metadata.name}"
            said += [f"{where}: {problem}" for problem in _problems(metadata.annotations)]
    more = (
        [f"and {len(said) - MOST_SAID} more annotations that can't be read"] if len(said) > MOST_SAID else []
    )
    return [*said[:MOST_SAID], *more]


def _problems(annotations: Mapping[str, str]) -> list[str]:
    return [
        f"annotation {name}: {annotations[name][:64]!r} can't be read and counts as not given (use {use})"
        for name, (is_legible, use) in _RULES.items()
        if name in annotations and not is_legible(annotations[name])
    ]


def _is_duration(text: str) -> bool:
    try:
        return duration_seconds(text) > 0
    except InputError:
        return False


_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    f"{OURS}placement": (PLACEMENTS.__contains__, ", ".join(PLACEMENTS)),
    f"{OURS}duration": (_is_duration, "a duration such as 90m or 2h30m"),
    f"{OURS}restart-cost": (lambda text: text in ("0", "0s") or _is_duration(text), "a duration such as 10m"),
    f"{OURS}last-checkpoint": (lambda text: seconds_of(text) > 0, "a time such as 2026-01-31T08:00:00Z"),
}
