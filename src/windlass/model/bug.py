"""An internal error that concerns one object: a stable id, where it was raised, and what its owner is told.

`cluster` uses it where an object can't be read for a reason that nobody foresaw, `isolation` where a decision on a
workload fails. The text names no other object: the error itself may, and goes to the log only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from types import TracebackType

import msgspec

from windlass.model.piece_keys import workload_key

MAX_ARGUMENTS = 8
INTERNAL_ERROR = "INTERNAL_ERROR"
"""Code of holds that are our own fault."""


class Bug(msgspec.Struct, frozen=True):
    id: str
    """The same for the same kind of error at the same place of the code."""
    kind: str
    """Type of the exception."""
    where: str
    """Module, function and line."""

    @property
    def message(self) -> str:
        return (
            f"it is left out of decisions because of a bug in Windlass ({self.kind} in {self.where}); other work is "
            f"not affected; report bug {self.id} with the log of the scheduler"
        )


def bug_of(error: BaseException) -> Bug:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    function, line = _innermost(error.__traceback__)
    kind = type(error).__name__
    number = hashlib.sha256(f"{kind} {function}".encode()).hexdigest()[:8]
    return Bug(number, kind, f"{function}, line {line}")


def first_named(error: BaseException, keys: Collection[str]) -> str:
    """Which of the workloads the failed functions were about, the innermost function first; empty if none was."""
    found, trace = "", error.__traceback__
    while trace is not None:
        named = [key for value in trace.tb_frame.f_locals.values() for key in _keys_of(value) if key in keys]
        found = named[0] if named else found
        trace = trace.tb_next
    return found


def _keys_of(value: object) -> Iterator[str]:
    """The keys of the workloads, holds and pods that a variable has, also as one of a few arguments."""
    for item in value if isinstance(value, tuple | list) and len(value) <= MAX_ARGUMENTS else (value,):
        for key in (item, getattr(item, "key", ""), getattr(item, "workload", "")):
            if isinstance(key, str):
                yield workload_key(key)


def _innermost(trace: TracebackType | None) -> tuple[str, int]:
    """The innermost function of ours, or the innermost one of all, and the line."""
    found, ours = ("an unknown place", 0), None
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        found = (f"{module.removeprefix('windlass.')}.{trace.tb_frame.f_code.co_name}", trace.tb_lineno)
        ours = found if module.startswith("windlass.") else ours
        trace = trace.tb_next
    return ours or found
