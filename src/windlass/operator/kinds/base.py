"""The parts that the operator's kinds share: metadata, conditions, commands, and numbers of nodes."""

from __future__ import annotations

import re
from functools import lru_cache

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.times import parse_duration

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of a stack or a change: it becomes a label value and the value of a taint."""
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PERCENT = re.compile(r"[0-9]{1,3}%")


class SpecStruct(KubeStruct, frozen=True, forbid_unknown_fields=True):
    """Base of everything that a person writes."""


class Metadata(ObjectMeta, frozen=True):
    generation: int = 0


class Command(SpecStruct, frozen=True):
    """What a person asked for, once: it is done when `status.lastCommand` has its id."""

    id: str
    verb: str
    by: str = ""
    reason: str = ""


class Condition(KubeStruct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def node_count(amount: int | str, whole: int, *, round_up: bool) -> int:
    """An IntOrString such as 3 or "25%" of `whole` nodes."""
    if isinstance(amount, int):
        return amount
    share = int(amount.removesuffix("%")) * whole
    return -(-share // 100) if round_up else share // 100


@lru_cache(maxsize=256)
def seconds_of(duration: str) -> int:
    """Of a checked duration; asked again for every object in every decision."""
    return parse_duration(duration)


def check_node_count(amount: int | str, path: str, *, least: int = 0) -> None:
    is_number = isinstance(amount, int) and least <= amount <= 100_000
    is_share = isinstance(amount, str) and _PERCENT.fullmatch(amount) is not None and int(amount[:-1]) <= 100
    if not is_number and not is_share:
        raise InputError(
            f"{str(amount)[:32]!r} is not a number of nodes", path=path, remedy=f'write {max(least, 1)}, or "10%"'
        )


def check_seconds(text: str, path: str) -> None:
    try:
        parse_duration(text)
    except InputError as error:
        raise error.with_context(path=path) from None


def check_one_of(value: str, known: tuple[str, ...], path: str) -> None:
    if value not in known:
        raise InputError(f"unknown value {value[:64]!r}", path=path, remedy=f"use one of {', '.join(known)}")


def check_name(name: str, path: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name[:80]!r} is not a name", path=path, remedy="use up to 63 lower-case letters, digits and dashes"
        )


def check_command(command: Command | None, verbs: tuple[str, ...], path: str = "spec.command") -> None:
    if command is not None:
        check_one_of(command.verb, verbs, f"{path}.verb")
        if not command.id:
            raise InputError("a command needs an id", path=f"{path}.id", remedy="use `windlass change` or `repair`")
