"""The cluster that a question is about, as it is and as it might be: what the engine makes of the subject in it.

Base of `why`'s inquiry; `patches` tries its proposals through it. Everything is made when it is first looked at, since
that is most of the cost of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.fit import Fit
from windlass.diagnose.outlook import BEFORE_NODES, EngineView
from windlass.diagnose.subject import Subject, group_names, template_pods
from windlass.dump.configuration import Configuration, choose
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.objects import decode_object
from windlass.model.pod import Pod


class WhatIf:
    def __init__(
        self, evidence: Evidence, subject: Subject, now: int, configuration: Configuration | None = None
    ) -> None:
        """Without a configuration, that of the subject's own scheduler is used, as far as it is published."""
        self.subject, self.now = subject, now
        self.configuration = configuration or choose(evidence.published, _scheduler_names(subject))
        self.evidence = evidence.seen_by(self.settings)

    @property
    def settings(self) -> Settings:
        return self.configuration.settings

    @cached_property
    def fit(self) -> Fit:
        """The cluster as it is, to try pods on."""
        return Fit(self.evidence.objects, self.now, self.settings)

    @cached_property
    def fit_without_own(self) -> Fit:
        """The cluster without the subject's own pods: where they would go if they were made anew."""
        own = {id(pod.value) for pod in self.subject.pods}
        return Fit([one for one in self.evidence.objects if id(one) not in own], self.now, self.settings)

    def fit_with(self, nodes: Mapping[str, Node]) -> Fit:
        """The cluster with some nodes as they might be."""
        objects = [
            nodes.get(one.name, one) if isinstance(one, Node) else one for one in self.evidence.objects
        ]
        return Fit(objects, self.now, self.settings)

    def starts_with(self, item: Item, data: dict[str, Any]) -> bool:
        """Whether the engine would start the subject if the object were written so."""
        try:
            value = decode_object(data)
        except InputError:
            return False
        objects = [value if one is item.value else one for one in self.evidence.objects]
        view = EngineView(Fit(objects, self.now, self.settings).snapshot, self.settings, self.now)
        return view.starts(self._keys)

    @cached_property
    def templates(self) -> list[Pod]:
        """The pods that the subject would make, one a template."""
        return template_pods(self.subject.item)[0]

    @cached_property
    def engine(self) -> EngineView:
        """What the scheduler would decide of everything that waits."""
        return EngineView(self.fit.snapshot, self.settings, self.now)

    @cached_property
    def hold(self) -> Hold | None:
        """The engine's hold of the subject with what would help, where it would wait."""
        return self._if_told(self.engine.hold_of)

    @cached_property
    def held(self) -> Hold | None:
        """The same hold as it was decided, where anything of the subject waits: the first link of every chain."""
        # A pod that has its node waits for nothing; of anything larger, more may be still to come.
        if self.subject.item.kind == "Pod" and not self.subject.pending:
            return None
        return self._if_told(self.engine.code_of)

    def _if_told(self, ask: Callable[[Collection[str]], Hold | None]) -> Hold | None:
        """Without nodes in the evidence, only what the engine holds for before it looks at any."""
        try:
            found = ask(self._keys)
        except InputError:
            return None  # something else that waits can't be read; what is asked about has been judged
        is_told = bool(self.evidence.nodes) or (found is not None and found.verdict.code in BEFORE_NODES)
        return found if is_told else None

    @cached_property
    def _keys(self) -> list[str]:
        """Names under which the engine may know the subject."""
        subject = self.subject
        things = (subject.item, *subject.owners, *subject.family, *subject.pods)
        groups = {f"{pod.namespace}/{name}" for pod in subject.pods for name in group_names(pod)}
        gangs = self.engine.workloads_with(f"{pod.namespace}/{pod.name}" for pod in subject.pods)
        own = [f"{one.namespace}/{one.name}" for one in things]
        return list(dict.fromkeys([*own, *sorted(groups), *gangs]))


def _scheduler_names(subject: Subject) -> list[str]:
    """Of its pods, or of those that it would make."""
    pods = [item.value for item in subject.pods if isinstance(item.value, Pod)]
    return [pod.spec.scheduler_name for pod in pods or template_pods(subject.item)[0]]
