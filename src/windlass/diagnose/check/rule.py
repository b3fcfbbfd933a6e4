"""What a rule is, and what it reports.

Rules are plain functions, registered with a stable name, a level and what they need; `check_all` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import msgspec

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.fit import Fit
from windlass.model.node import Node

ERROR, WARNING, INFO = "error", "warning", "info"
LEVELS = (INFO, WARNING, ERROR)


class Fix(msgspec.Struct, frozen=True):
    """A change of the manifest's text: the value at the path, or the removal of the field."""

    path: str
    value: object = None
    """None: remove the field."""


class CheckFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong, or will be."""

    rule: str
    level: str
    object: str
    file: str
    line: int
    path: str
    message: str
    fix: str = ""
    change: Fix | None = None


class Said(msgspec.Struct, frozen=True):
    """What a rule function yields; where and by which rule is added by whoever runs it."""

    message: str
    path: str = ""
    fix: str = ""
    level: str = ""
    """Where it differs from the rule's own."""
    change: Fix | None = None


class Around:
    """What the manifest is checked against: the other manifests, and a cluster where there is one."""

    def __init__(self, manifests: list[Manifest], evidence: Evidence | None, now: int) -> None:
        self.manifests, self.evidence, self.now = manifests, evidence, now

    @cached_property
    def nodes(self) -> list[Node]:
        return list(self.evidence.nodes.values()) if self.evidence is not None else []

    @cached_property
    def fit(self) -> Fit | None:
        return Fit(self.evidence.objects, self.now) if self.evidence is not None and self.nodes else None

    def of_kind(self, kind: str) -> list[Manifest]:
        return [one for one in self.manifests if one.kind == kind]


RuleFunction = Callable[[Manifest, Around], Iterator[Said]]


class Rule(msgspec.Struct, frozen=True):
    name: str
    level: str
    summary: str
    look: RuleFunction


RULES: dict[str, Rule] = {}


def rule(name: str, level: str, summary: str) -> Callable[[RuleFunction], RuleFunction]:
    """Registers a rule under its stable name."""

    def register(function: RuleFunction) -> RuleFunction:
        assert name not in RULES, name
        RULES[name] = Rule(name, level, summary, function)
        return function

    return register


def check_all(
    manifests: list[Manifest], evidence: Evidence | None, now: int, only: frozenset[str] = frozenset()
) -> list[CheckFinding]:
    """Every rule on every manifest, in the order of the files."""
    around = Around(manifests, evidence, now)
    found: list[CheckFinding] = []
    for manifest in manifests:
        for one in RULES.values():
            if (only and one.name not in only) or manifest.silences(one.name):
                continue
            for said in one.look(manifest, around):
                found.append(
                    CheckFinding(
                        one.name,
                        said.level or one.level,
                        manifest.title,
                        manifest.file,
                        manifest.line_of(said.path),
                        said.path,
                        said.message,
                        said.fix,
                        said.change,
                    )
                )
    return found
