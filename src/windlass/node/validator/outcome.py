"""What a check of the validator says. Made by `checks` and `node_checks`; printed by `windlass node validate`."""

from __future__ import annotations

import msgspec

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "does not apply"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check on one GPU, or on the node."""

    name: str
    outcome: str
    evidence: str
    gpu: int | None = None
    remedy: str = ""
