"""Finds annotations of Windlass whose value can't be read and which therefore have no effect.

Called by `planner` for every plan of a set of objects, whose notes the sentences become, and by a rule of `check`. An
annotation whose wrong value holds the pod instead (as one of GPU requests) has no entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windlass.model.configuration import PLACEMENT_STRATEGIES
from windlass.model.errors import InputError
from windlass.model.flavor_offer import micro_amount
from windlass.model.leaving import ASK
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import (
    CHECKPOINT_GRACE_ANNOTATION,
    CHECKPOINT_INTERVAL_ANNOTATION,
    DECLARED_DURATION_ANNOTATION,
    GPU_HOUR_PRICE_ANNOTATION,
    INTERRUPTION_NOTICE_ANNOTATION,
    INTERRUPTIONS_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    LEAVE_ANNOTATION,
    ON_PREEMPTION_ANNOTATION,
    PLACEMENT_ANNOTATION,
    RESTART_COST_ANNOTATION,
)
from windlass.model.node import Node
from windlass.model.notices import read_leave_request
from windlass.model.times import parse_duration, parse_timestamp

MAX_REPORTED = 8


def invalid_annotations(objects: Iterable[object]) -> list[str]:
    """One sentence per annotation, at most `MAX_REPORTED` of them."""
    problems: list[str] = []
    for obj in objects:
        metadata = getattr(obj, "metadata", None)
        if isinstance(metadata, ObjectMeta) and metadata.annotations:
            where = f"{metadata.namespace or 'default'}/{metadata.name}"
            if isinstance(obj, Node):
                where = f"node {metadata.name}"
            found = annotation_problems(metadata.annotations)
            problems += [f"{where}: annotation {name}: {problem}" for name, problem in found]
    more = (
        [f"and {len(problems) - MAX_REPORTED} more annotations that can't be read"]
        if len(problems) > MAX_REPORTED
        else []
    )
    return [*problems[:MAX_REPORTED], *more]


def annotation_problems(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names of the annotations that can't be read, each with a sentence."""
    return [
        (name, f"{annotations[name][:64]!r} can't be read and counts as not given (use {use})")
        for name, (is_legible, use) in _RULES.items()
        if name in annotations and not is_legible(annotations[name])
    ]


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) > 0
    except InputError:
        return False


def _is_amount(text: str) -> bool:
    return micro_amount(text) is not None


_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    PLACEMENT_ANNOTATION: (PLACEMENT_STRATEGIES.__contains__, ", ".join(PLACEMENT_STRATEGIES)),
    DECLARED_DURATION_ANNOTATION: (_is_duration, "a duration such as 90m or 2h30m"),
    RESTART_COST_ANNOTATION: (
        lambda text: text in ("0", "0s") or _is_duration(text),
        "a duration such as 10m",
    ),
    ON_PREEMPTION_ANNOTATION: ((ASK,).__contains__, ASK),
    CHECKPOINT_GRACE_ANNOTATION: (_is_duration, "a duration such as 2m"),
    CHECKPOINT_INTERVAL_ANNOTATION: (_is_duration, "a duration such as 30m"),
    GPU_HOUR_PRICE_ANNOTATION: (_is_amount, "a number such as 1.20"),
    INTERRUPTIONS_ANNOTATION: (_is_amount, "a number such as 0.5"),
    INTERRUPTION_NOTICE_ANNOTATION: (_is_duration, "a duration such as 2m"),
    LAST_CHECKPOINT_ANNOTATION: (
        lambda text: parse_timestamp(text) > 0,
        "a time such as 2026-01-31T08:00:00Z",
    ),
    LEAVE_ANNOTATION: (
        lambda text: read_leave_request({LEAVE_ANNOTATION: text}) is not None,
        'JSON such as {"until": "2026-01-31T08:00:00Z"}',
    ),
}
