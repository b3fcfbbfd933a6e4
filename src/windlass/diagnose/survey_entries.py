"""The entries of a survey: objects with the same cause together, with what they keep from running.

`survey` calls `make_entries` with its answers. The same fault on forty nodes is one entry, and what a sentence about a
workload names already (a queue, a node) is part of that entry, so that a large cluster fits one screen.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose import nodes
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import BLOCKED, UNKNOWN, WAITING, Diagnosis
from windlass.diagnose.gang import waiting_members
from windlass.diagnose.nodes import gpu_count
from windlass.diagnose.operator_reports import is_kept, wanted_pods
from windlass.diagnose.subject import Subject, phase_of, template_pods
from windlass.diagnose.unstructured import nested_map
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_COUNT_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

STATE_ORDER = (BLOCKED, UNKNOWN, WAITING)
BELOW_WORKLOADS = ("Node", "DaemonSet", "ClusterQueue", "LocalQueue", "ResourceQuota")
"""Kinds that workloads depend on: older than their troubles, and named by the sentences about workloads."""
ON_NODE = re.compile(r"^On node \S+, ")
WORD = re.compile(r"[\w./-]*\w")


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


class Answered(msgspec.Struct, frozen=True):
    """An object in trouble, and the answer to why."""

    subject: Subject
    found: Diagnosis
    gpus: int

    @property
    def is_below_workloads(self) -> bool:
        return self.subject.item.kind in BELOW_WORKLOADS

    @property
    def since(self) -> str:
        """Creation of the oldest of its pods that does not run; of what has no pods, its own. Empty if unknown."""
        item, pods = self.subject.item, [pod for pod in self.subject.pods if phase_of(pod) != "Running"]
        if not pods and self.is_below_workloads:
            return ""
        return min((pod.created for pod in pods or (item,) if pod.created), default="")


def make_entries(evidence: Evidence, answers: list[Answered]) -> tuple[SurveyEntry, ...]:
    """One entry for each cause, the worst first.

    What only needs time is told apart by its code and namespace alone.
    """
    items = [answer.subject.item for answer in answers]
    names = {*evidence.nodes, *(item.name for item in items), *(f"{item.namespace}/{item.name}" for item in items)}
    groups: dict[object, list[Answered]] = {}
    for answer in answers:
        found = answer.found
        key = answer.subject.item.namespace if found.is_wait else _without_names(found.headline, names)
        groups.setdefault((found.code, key), []).append(answer)
    entries = [_entry(group) for group in _merged(list(groups.values()))]
    return tuple(sorted(entries, key=_rank))


def _without_names(sentence: str, names: set[str]) -> str:
    words = WORD.findall(ON_NODE.sub("", sentence).lower())
    return " ".join(word for word in words if word not in names and not word[0].isdigit())


def _merged(groups: list[list[Answered]]) -> list[list[Answered]]:
    """Objects that the sentence about others names already are part of that entry."""
    kept: list[list[Answered]] = []
    for group in sorted(groups, key=lambda group: all(answer.is_below_workloads for answer in group)):
        titles, code = [answer.subject.title for answer in group], group[0].found.code
        for other in kept:
            if other[0].found.code == code and all(title in other[0].found.headline for title in titles):
                other += group
                break
        else:
            kept.append(group)
    return kept


def _entry(group: list[Answered]) -> SurveyEntry:
    # What waits says more than what it waits for.
    group = sorted(group, key=lambda answer: (answer.is_below_workloads, -answer.gpus))
    first, found = group[0].subject.item, group[0].found
    where = f" -n {first.namespace}" if first.namespace else ""
    return SurveyEntry(
        state=found.state,
        code=found.code,
        headline=found.headline,
        confidence=found.confidence,
        changed_by=found.changed_by,
        subjects=tuple(answer.subject.title for answer in group),
        question=f"{first.kind.lower()}/{first.name}{where}",
        gpus=sum(answer.gpus for answer in group),
        since=min((answer.since for answer in group if answer.since), default=""),
    )


def _rank(entry: SurveyEntry) -> tuple[int, int, int, str]:
    """State first, then how many GPUs and objects it holds up, then the oldest."""
    return STATE_ORDER.index(entry.state), -entry.gpus, -len(entry.subjects), entry.since


# GPUs


def concerned_gpus(evidence: Evidence, subject: Subject) -> int:
    """GPUs that its pods, or those of its gang, ask for (those that do not run or exist, if there are any), or that a
    node has and does not offer."""
    item = subject.item
    if isinstance(item.decoded, Node):
        return _out_of_service(item.decoded)
    siblings = waiting_members(evidence, subject) if item.kind == "Pod" else []
    pods = [pod.decoded for pod in (*subject.pods, *siblings) if isinstance(pod.decoded, Pod)]
    templates, wanted = template_pods(item)[0], wanted_pods(nested_map(item.data, "spec"))
    if is_kept(item):  # its controller replaces those that have ended
        pods = [pod for pod in pods if not pod.is_terminal] or pods
    if pods:
        absent = sum(_gpus(pod) for pod in pods if pod.status.phase != "Running")
        missing = wanted - len(pods) if len(templates) == 1 and is_kept(item) else 0
        return absent + max(0, missing) * sum(map(_gpus, templates)) or sum(map(_gpus, pods))
    return sum(_gpus(pod) * max(1, wanted // len(templates)) for pod in templates)


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
