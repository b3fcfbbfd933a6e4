"""Short forms of the cluster in a scenario file: nodes, topologies, flavors, cohorts, queues, priority classes.

Called by `scenario.load`; returns Kubernetes objects as plain data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.model.codec import decode_object, to_unstructured
from windlass.model.errors import InputError
from windlass.model.fleet import expand_fleet
from windlass.model.fleet_spec import Fleet
from windlass.model.names.kubernetes import HOSTNAME_LABEL, REGION_LABEL, SCHEDULING_API_VERSION, ZONE_LABEL
from windlass.model.names.kueue import KUEUE_API_VERSION
from windlass.model.names.nvidia import GPU_CLIQUE_LABEL, GPU_RESOURCE
from windlass.model.names.windlass import BLOCK_LABEL, RACK_LABEL, WINDLASS_API_VERSION
from windlass.model.pod import RawQuantity
from windlass.model.unstructured import Unstructured
from windlass.simulate.scenario.spec import ScenarioFile, ShortCohort, ShortFlavor, ShortQueue, ShortQuota

DEFAULT_FLAVOR = "default"
LEVEL_LABELS = {
    "region": REGION_LABEL,
    "zone": ZONE_LABEL,
    "block": BLOCK_LABEL,
    "rack": RACK_LABEL,
    "clique": GPU_CLIQUE_LABEL,
    "host": HOSTNAME_LABEL,
}
_GPUS = re.compile(r"([0-9]+) ?x ?(\S+)")


def level_label(name: str) -> str:
    """The node label of a level; other names are labels themselves."""
    return LEVEL_LABELS.get(name, name)


def resource_name(name: str) -> str:
    return GPU_RESOURCE if name == "gpu" else name


def cluster_objects(document: ScenarioFile) -> Iterator[tuple[str, Unstructured]]:
    """Every object, with the path of its field in the file."""
    for name, value in document.priorities.items():
        yield from _priority(name, value)
    for name, levels in document.topologies.items():
        labels = [{"nodeLabel": level_label(level)} for level in levels]
        yield f"topologies.{name}", kueue_object("Topology", name, {"levels": labels})
    for index, flavor in enumerate(document.flavors):
        yield f"flavors[{index}]", _flavor(flavor)
    yield from _default_flavor(document)
    for index, cohort in enumerate(document.cohorts):
        yield f"cohorts[{index}]", _cohort(cohort)
    for index, queue in enumerate(document.queues):
        yield from _queue(queue, f"queues[{index}]")


def fleet_nodes(pools: Sequence[Unstructured]) -> list[Unstructured]:
    """The nodes of the pools; errors have the path in the scenario."""
    if not pools:
        return []
    spec = {"pools": [_pool(pool) for pool in pools]}
    try:
        fleet = decode_object({"apiVersion": WINDLASS_API_VERSION, "kind": "Fleet", "spec": spec})
        assert isinstance(fleet, Fleet)
        return [to_unstructured(node) for node in expand_fleet(fleet)]
    except InputError as error:
        path = error.path.replace("spec.pools", "fleet", 1)
        raise InputError(error.message, path=path, remedy=error.remedy) from None


def _pool(pool: Mapping[str, Any]) -> Unstructured:
    """The pool with `gpus: 8xH100` expanded."""
    gpus = pool.get("gpus")
    match = _GPUS.fullmatch(gpus) if isinstance(gpus, str) else None
    return {**pool, "gpus": [{"model": match[2], "count": int(match[1])}]} if match else dict(pool)


def kueue_object(
    kind: str, name: str, spec: Unstructured, namespace: str = "", annotations: Mapping[str, str] | None = None
) -> Unstructured:
    metadata: Unstructured = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    return {"apiVersion": KUEUE_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _priority(name: str, value: int) -> Iterator[tuple[str, Unstructured]]:
    fields = {"metadata": {"name": name}, "value": value}
    kinds = ((SCHEDULING_API_VERSION, "PriorityClass"), (KUEUE_API_VERSION, "WorkloadPriorityClass"))
    for version, kind in kinds:
        yield f"priorities.{name}", {"apiVersion": version, "kind": kind, **fields}


def _flavor(flavor: ShortFlavor) -> Unstructured:
    spec = {
        "nodeLabels": flavor.labels,
        "nodeTaints": list(flavor.taints),
        "tolerations": list(flavor.tolerations),
        "topologyName": flavor.topology,
    }
    spec = {key: value for key, value in spec.items() if value}
    return kueue_object("ResourceFlavor", flavor.name, spec, annotations=flavor.annotations)


def _default_flavor(document: ScenarioFile) -> Iterator[tuple[str, Unstructured]]:
    """A flavor without node labels, if a queue or cohort uses it and the file doesn't define it."""
    holders: list[ShortQueue | ShortCohort] = [*document.queues, *document.cohorts]
    used = any(quota.flavor == DEFAULT_FLAVOR for holder in holders for quota in _quotas(holder))
    if used and all(flavor.name != DEFAULT_FLAVOR for flavor in document.flavors):
        yield "queues", kueue_object("ResourceFlavor", DEFAULT_FLAVOR, {})


def _quotas(holder: ShortQueue | ShortCohort) -> tuple[ShortQuota, ...]:
    if isinstance(holder, ShortQueue) and holder.flavors:
        return holder.flavors
    if not (holder.quota or holder.borrow or holder.lend):
        return ()
    return (ShortQuota(quota=holder.quota, borrow=holder.borrow, lend=holder.lend),)


def _resource_groups(quotas: Sequence[ShortQuota]) -> list[Unstructured]:
    if not quotas:
        return []
    covered = list(dict.fromkeys(resource_name(name) for quota in quotas for name in quota.quota))
    flavors = []
    for quota in quotas:
        resources = [_resource_quota(name, amount, quota) for name, amount in quota.quota.items()]
        flavors.append({"name": quota.flavor, "resources": resources})
    return [{"coveredResources": covered, "flavors": flavors}]


def _resource_quota(name: str, amount: RawQuantity, quota: ShortQuota) -> Unstructured:
    entry: Unstructured = {"name": resource_name(name), "nominalQuota": amount}
    if name in quota.borrow:
        entry["borrowingLimit"] = quota.borrow[name]
    if name in quota.lend:
        entry["lendingLimit"] = quota.lend[name]
    return entry


def _cohort(cohort: ShortCohort) -> Unstructured:
    spec: Unstructured = {"parentName": cohort.parent, "resourceGroups": _resource_groups(_quotas(cohort))}
    if cohort.weight is not None:
        spec["fairSharing"] = {"weight": cohort.weight}
    return kueue_object("Cohort", cohort.name, {key: value for key, value in spec.items() if value})


def _queue(queue: ShortQueue, path: str) -> Iterator[tuple[str, Unstructured]]:
    if queue.flavors and (queue.quota or queue.borrow or queue.lend):
        raise InputError("has both quota and flavors", path=f"{path}.quota", remedy="keep one of them")
    spec: Unstructured = {
        "cohortName": queue.cohort,
        "resourceGroups": _resource_groups(_quotas(queue)),
        "queueingStrategy": queue.strategy,
        "namespaceSelector": {},
        "preemption": queue.preemption,
        "flavorFungibility": queue.fungibility,
        "stopPolicy": queue.stop,
    }
    if queue.weight is not None:
        spec["fairSharing"] = {"weight": queue.weight}
    kept = {key: value for key, value in spec.items() if value or key == "namespaceSelector"}
    yield path, kueue_object("ClusterQueue", queue.name, {**kept, **queue.spec}, annotations=queue.annotations)
    yield path, kueue_object("LocalQueue", queue.name, {"clusterQueue": queue.name}, queue.namespace)
