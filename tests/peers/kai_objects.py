"""KAI's cases in KAI's own objects: its Queues, PodGroups, labels and annotations in place of Kueue's.

The cases were converted from KAI's tables to Kueue's objects; this converts them back, as far as the engine sees them.
The scorers go on reading the cases as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from tests.peers.scorers import Json

from windlass.model.quota import parse_quota

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
TOPOLOGY = "kueue.x-k8s.io/podset-"
GPU = "nvidia.com/gpu"
ROOT = "main"
UNITS = {"cpu": ("cpu", 1), "memory": ("memory", 1_000_000), GPU: ("gpu", 1000)}


def in_kais_words(items: list[Json]) -> list[Json]:
    made: list[Json] = []
    quotas = {item["metadata"]["name"]: _quotas(item) for item in items if item["kind"] in ("ClusterQueue", "Cohort")}
    clusters = {
        item["metadata"]["name"]: item["spec"]["clusterQueue"] for item in items if item["kind"] == "LocalQueue"
    }
    topology_of_group = _topology_of_groups(items)
    for item in deepcopy(items):
        match item["kind"]:
            case "ClusterQueue":
                made.append(_queue(item, quotas))
            case "Cohort" if item["metadata"]["name"] != ROOT:
                made.append(_department(item, items, quotas))
            case "PodGroup":
                made.append(_group(item, clusters, topology_of_group))
            case "Pod":
                made.append(_pod(item, clusters))
            case "Cohort" | "LocalQueue" | "ResourceFlavor" | "Topology":
                continue
            case _:
                made.append(item)
    return made


def _quotas(item: Json) -> dict[str, tuple[int, int | None]]:
    """Resource → nominal quota and borrowing limit, in units of quota."""
    found = {}
    for group in item["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for cell in flavor["resources"]:
                limit = cell.get("borrowingLimit")
                name = cell["name"]
                found[name] = (
                    parse_quota(name, cell["nominalQuota"]),
                    None if limit is None else parse_quota(name, limit),
                )
    return found


def _queue(item: Json, quotas: Mapping[str, dict[str, tuple[int, int | None]]]) -> Json:
    cohort = item["spec"].get("cohort") or item["spec"].get("cohortName") or ROOT
    own = quotas[item["metadata"]["name"]]
    return _kai_queue(item["metadata"], own, "" if cohort == ROOT else cohort)


def _department(item: Json, items: list[Json], quotas: Mapping[str, dict[str, tuple[int, int | None]]]) -> Json:
    """A department has what its queues have, and what is its own."""
    name = item["metadata"]["name"]
    below = [
        other["metadata"]["name"]
        for other in items
        if other["kind"] == "ClusterQueue" and (other["spec"].get("cohort") or other["spec"].get("cohortName")) == name
    ]
    total = {
        resource: (sum(quotas[queue].get(resource, (0, None))[0] for queue in (name, *below)), limit)
        for resource, (_, limit) in quotas[name].items()
    }
    return _kai_queue(item["metadata"], total, "")


def _kai_queue(metadata: Json, quotas: dict[str, tuple[int, int | None]], parent: str) -> Json:
    resources = {}
    for resource, (field, unit) in UNITS.items():
        nominal, limit = quotas.get(resource, (-unit, None))
        most = -1 if limit is None else (nominal + limit) / unit
        resources[field] = {"quota": nominal / unit, "limit": most, "overQuotaWeight": 1}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}


def _topology_of_groups(items: list[Json]) -> dict[str, Json]:
    """Group → the constraint that its pods' annotations write for Kueue."""
    found: dict[str, Json] = {}
    for item in items:
        metadata = item["metadata"]
        annotations = metadata.get("annotations", {})
        name = metadata["name"] if item["kind"] == "PodGroup" else metadata.get("labels", {}).get(GROUP_LABEL, "")
        for mode in ("required", "preferred"):
            level = annotations.get(f"{TOPOLOGY}{mode}-topology")
            if level and name:
                found[name] = {"topology": "tree", f"{mode}TopologyLevel": level}
    return found


def _group(item: Json, clusters: Mapping[str, str], topology: Mapping[str, Json]) -> Json:
    metadata = item["metadata"]
    queue = metadata.get("labels", {}).pop(QUEUE_LABEL, "")
    spec = {"minMember": item["spec"]["minMember"], "queue": clusters.get(queue, queue)}
    if metadata["name"] in topology:
        spec["topologyConstraint"] = topology[metadata["name"]]
    _without_topology(metadata)
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _pod(item: Json, clusters: Mapping[str, str]) -> Json:
    metadata = item["metadata"]
    labels, annotations = metadata.setdefault("labels", {}), metadata.setdefault("annotations", {})
    queue, group = labels.pop(QUEUE_LABEL, ""), labels.pop(GROUP_LABEL, "")
    if queue:
        labels["kai.scheduler/queue"] = clusters.get(queue, queue)
    if group:
        annotations["pod-group-name"] = group
    _without_topology(metadata)
    return item


def _without_topology(metadata: Json) -> None:
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(TOPOLOGY)}
    metadata["annotations"] = kept
