"""The result of a check of `doctor`, and the DoctorReport. Used by `cluster`, `local_host` and `cli.doctor`."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.names.windlass import WINDLASS_API_VERSION

OK, WARNING, ERROR = "ok", "warning", "error"


class Symptom(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    level: str
    where: str
    """The node, pool, object or file."""
    saw: str
    meaning: str = ""
    command: str = ""
    """A command that repairs it or shows more."""


def document(symptoms: list[Symptom]) -> dict[str, Any]:
    """`DoctorReport`."""
    fit = not any(symptom.level == ERROR for symptom in symptoms)
    return {
        "apiVersion": WINDLASS_API_VERSION,
        "kind": "DoctorReport",
        "fit": fit,
        "findings": [msgspec.to_builtins(symptom) for symptom in symptoms],
    }
