"""What a program's own log says beyond a pattern: whether it went on, and which disk it has filled.

`pod_startup` asks it about the lines that it would take for the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from windlass.diagnose.contradictions import is_ready
from windlass.diagnose.evidence import ClusterObject, LogLines
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string

ENDS_IT = (
    *("GPU_OOM", "CONTAINER_OOM", "SHM_TOO_SMALL", "RUNTIME_NOT_CONFIGURED", "DRIVER_MISSING"),
    *("CUDA_DRIVER_TOO_OLD", "MPS_NOT_READY"),
)
"""Codes of faults with which a program does not go on; with others it may run, only worse."""


def still_holding(pod: ClusterObject, matches: Sequence[PatternMatch], logs: Sequence[LogLines]) -> list[PatternMatch]:
    """The matches without those that a ready pod's program has survived: it says other things since."""
    if not is_ready(pod):
        return list(matches)
    return [seen for seen in matches if seen.code not in ENDS_IT or not _goes_on(seen, logs)]


def _goes_on(seen: PatternMatch, logs: Sequence[LogLines]) -> bool:
    for log in logs:
        places = [place for place, line in enumerate(log.lines) if line.strip() == seen.line]
        if log.origin == seen.origin and places:
            return any(line.strip() and not COMPLAINS.search(line) for line in log.lines[places[-1] + 1 :])
    return False


FULL = re.compile(r"\[errno 28\]|\bENOSPC\b|no space left on device|disk quota exceeded", re.I)
PATH = re.compile(r"(?<![\w.])(/[\w.+@=-]+(?:/[\w.+@=-]+)*)")
SHARED_MEMORY = re.compile(r"/dev/shm|shared memory|\bshm", re.I)


def full_disk_findings(pod: ClusterObject, logs: Sequence[LogLines]) -> list[Finding]:
    """A program that can't write: the volume of a claim is full, or the disk of its container."""
    if is_ready(pod):
        return []
    for log in logs:
        for line in reversed(log.lines):
            if FULL.search(line) and not SHARED_MEMORY.search(line):
                return [_full(pod, line, f"{log.origin}: {line.strip()[:LONG_LINE]}")]
    return []


def _full(pod: ClusterObject, line: str, quote: str) -> Finding:
    path = next(iter(PATH.findall(line)), "")
    mount, claim = _mounted_at(pod, path)
    where = f" ({path})" if path else ""
    if claim:
        message = f"the volume of claim {claim}, mounted at {mount}, is full{where}"
        remedy = f"free space in it, or enlarge claim {claim} if its storage class allows that"
        return Finding("STORAGE_INSUFFICIENT", message, (quote,), remedy=remedy)
    message = f"the disk that {pod.title} writes to is full{where}"
    return Finding("EPHEMERAL_STORAGE", message, (quote,))


def _mounted_at(pod: ClusterObject, path: str) -> tuple[str, str]:
    """(mount path, claim) of the volume that has the path; the claim is empty for a volume of another kind."""
    volumes = {nested_string(row, "name"): row for row in nested_maps(pod.data, "spec", "volumes")}
    mounts = [row for part in nested_maps(pod.data, "spec", "containers") for row in nested_maps(part, "volumeMounts")]
    found = [(nested_string(row, "mountPath").rstrip("/"), nested_string(row, "name")) for row in mounts]
    held = [(place, name) for place, name in found if path == place or path.startswith(f"{place}/")]
    if not held:
        return "", ""
    place, name = max(held, key=lambda pair: len(pair[0]))
    return place, nested_string(nested_map(volumes.get(name, {}), "persistentVolumeClaim"), "claimName")
