"""Requests by role, from the API server's audit log: by what a client calls itself, and by verb."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
    "rules": [{"level": "Metadata"}],
}
ROLES = {"windlass/": "windlass", "kueue/": "kueue", "kube-scheduler/": "kube-scheduler"}
"""How a role's user agent begins."""
READS, WRITES = ("get", "list"), ("create", "update", "patch", "delete", "deletecollection")


class AuditCounts:
    def __init__(self, log: Path) -> None:
        self._log, self._at = log, 0

    def since_last(self) -> Counter[tuple[str, str]]:
        """Role and kind of request (reads, writes, watches begun) → how many, since it was last asked for."""
        counts: Counter[tuple[str, str]] = Counter()
        with self._log.open() as lines:
            lines.seek(self._at)
            for line in lines:
                if line.endswith("\n"):
                    self._at += len(line.encode())
                    self._count(json.loads(line), counts)
        return counts

    def _count(self, event: dict[str, object], counts: Counter[tuple[str, str]]) -> None:
        agent, verb = str(event.get("userAgent", "")), event["verb"]
        role = next((role for start, role in ROLES.items() if agent.startswith(start)), "")
        kind = "reads" if verb in READS else "writes" if verb in WRITES else "watches"
        if role:
            counts[role, kind] += 1
