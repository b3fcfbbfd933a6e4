"""The cluster of a question, as it is and with changes: what the engine decides about the subject.

Base class of `why.Inquiry`; `patches` tries its proposals through it. Everything is computed on first use, since plans
and snapshots are most of the cost of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

from windlass.diagnose.engine_view import QUEUEING_CODES, EngineView
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.fit import FitChecker
from windlass.diagnose.subject import Subject, group_of, template_pods
from windlass.dump.configuration import Configuration, choose_configuration
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.pod import Pod


class WhatIf:
    def __init__(
        self, evidence: Evidence, subject: Subject, now: int, configuration: Configuration | None = None
    ) -> None:
        """Without a configuration, the one published by the subject's scheduler is used, else the defaults."""
        self.subject, self.now = subject, now
        self.tries_patches = True
        self.configuration = configuration or choose_configuration(
            evidence.published_configurations, _scheduler_names(subject)
        )
        self.evidence = evidence.visible_to(self.settings)
        self._excludes_all_nodes = bool(evidence.nodes) and not self.evidence.nodes

    def share(self, other: WhatIf) -> None:
        """Takes over the snapshot and the plan of a question about the same evidence with the same configuration."""
        self.evidence, self._excludes_all_nodes = other.evidence, other._excludes_all_nodes
        self.fit, self.engine = other.fit, other.engine

    @property
    def settings(self) -> Settings:
        return self.configuration.settings

    @property
    def is_windlass(self) -> bool:
        """Whether Windlass places its pods."""
        return any(name in self.settings.scheduler_names for name in _scheduler_names(self.subject))

    @cached_property
    def fit(self) -> FitChecker:
        """The cluster as it is."""
        return FitChecker(self.evidence.objects, self.now, self.settings)

    @cached_property
    def fit_without_subject(self) -> FitChecker:
        """The cluster without the subject's own pods, to place them again."""
        own = {id(pod.decoded) for pod in self.subject.pods}
        return FitChecker([obj for obj in self.evidence.objects if id(obj) not in own], self.now, self.settings)

    def fit_with(self, nodes: Mapping[str, Node]) -> FitChecker:
        """The cluster with some nodes replaced."""
        objects = [nodes.get(obj.name, obj) if isinstance(obj, Node) else obj for obj in self.evidence.objects]
        return FitChecker(objects, self.now, self.settings)

    def would_start_with(self, item: ClusterObject, data: dict[str, Any]) -> bool:
        """Whether the engine would start the subject if `item` had this content."""
        try:
            value = decode_object(data)
        except InputError:
            return False
        objects = [value if obj is item.decoded else obj for obj in self.evidence.objects]
        view = EngineView(FitChecker(objects, self.now, self.settings).snapshot, self.settings, self.now)
        return view.would_start(self._keys)

    def would_start_as(self, changed: Mapping[int, Pod]) -> bool:
        """Whether the engine would start the subject if these of its pods (by identity) were others."""
        objects = [changed.get(id(obj), obj) for obj in self.evidence.objects]
        view = EngineView(FitChecker(objects, self.now, self.settings).snapshot, self.settings, self.now)
        return view.would_start(self._keys)

    @cached_property
    def templates(self) -> list[Pod]:
        """The pods that the subject would create, one per template."""
        return template_pods(self.subject.item)[0]

    @cached_property
    def engine(self) -> EngineView:
        """The engine's plan for everything that waits."""
        return EngineView(self.fit.snapshot, self.settings, self.now)

    @cached_property
    def explained_hold(self) -> Hold | None:
        """The engine's hold of the subject, with what would help; None if it does not wait."""
        return self._if_known(self.engine.explained_hold)

    @cached_property
    def decided_hold(self) -> Hold | None:
        """The same hold without explanations: the first link of the chain. None if no pod of the subject waits."""
        # A pod with a node does not wait; of any other subject, more pods may still be created.
        if self.subject.item.kind == "Pod" and not self.subject.pending:
            return None
        return self._if_known(self.engine.decided_hold)

    def _if_known(self, ask: Callable[[Collection[str]], Hold | None]) -> Hold | None:
        """Without nodes in the evidence, only holds that do not depend on nodes count."""
        try:
            found = ask(self._keys)
        except InputError:
            return None  # another waiting object is invalid; the subject itself was checked before
        is_known = bool(self.evidence.nodes) or self._excludes_all_nodes
        is_known |= found is not None and found.verdict.code in QUEUEING_CODES
        return found if is_known else None

    @cached_property
    def _keys(self) -> list[str]:
        """Workload keys under which the engine may hold the subject."""
        subject = self.subject
        objects = (subject.item, *subject.owners, *subject.related, *subject.pods)
        groups = {f"{pod.namespace}/{group.name}" for pod in subject.pods if (group := group_of(pod))}
        gangs = self.engine.workloads_containing(f"{pod.namespace}/{pod.name}" for pod in subject.pods)
        own = [key for obj in objects for key in self.engine.keys_of(obj.kind, f"{obj.namespace}/{obj.name}")]
        return list(dict.fromkeys([*own, *sorted(groups), *gangs]))


def _scheduler_names(subject: Subject) -> list[str]:
    """Of its pods, or of its templates if there are none."""
    pods = [item.decoded for item in subject.pods if isinstance(item.decoded, Pod)]
    return [pod.spec.scheduler_name for pod in pods or template_pods(subject.item)[0]]
