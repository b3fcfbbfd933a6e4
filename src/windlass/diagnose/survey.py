"""`why -A`: everything that needs a person, and everything that only needs time, in a cluster or a namespace.

`cli.why` calls `survey`. Every object in trouble (`survey_subjects`) is asked about as `why` would be, on one plan for
all of them; objects with the same cause become one entry, and the entries that hold up most come first
(`survey_entries`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import WELL, Diagnosis
from windlass.diagnose.subject import Subject, subject_of
from windlass.diagnose.survey_entries import Answered, SurveyEntry, concerned_gpus, make_entries
from windlass.diagnose.survey_subjects import troubled_objects
from windlass.diagnose.unstructured import nested_int, nested_map, nested_maps, nested_string
from windlass.diagnose.why import Inquiry
from windlass.dump.configuration import Configuration
from windlass.model.errors import InputError

MAX_ASKED = 300
"""Questions of one survey. What is alike shares one; what is left over after these is counted, not judged."""


class Survey(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `why -A`, the worst first."""

    namespace: str
    """Empty for the whole cluster."""
    entries: tuple[SurveyEntry, ...]
    asked: int
    """Objects that do not run, are not ready or are out of order."""
    not_asked: int = 0
    """How many of them were left out: more than `MAX_ASKED` that are not alike."""
    has_pods: bool = True
    """False: no pod is in the evidence, which is not known to have all of them, so that nothing is known of any."""


def survey(evidence: Evidence, namespace: str, now: int, configuration: Configuration | None = None) -> Survey:
    """Raises `InputError` where nothing is known of the cluster or the namespace."""
    if not evidence.items:
        raise InputError("there is no object in the evidence", remedy="windlass dump collects what is asked for")
    known = {item.namespace for item in evidence.items.values()} | {item.name for item in evidence.of_kind("Namespace")}
    if namespace and namespace not in known:
        raise InputError(f"there is nothing of namespace {namespace} in the evidence")
    surveyor = Surveyor(evidence, now, configuration)
    subjects = [subject_of(evidence, item) for item in troubled_objects(evidence, namespace)]
    weighed = sorted(((concerned_gpus(evidence, subject), subject) for subject in subjects), key=lambda pair: -pair[0])
    answers = [(gpus, subject, surveyor.ask(subject)) for gpus, subject in weighed]
    judged = [Answered(subject, found, gpus) for gpus, subject, found in answers if found is not None]
    entries = make_entries(evidence, [answer for answer in judged if answer.found.state != WELL])
    has_pods = bool(evidence.of_kind("Pod")) or "Pod" in evidence.complete_kinds
    return Survey(namespace, entries, len(subjects), len(subjects) - len(judged), has_pods)


class Surveyor:
    """Asks about many objects on one plan, and about those that are alike once."""

    def __init__(self, evidence: Evidence, now: int, configuration: Configuration | None) -> None:
        self._evidence, self._now, self._configuration = evidence, now, configuration
        self._inquiries: list[Inquiry] = []
        """The first one of each configuration; the others share its plan."""
        self._answers: dict[object, Diagnosis] = {}
        self._asked = 0

    def ask(self, subject: Subject) -> Diagnosis | None:
        """None once `MAX_ASKED` questions were asked."""
        inquiry = self._inquiry(subject)
        key = self._answer_key(inquiry)
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

    def _answer_key(self, inquiry: Inquiry) -> object:
        """The same for objects whose answer is the same: pods of one shape with the same hold, or that failed in
        the same way, with the same warnings."""
        subject, hold = inquiry.subject, inquiry.decided_hold
        pods, waiting = subject.pods, subject.pending
        if len(pods) == 1 and not waiting and not self._evidence.logs_of(pods[0]):
            ways = tuple(_way_of_failing(status) for status in nested_maps(pods[0].data, "status", "containerStatuses"))
            phase = nested_string(pods[0].data, "status", "phase")
            return subject.item.kind, subject.item.namespace, phase, ways, self._warnings((*subject.related, *pods))
        if hold is None or not waiting or len(waiting) != len(pods):
            return id(subject.item)
        shapes = inquiry.engine.shapes_of(f"{pod.namespace}/{pod.name}" for pod in waiting)
        return (
            *(subject.item.kind, subject.item.namespace, hold.verdict.code, hold.verdict.detail),
            *(shapes, len(waiting), self._warnings((*subject.related, waiting[0]))),
        )

    def _warnings(self, items: Iterable[ClusterObject]) -> tuple[str, ...]:
        events = (event for item in items for event in self._evidence.events_of(item) if event.warning)
        return tuple(sorted({event.reason for event in events}))


def _way_of_failing(status: dict[str, object]) -> tuple[object, ...]:
    """Image, and the reasons, exit codes and messages of a container's states."""
    states = [(name, nested_map(status, field, name)) for field in ("state", "lastState") for name in STATES]
    said = [
        (name, nested_string(state, "reason"), nested_int(state, "exitCode"), nested_string(state, "message"))
        for name, state in states
        if state
    ]
    return nested_string(status, "image"), *said


STATES = ("waiting", "terminated")
