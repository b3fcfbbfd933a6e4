"""An internal error that concerns one object: a stable id, where it was raised, and what its owner is told.

`cluster` uses it where an object can't be read for a reason that nobody foresaw, `isolation` where a decision on a
workload fails. The text names no other object: the error itself may, and goes to the log only.
"""

from __future__ import annotations

import hashlib
from types import TracebackType

import msgspec

INTERNAL_ERROR = "INTERNAL_ERROR"
"""Code of holds that are our own fault."""


class Bug(msgspec.Struct, frozen=True):
    id: str
    """The same for the same kind of error at the same place of the code."""
    kind: str
    """Type of the exception."""
    where: str
    """Module and function."""

    @property
    def message(self) -> str:
        return (
            f"a bug in Windlass: it can't be decided on ({self.kind} in {self.where}); all other work is; report bug "
            f"{self.id} with the log of the scheduler"
        )


def bug_of(error: BaseException) -> Bug:
    where = _innermost(error.__traceback__)
    kind = type(error).__name__
    return Bug(hashlib.sha256(f"{kind} {where}".encode()).hexdigest()[:8], kind, where)


def _innermost(trace: TracebackType | None) -> str:
    """The innermost function of ours, or the innermost one of all."""
    found, ours = "", ""
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        found = f"{module.removeprefix('windlass.')}.{code.co_name}"
        ours = found if module.startswith("windlass.") else ours
        trace = trace.tb_next
    return ours or found or "an unknown place"
