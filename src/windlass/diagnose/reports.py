"""What controllers say about an object: events, conditions and lines of their logs, as far as it still holds.

`refusal` classifies what is said about the subject, `workload_faults` what is said about objects that it depends on.
Which controller it is does not matter, nor the kind of the object: a warning that a later success of the same
controller takes back is left out, and so is what a condition says that means well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.diagnose.evidence import ClusterObject, Event, Evidence
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string

WELL = re.compile(
    r"^(Scheduled|Pull(ing|ed)|Created|Started|Killing|TriggeredScaleUp|Complet\w*|SawCompletedJob|Scaling\w*|Resum\w*"
    r"|Admitted|QuotaReserved|Bound|Ready|Nominated|Provision\w*Succeeded|LeaderElection|Success\w*)$",
    re.I,
)
"""Reasons of events that report progress."""
BAD_WHILE_TRUE = re.compile(
    r"fail|error|degraded|stalled|abort|unschedulable|unavailable|exceed|misconfig|denied|conflict|inadmissible"
    r"|problem|pressure|evicted|rejected|invalid",
    re.I,
)
"""Types of conditions that mean a fault while they are True; of other types, False means it."""
NEUTRAL = re.compile(r"^(Suspend|Complet|Finish|Succe|Preempt|Requeued|Paused|Terminat|Deleting|Unresizable|Resizing)")
"""Types of conditions that mean no fault, whatever their status."""
WELL_PHASES = ("Running", "Succeeded", "Complete", "Completed", "Ready", "Active", "Bound", "Inqueue", "Available")
TEXT_FIELDS = ("message", "reason", "error", "failureMessage")
COMPLAINS = re.compile(
    r"denied|forbidden|invalid|quota|not found|does ?n.t exist|does not exist|fail|error|cannot|can't|could not|unable"
    r"|timed? ?out|exceed|insufficient|refus|reject|unschedul|not enough|exception|panic|fatal|abort",
    re.I,
)
AUTOSCALERS = re.compile(r"autoscaler|karpenter")
"""They speak of node groups, which `autoscaler` understands."""
SHORT_NAME = 6
"""Names shorter than this are words as well: a line of a log must have the namespace beside them."""


class Report(msgspec.Struct, frozen=True):
    speaker: str
    """The component of an event, the object of a status, or the origin of a log."""
    text: str
    at: str = ""
    """When it was said last; empty if that is not known."""

    is_line: bool = False
    """Whether it is a line of a log, which one program believed at one moment."""

    @property
    def quote(self) -> str:
        return f"{self.speaker}: {self.text}"


def reports_about(evidence: Evidence, items: Iterable[ClusterObject], pods: Iterable[ClusterObject]) -> list[Report]:
    """What is said about the items: events first, the newest first, then statuses, then logs of other pods than `pods`.

    A status may be older than an event and a line of a log has no sure time, so events come first.
    """
    found = list(items)
    events = [report for item in found for report in event_reports(evidence, item)]
    events.sort(key=lambda report: report.at, reverse=True)
    statuses = [report for item in found for report in status_reports(item)]
    return [*events, *statuses, *log_reports(evidence, found, pods)]


def event_reports(evidence: Evidence, item: ClusterObject) -> Iterator[Report]:
    """Complaints among the events of an item that no later event or object takes back."""
    events = evidence.events_of(item)
    newest_child = max((child.created for child in evidence.children(item)), default="")
    for place, event in enumerate(events):
        if WELL.match(event.reason) or not event.message or AUTOSCALERS.search(event.source):
            continue
        is_creation = event.reason.startswith("FailedCreate")
        if _is_taken_back(event, events[place + 1 :]) or (is_creation and event.last and event.last < newest_child):
            continue
        yield Report(f"event of {item.title}", event.message, event.last)


def _is_taken_back(event: Event, later: Sequence[Event]) -> bool:
    """Whether the same controller reports success later."""
    return any(
        other.source == event.source and other.last > event.last and not other.warning and WELL.match(other.reason)
        for other in later
    )


def status_reports(item: ClusterObject) -> Iterator[Report]:
    """Conditions that mean a fault, and messages beside a phase that is not well."""
    speaker = f"status of {item.title}"
    for condition in bad_conditions(item):
        parts = (nested_string(condition, field) for field in ("reason", "message"))
        yield Report(speaker, ": ".join(part for part in parts if part), nested_string(condition, "lastTransitionTime"))
    status = {key: value for key, value in nested_map(item.data, "status").items() if key != "conditions"}
    for text in _texts(status, nested_string(status, "state", "phase") in WELL_PHASES):
        yield Report(speaker, text)


def bad_conditions(item: ClusterObject) -> list[dict[str, object]]:
    """Conditions of the item that mean a fault."""
    return [condition for condition in nested_maps(item.data, "status", "conditions") if _is_bad(condition)]


def _is_bad(condition: dict[str, object]) -> bool:
    kind, status = nested_string(condition, "type"), nested_string(condition, "status")
    if not kind or NEUTRAL.match(kind):
        return False
    return status == "True" if BAD_WHILE_TRUE.search(kind) else status == "False"


def _texts(data: object, is_well: bool) -> Iterator[str]:
    """Every message, reason or error, at any depth, but of parts that are well by their own phase."""
    if isinstance(data, dict):
        phase = next((data[key] for key in PHASES if isinstance(data.get(key), str) and data[key]), "")
        is_well = phase in WELL_PHASES if phase else is_well
        for key, value in data.items():
            if isinstance(value, str) and key in TEXT_FIELDS:
                yield from value.splitlines() if not is_well else ()
            elif key not in ("conditions", "containerStatuses", "initContainerStatuses"):
                yield from _texts(value, is_well)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value, is_well)


PHASES = ("phase", "status")
"""Fields that say how an object, or a part of it, is."""


def complaints(evidence: Evidence, pod: ClusterObject) -> tuple[str, ...]:
    """What a pod's own log complains of last."""
    lines = [f"{log.origin}: {line[:LONG_LINE]}" for log in evidence.logs_of(pod) for line in log.lines]
    return tuple([line for line in lines if COMPLAINS.search(line)][-2:])


def log_reports(evidence: Evidence, items: Sequence[ClusterObject], pods: Iterable[ClusterObject]) -> Iterator[Report]:
    """Lines of other pods' logs that name one of the items and complain."""
    full = {f"{item.namespace}/{item.name}" for item in items}
    long = {item.name for item in items if len(item.name) >= SHORT_NAME}
    names = "|".join(re.escape(name) for name in sorted(full | long))
    named = re.compile(rf"(?<![\w.-])({names})(?![\w.-])")
    own = {id(pod) for pod in pods}
    for pod in evidence.logged_pods:
        if id(pod) in own:
            continue
        for log in evidence.logs_of(pod):
            yield from (
                Report(log.origin, line.strip(), is_line=True)
                for line in reversed(log.lines)
                if COMPLAINS.search(line) and named.search(line)
            )
