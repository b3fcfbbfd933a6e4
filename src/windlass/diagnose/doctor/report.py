"""What a doctor's check found.

Checks return `Symptom`s; the command prints them, and the exit code says if any is grave.
"""

from __future__ import annotations

from typing import Any

import msgspec

OK, WARNING, ERROR = "ok", "warning", "error"


class Symptom(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    level: str
    where: str
    """The node, pool or file that it is about."""
    saw: str
    meaning: str = ""
    command: str = ""
    """What mends it, or shows more."""


def document(symptoms: list[Symptom]) -> dict[str, Any]:
    """`DoctorReport`."""
    fit = not any(symptom.level == ERROR for symptom in symptoms)
    return {
        "apiVersion": "windlass.dev/v1",
        "kind": "DoctorReport",
        "fit": fit,
        "findings": [msgspec.to_builtins(symptom) for symptom in symptoms],
    }
