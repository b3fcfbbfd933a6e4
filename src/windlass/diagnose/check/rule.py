"""The registry of rules, and what a rule gets and reports.

Rules are functions registered by the decorator `rule` with a stable name, a level and a summary; `cli.check` runs them
through `check_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.fit import FitChecker
from windlass.diagnose.unstructured import nested_int, nested_maps, nested_strings
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.kueue import QueueObject, queue_system
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.queue import QueueSystem
from windlass.model.verdict import Verdict
from windlass.planner import plan_objects
from windlass.queueing.quota_tree import QuotaTree

ERROR, WARNING, INFO = "error", "warning", "info"
LEVELS = (INFO, WARNING, ERROR)


class Fix(msgspec.Struct, frozen=True):
    """A change of one field of the manifest, for `check --fix`."""

    path: str
    value: object = None
    """None: remove the field."""


class CheckFinding(msgspec.Struct, frozen=True):
    rule: str
    level: str
    object: str
    file: str
    line: int
    path: str
    message: str
    fix: str = ""
    change: Fix | None = None


class RuleFinding(msgspec.Struct, frozen=True):
    """What a rule function yields; `check_all` adds rule, object, file and line."""

    message: str
    path: str = ""
    fix: str = ""
    level: str = ""
    """If it differs from the rule's level."""
    change: Fix | None = None


class CheckContext:
    """What a manifest is checked against: the other manifests, and the cluster if there is one."""

    def __init__(self, manifests: list[Manifest], evidence: Evidence | None, now: int, settings: Settings) -> None:
        self.manifests, self.evidence, self.now, self.settings = manifests, evidence, now, settings

    @cached_property
    def nodes(self) -> list[Node]:
        return list(self.evidence.nodes.values()) if self.evidence is not None else []

    @cached_property
    def fit(self) -> FitChecker | None:
        return (
            FitChecker(self.evidence.objects, self.now, self.settings)
            if self.evidence is not None and self.nodes
            else None
        )

    @cached_property
    def images(self) -> dict[str, dict[str, int]]:
        """Node → image → bytes, of nodes whose status lists images."""
        items = self.evidence.of_kind("Node") if self.evidence is not None else []
        return {item.name: found for item in items if (found := _images(item.data))}

    @cached_property
    def _plan(self) -> Plan:
        """What the engine would decide if the manifests were submitted now; empty where nothing is known of nodes."""
        if self.evidence is None or not self.nodes:
            return Plan()
        added = [obj for manifest in self.manifests if (obj := _submitted(manifest)) is not None]
        try:
            return plan_objects([*self.evidence.objects, *added], self.settings, self.now)[0]
        except InputError:
            return Plan()  # an object of the cluster is invalid; `fits-now` then asks the filters instead

    @cached_property
    def engine_holds(self) -> dict[str, Verdict]:
        """`namespace/name` → verdict, of what the engine would hold if the manifests were submitted now."""
        return {hold.workload: hold.verdict for hold in self._plan.holds}

    @cached_property
    def engine_starts(self) -> dict[str, tuple[int, int]]:
        """`namespace/name` → how many pods the engine would start, and of how many."""
        bound = {bind.pod: (1, 1) for bind in self._plan.binds}
        return bound | {
            admit.workload: (
                sum(sum(pod_set.nodes.values()) for pod_set in admit.pod_sets),
                sum(pod_set.wanted or pod_set.count for pod_set in admit.pod_sets),
            )
            for admit in self._plan.admits
        }

    @cached_property
    def quota_tree(self) -> QuotaTree:
        """The queues of the cluster and of the manifests, with nothing admitted."""
        known = list(self.evidence.objects) if self.evidence is not None else []
        submitted = [manifest.decoded for manifest in self.manifests if isinstance(manifest.decoded, QueueObject)]
        try:
            return QuotaTree(queue_system([*known, *submitted]))
        except InputError:
            return QuotaTree(QueueSystem())  # a queue of the cluster is invalid

    @cached_property
    def _by_kind(self) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for manifest in self.manifests:
            found.setdefault(manifest.kind, []).append(manifest)
        return found

    def of_kind(self, kind: str) -> list[Manifest]:
        return self._by_kind.get(kind, [])


def _images(node: dict[str, Any]) -> dict[str, int]:
    rows = nested_maps(node, "status", "images")
    return {name: nested_int(row, "sizeBytes") for row in rows for name in nested_strings(row, "names")}


def _submitted(manifest: Manifest) -> object:
    """The object as the API server would store it; None if it is invalid, which other rules report."""
    if any(view.validation_error is not None for view in manifest.pods):
        return None
    return None if isinstance(manifest.decoded, InputError) else manifest.decoded


RuleFunction = Callable[[Manifest, CheckContext], Iterator[RuleFinding]]


class Rule(msgspec.Struct, frozen=True):
    name: str
    level: str
    summary: str
    check: RuleFunction


RULES: dict[str, Rule] = {}


def rule(name: str, level: str, summary: str) -> Callable[[RuleFunction], RuleFunction]:
    """Registers a rule under its stable name."""

    def register(function: RuleFunction) -> RuleFunction:
        assert name not in RULES, name
        RULES[name] = Rule(name, level, summary, function)
        return function

    return register


def check_all(
    manifests: list[Manifest],
    evidence: Evidence | None,
    now: int,
    only: frozenset[str] = frozenset(),
    settings: Settings | None = None,
) -> list[CheckFinding]:
    """Every rule on every manifest, in the order of the files. `settings` are those of the cluster's scheduler."""
    settings = settings or Settings()
    visible = evidence.visible_to(settings) if evidence is not None else None
    context = CheckContext(manifests, visible, now, settings)
    found: list[CheckFinding] = []
    for manifest in manifests:
        for rule in RULES.values():
            if (only and rule.name not in only) or manifest.ignores_rule(rule.name):
                continue
            for said in rule.check(manifest, context):
                found.append(
                    CheckFinding(
                        rule.name,
                        said.level or rule.level,
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
