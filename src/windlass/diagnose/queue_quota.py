"""What a scheduler says about the quota of its queue (KAI's, Volcano's, YuniKorn's), with the queue's own numbers.

`refusal` asks before it looks for the API server's words: "over quota" of a queue is no ResourceQuota.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import Report
from windlass.diagnose.resource_quota import quota_finding
from windlass.diagnose.subject import Subject, group_of
from windlass.diagnose.unstructured import nested_map, nested_string
from windlass.model.queue_names import KAI_PREFIX, VOLCANO_PREFIX, named_queue

QUOTA_WORDS = re.compile(
    r"\bover[- ]?quota\b|\bquota\b.{0,60}\b(exceed|reach|insufficient|used up|not enough|overused)"
    r"|\b(exceed\w*|insufficient|not enough|no more)\b.{0,40}\bquota\b",
    re.I,
)
API_SERVER_WORDS = re.compile(r"exceeded quota: |failed quota: |insufficient quota to match|status unknown for quota")
"""The API server's own words for a ResourceQuota."""


def quota_report_finding(evidence: Evidence, subject: Subject, report: Report) -> Finding | None:
    """Whose quota a message is about: that of the queue which the work names, else a ResourceQuota that is used up."""
    if not QUOTA_WORDS.search(report.text) or API_SERVER_WORDS.search(report.text):
        return None
    queue = _queue_name(evidence, subject, report.text)
    if not queue:
        return quota_finding(evidence, subject)
    text = report.text if len(report.text) <= LONG_LINE else report.text[:LONG_LINE].rpartition(". ")[0]
    remedy = "free some of the queue's quota, ask for less, or have it raised"
    if "preemptible" in report.text.lower():
        remedy = "free some of the queue's quota, have it raised, or use a preemptible priority class to go over it"
    proof = (report.quote, *_numbers(evidence, queue))
    message = f"the quota of queue {queue} is used up or too small: {text.removesuffix('.') or report.text}"
    return Finding("KUEUE_QUOTA_INSUFFICIENT", message, proof, remedy=remedy)


def _queue_name(evidence: Evidence, subject: Subject, text: str) -> str:
    """The queue that the work, its PodGroup or the message names; empty if none does."""
    for item in (*subject.pods, *subject.related):
        if named := named_queue(item.labels, item.annotations):
            return named.removeprefix(KAI_PREFIX).removeprefix(VOLCANO_PREFIX)
        group = group_of(item) if item.kind == "Pod" else None
        found = evidence.get("PodGroup", item.namespace, group.name) if group is not None else None
        if found is not None and (named := nested_string(found.data, "spec", "queue")):
            return named
    words = re.split(r"[^\w.-]+", text)
    return next((queue.name for queue in evidence.of_kind("Queue") if queue.name in words), "")


def _numbers(evidence: Evidence, name: str) -> tuple[str, ...]:
    """What the queue's object grants, and what is allocated of it; empty if it is not known."""
    queue = next((item for item in evidence.of_kind("Queue") if item.name == name), None)
    if queue is None:
        return ()
    spec, status = nested_map(queue.data, "spec"), nested_map(queue.data, "status")
    grants = [
        f"{field} {resource} {row[field]}"
        for resource, row in nested_map(spec, "resources").items()
        for field in ("quota", "limit")
        if isinstance(row, dict) and row.get(field, -1) != -1
    ]
    grants += _amounts(spec, "deserved") + _amounts(spec, "capability")
    used = _amounts(status, "allocated") + _amounts(status, "allocatedNonPreemptible")
    return (f"Queue {name}: {', '.join([*grants, *used])}",) if grants or used else ()


def _amounts(data: dict[str, object], field: str) -> list[str]:
    return [f"{field} {resource} {amount}" for resource, amount in nested_map(data, field).items()]
