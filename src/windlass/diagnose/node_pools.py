"""Karpenter's NodePools: which of them start no machines, since they or their node classes are not ready.

`root_causes` asks it where a new node would help and the autoscaler says nothing about the pod.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.nodes import GPU_INSTANCE_TYPES
from windlass.diagnose.reports import status_reports
from windlass.diagnose.unstructured import find_condition, nested_map, nested_maps, nested_string, nested_strings

GPU_WORDS = re.compile(r"gpu|accelerator|nvidia|^(p|g)$|^(p|g|gr|trn|inf)\d\w*$", re.I)
"""Names, taints and requirements of pools of GPU machines."""


def unready_pool_finding(evidence: Evidence, needs_gpus: bool) -> Finding | None:
    """The first pool that might have such machines and is not ready, with what is wrong; None if one is ready."""
    pools = [pool for pool in evidence.of_kind("NodePool") if not needs_gpus or _has_gpus(pool)]
    unready = [pool for pool in pools if nested_string(find_condition(pool.data, "Ready"), "status") == "False"]
    if not unready or len(unready) < len(pools):
        return None
    pool = unready[0]
    node_class = _class_of(evidence, pool)
    said = [*(status_reports(node_class) if node_class is not None else ()), *status_reports(pool)]
    who = f"{pool.title}" if node_class is None else f"{pool.title}, of {node_class.title},"
    message = (
        f"{who} is not ready, so that no machine of it is started: {said[0].text if said else 'it does not say why'}"
    )
    remedy = f"mend what its conditions name: kubectl describe nodepool {pool.name}"
    return Finding("AUTOSCALER_NO_MATCHING_GROUP", message, tuple(report.quote for report in said[:2]), remedy=remedy)


def _class_of(evidence: Evidence, pool: ClusterObject) -> ClusterObject | None:
    reference = nested_map(pool.data, "spec", "template", "spec", "nodeClassRef")
    kind, name = nested_string(reference, "kind"), nested_string(reference, "name")
    return next((item for item in evidence.of_kind(kind) if item.name == name), None)


def _has_gpus(pool: ClusterObject) -> bool:
    spec = nested_map(pool.data, "spec", "template", "spec")
    words = [pool.name, *(nested_string(taint, "key") for taint in nested_maps(spec, "taints"))]
    for row in nested_maps(spec, "requirements"):
        words += [nested_string(row, "key"), *nested_strings(row, "values")]
    return any(GPU_WORDS.search(word) or GPU_INSTANCE_TYPES.match(word) for word in words)
