"""What the API server counted of requests: writes by resource, and how many were answered with a conflict.

`live.queues` reads them before and after a run. The server counts by resource and not by client, so only resources are
counted that nobody but the contender writes: the Job controller writes `jobs/status` and pods, and events are left out.
"""

from __future__ import annotations

import re
from collections import Counter

from windlass.kube.client import KubeClient
from windlass.kube.request import Request

WRITES = ("POST", "PUT", "PATCH", "APPLY")
CONTENDERS_RESOURCES = ("workloads", "workloads/status", "jobs", "pods/binding")
CONFLICT = "409"
_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Key = tuple[str, str, str]
"""Verb, resource (with its subresource) and code."""


async def request_counts(client: KubeClient) -> Counter[Key]:
    text = (await client.send(Request("GET", "/metrics"))).decode()
    counts: Counter[Key] = Counter()
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"]))
        resource = labels.get("resource", "")
        if labels.get("subresource"):
            resource += f"/{labels['subresource']}"
        counts[labels.get("verb", ""), resource, labels.get("code", "")] += int(float(line["value"]))
    return counts


def writes_of(counts: Counter[Key], created_jobs: int) -> int:
    """Accepted and refused writes of the contender; the Jobs themselves were created by the benchmark."""
    total = sum(
        count for (verb, resource, _), count in counts.items() if verb in WRITES and resource in CONTENDERS_RESOURCES
    )
    return total - created_jobs


def conflicts_of(counts: Counter[Key]) -> int:
    return sum(
        count
        for (verb, resource, code), count in counts.items()
        if verb in WRITES and code == CONFLICT and resource in CONTENDERS_RESOURCES
    )


def created(counts: Counter[Key], resource: str) -> int:
    """Creations that were sent, whatever the answer."""
    return sum(count for (verb, counted, _), count in counts.items() if verb == "POST" and counted == resource)
