"""How many pods a manifest creates from each of its templates, and their total requests.

Called by the rules about gangs, topology and quota. Kinds nest templates differently: all `replicas` and `parallelism`
on the path to a template are multiplied.
"""

from __future__ import annotations

import re

from windlass.diagnose.check.manifest import Manifest, PodView
from windlass.diagnose.check.requests import pod_and_requests
from windlass.diagnose.unstructured import nested, nested_int, nested_string
from windlass.model.names.kueue import MIN_PARALLELISM_ANNOTATION

STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def pod_count(manifest: Manifest, view: PodView) -> int:
    """How many pods of this template run at the same time."""
    count = 1
    field: object = manifest.data
    for name, place in STEP.findall(view.path):
        field = nested(field, int(place) if place else name)
        count *= _own_count(field)
    if view.path.endswith("workerTemplate"):
        count *= _workers(manifest, view.path.rpartition(".")[0])
    return count


def _workers(manifest: Manifest, path: str) -> int:
    """Of a group of a LeaderWorkerSet: its size counts the leader in, which is one of them without a template of its
    own."""
    group: object = manifest.data
    for name, place in STEP.findall(path):
        group = nested(group, int(place) if place else name)
    has_leader = isinstance(group, dict) and "leaderTemplate" in group
    return max(0, (nested_int(group, "size") or 1) - has_leader)


def _own_count(field: object) -> int:
    if not isinstance(field, dict):
        return 1
    if "groupName" in field:  # of a Ray cluster
        replicas = max(nested_int(field, "replicas"), nested_int(field, "minReplicas"))
        return replicas * (nested_int(field, "numOfHosts") or 1)
    if isinstance(field.get("replicas"), int):
        return max(0, nested_int(field, "replicas"))
    parallelism = nested_int(field, "parallelism")
    completions = nested_int(field, "completions")
    if parallelism:
        return min(parallelism, completions) if completions else parallelism
    return 1


def least_requests(manifest: Manifest) -> dict[str, int]:
    """Requests of as many pods as it can be admitted with: Kueue's partial admission may start a Job with fewer."""
    total = total_requests(manifest)
    least = nested_string(manifest.data, "metadata", "annotations", MIN_PARALLELISM_ANNOTATION)
    count = sum(pod_count(manifest, view) for view in manifest.pods)
    if manifest.kind != "Job" or not (least.isascii() and least.isdigit() and 0 < int(least) < count):
        return total
    return {name: amount // count * int(least) for name, amount in total.items()}


def total_requests(manifest: Manifest) -> dict[str, int]:
    """Requests of all pods of the manifest, in base units."""
    total: dict[str, int] = {}
    for view in manifest.pods:
        read = pod_and_requests(view)
        count = pod_count(manifest, view)
        for name, amount in (read[1] if read is not None else {}).items():
            total[name] = total.get(name, 0) + amount * count
    return total
