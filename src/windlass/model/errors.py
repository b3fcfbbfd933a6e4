"""The exceptions that a user sees, as a tree; the type decides the exit code of a command.

    WindlassError               1  findings, or "no"
    ├── InputError              2  wrong usage, or an object, file or trace line that can't be read
    └── ClusterUnreachable      3  the cluster, or a part of it, can't be reached or read

Raised by every package; `cli.errors` prints them as one line on stderr. An `InputError` is raised by code that knows
only the field; callers that know the object or the file add it with `with_context`.
"""

from __future__ import annotations

from typing import TypedDict, Unpack


class WindlassError(Exception):
    """Base of all errors that a user is meant to read."""

    exit_code: int = 1


class ErrorContext(TypedDict, total=False):
    """Where an input error is, and what would help."""

    file: str
    line: int
    column: int
    object: str
    path: str
    remedy: str
    code: str


class InputError(WindlassError):
    """An input is wrong: which object, which field, why, and the remedy.

    `object` is `Kind namespace/name`, `path` is in Kubernetes' notation (`spec.containers[0].resources.limits.cpu`),
    `code` is the root-cause code if the mistake has one of its own.
    """

    exit_code = 2

    def __init__(self, message: str, **context: Unpack[ErrorContext]) -> None:
        super().__init__(message)
        self.message = message
        self.file = context.get("file", "")
        self.line = context.get("line", 0)
        self.column = context.get("column", 0)
        self.object = context.get("object", "")
        self.path = context.get("path", "")
        self.remedy = context.get("remedy", "")
        self.code = context.get("code", "")

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        parts = [part for part in (place, self.object, self.path, self.message) if part]
        tail = f" ({self.remedy})" if self.remedy else ""
        return (": ".join(parts) + tail).replace("\n", " ")

    def with_context(self, **context: Unpack[ErrorContext]) -> InputError:
        """A copy in which the parts that were absent are filled in; what is already known stays."""
        mine: ErrorContext = {
            "file": self.file or context.get("file", ""),
            "line": self.line or context.get("line", 0),
            "column": self.column or context.get("column", 0),
            "object": self.object or context.get("object", ""),
            "path": self.path or context.get("path", ""),
            "remedy": self.remedy or context.get("remedy", ""),
            "code": self.code or context.get("code", ""),
        }
        return InputError(self.message, **mine)


class ClusterUnreachable(WindlassError):
    """The API server, or another part of the cluster, did not answer."""

    exit_code = 3
