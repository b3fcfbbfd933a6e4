"""`why -A`: everything that needs a person, and everything that only needs time, in a cluster or a namespace.

`cli.why` calls `survey`. Every object in trouble (`survey_subjects`) is asked about as `why` would be, on one plan for
all of them; objects with the same cause become one entry, and the entries that hold up most come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import BLOCKED, UNKNOWN, WAITING, WELL, Diagnosis
from windlass.diagnose.nodes import gpu_count
from windlass.diagnose.operator_reports import wanted_pods
from windlass.diagnose.subject import Subject, phase_of, subject_of, template_pods
from windlass.diagnose.survey_subjects import troubled_objects
from windlass.diagnose.unstructured import nested_map
from windlass.diagnose.why import Inquiry
from windlass.dump.configuration import Configuration
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_COUNT_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

STATE_ORDER = (BLOCKED, UNKNOWN, WAITING)
MAX_ASKED = 300
"""Questions of one survey. Pods alike share one; what is left over after these is counted, not judged."""


Answered = tuple[ClusterObject, Diagnosis]


class SurveyEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One cause, and what it keeps from running."""

    state: str
    """`blocked` needs a person, `unknown` needs a look, `waiting` only needs time."""
    code: str
    headline: str
    confidence: str
    changed_by: str
    subjects: tuple[str, ...]
    question: str
    """For `windlass why`: the first of the subjects."""
    gpus: int
    """GPUs that they ask for, or that are out of service."""
    since: str
    """Creation of the oldest of them; empty if unknown."""


class Survey(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `why -A`, the worst first."""

    namespace: str
    """Empty for the whole cluster."""
    entries: tuple[SurveyEntry, ...]
    asked: int
    """Objects that do not run, are not ready or are out of order."""
    not_asked: int = 0
    """How many of them were left out: more than `MAX_ASKED` that are not alike."""


def survey(evidence: Evidence, namespace: str, now: int, configuration: Configuration | None = None) -> Survey:
    """Raises `InputError` where nothing is known of the namespace."""
    known = {item.namespace for item in evidence.items.values()} | {item.name for item in evidence.of_kind("Namespace")}
    if namespace and namespace not in known:
        raise InputError(f"there is nothing of namespace {namespace} in the evidence")
    surveyor = Surveyor(evidence, now, configuration)
    items = troubled_objects(evidence, namespace)
    answers = [(item, surveyor.ask(item)) for item in items]
    judged = [(item, found) for item, found in answers if found is not None]
    entries = _entries(evidence, [(item, found) for item, found in judged if found.state != WELL])
    return Survey(namespace, tuple(sorted(entries, key=_rank)), len(items), len(items) - len(judged))


class Surveyor:
    """Asks about many objects on one plan, and about pods that are alike once."""

    def __init__(self, evidence: Evidence, now: int, configuration: Configuration | None) -> None:
        self._evidence, self._now, self._configuration = evidence, now, configuration
        self._inquiries: list[Inquiry] = []
        """The first one of each configuration; the others share its plan."""
        self._answers: dict[object, Diagnosis] = {}
        self._asked = 0

    def ask(self, item: ClusterObject) -> Diagnosis | None:
        """None once `MAX_ASKED` questions were asked."""
        inquiry = self._inquiry(subject_of(self._evidence, item))
        key = self._likeness(inquiry)
        found = self._answers.get(key)
        if found is None and self._asked < MAX_ASKED:
            self._asked += 1
            found = self._answers[key] = inquiry.brief()
        return found

    def _inquiry(self, subject: Subject) -> Inquiry:
        made = Inquiry(self._evidence, subject, self._now, self._configuration)
        for inquiry in self._inquiries:
            if inquiry.configuration == made.configuration:
                made.share(inquiry)
                return made
        self._inquiries.append(made)
        return made

    def _likeness(self, inquiry: Inquiry) -> object:
        """Equal for objects to which the answer is the same: same hold, same kind of pods, same warnings."""
        subject, hold = inquiry.subject, inquiry.decided_hold
        waiting = subject.pending
        if hold is None or not waiting or len(waiting) != len(subject.pods):
            return id(subject.item)
        shapes = inquiry.engine.shapes_of(f"{pod.namespace}/{pod.name}" for pod in waiting)
        return (
            *(subject.item.kind, subject.item.namespace, hold.verdict.code, hold.verdict.detail),
            *(shapes, len(waiting), self._warnings((*subject.related, waiting[0]))),
        )

    def _warnings(self, items: Iterable[ClusterObject]) -> tuple[str, ...]:
        events = (event for item in items for event in self._evidence.events_of(item) if event.warning)
        return tuple(sorted({event.reason for event in events}))


# Entries: objects with the same cause together


def _entries(evidence: Evidence, answers: list[Answered]) -> list[SurveyEntry]:
    """One entry for each cause; what only needs time is told apart by its code and namespace alone."""
    groups: dict[object, list[Answered]] = {}
    names = _Names(evidence, answers)
    for item, found in answers:
        key = item.namespace if found.is_wait else names.without(found.headline)
        groups.setdefault((found.code, key), []).append((item, found))
    return [_entry(evidence, group) for group in _merged(list(groups.values()))]


def _merged(groups: list[list[Answered]]) -> list[list[Answered]]:
    """Objects that the sentence about others names already are part of that entry: a queue, a DaemonSet."""
    kept: list[list[Answered]] = []
    for group in sorted(groups, key=lambda group: all(item.kind in BELOW_WORKLOADS for item, _ in group)):
        for other in kept:
            headline, code = other[0][1].headline, other[0][1].code
            if code == group[0][1].code and all(item.title in headline for item, _ in group):
                other += group
                break
        else:
            kept.append(group)
    return kept


BELOW_WORKLOADS = ("Node", "DaemonSet", "ClusterQueue", "LocalQueue", "ResourceQuota")
"""Kinds that workloads depend on: older than their troubles, and named by the sentences about workloads."""


class _Names:
    """Leaves names and numbers out of sentences: the same fault on forty nodes is one entry."""

    def __init__(self, evidence: Evidence, answers: list[Answered]) -> None:
        self._names = {*evidence.nodes, *(item.name for item, _ in answers)}
        self._names |= {f"{item.namespace}/{item.name}" for item, _ in answers}

    def without(self, sentence: str) -> str:
        sentence = ON_NODE.sub("", sentence).lower()
        return " ".join(word for word in WORD.findall(sentence) if word not in self._names and not word[0].isdigit())


ON_NODE = re.compile(r"^On node \S+, ")
WORD = re.compile(r"[\w./-]*\w")


def _entry(evidence: Evidence, group: list[Answered]) -> SurveyEntry:
    gpus = {id(item): _concerned_gpus(evidence, item) for item, _ in group}
    # What waits says more than what it waits for.
    group = sorted(group, key=lambda answer: (answer[0].kind in BELOW_WORKLOADS, -gpus[id(answer[0])]))
    first, found = group[0]
    where = f" -n {first.namespace}" if first.namespace else ""
    return SurveyEntry(
        state=found.state,
        code=found.code,
        headline=found.headline,
        confidence=min((found.confidence for _, found in group), key=("high", "low").index),
        changed_by=found.changed_by,
        subjects=tuple(item.title for item, _ in group),
        question=f"{first.kind.lower()}/{first.name}{where}",
        gpus=sum(gpus.values()),
        since=min((since for item, _ in group if (since := _since(evidence, item))), default=""),
    )


def _since(evidence: Evidence, item: ClusterObject) -> str:
    """Creation of the oldest of its pods that does not run; of what has no pods, its own. Empty if unknown."""
    pods = [pod for pod in subject_of(evidence, item).pods if phase_of(pod) != "Running"]
    if not pods and item.kind in BELOW_WORKLOADS:
        return ""
    return min((pod.created for pod in pods or (item,) if pod.created), default="")


def _rank(entry: SurveyEntry) -> tuple[int, int, int, str]:
    """State first, then how many GPUs and objects it holds up, then the oldest."""
    return STATE_ORDER.index(entry.state), -entry.gpus, -len(entry.subjects), entry.since


def _concerned_gpus(evidence: Evidence, item: ClusterObject) -> int:
    """GPUs that its pods ask for, those that do not run if there are any, or that a node has and does not offer."""
    if isinstance(item.decoded, Node):
        return _out_of_service(item.decoded)
    pods = [pod.decoded for pod in subject_of(evidence, item).pods if isinstance(pod.decoded, Pod)]
    if pods:
        running = [pod for pod in pods if pod.status.phase == "Running"]
        return sum(_gpus(pod) for pod in pods if pod not in running) or sum(map(_gpus, running))
    templates = template_pods(item)[0]
    each = wanted_pods(nested_map(item.data, "spec")) // max(1, len(templates))
    return sum(_gpus(pod) * max(1, each) for pod in templates)


def _gpus(pod: Pod) -> int:
    try:
        return gpu_count(pod_requests(pod))
    except InputError:
        return 0  # a request that can't be read, which is then its cause


def _out_of_service(node: Node) -> int:
    has, label = nodes.gpu_resources(node), node.labels.get(GPU_COUNT_LABEL, "")
    if has and not nodes.unschedulable_reason(node):
        return sum(nodes.unhealthy_device_count(node, name) for name in has)
    return sum(has.values()) or (int(label) if is_digits(label) else 0)
