"""Kinds that a queue can suspend: the field that does it, their pod templates, and their terminal state.

Used by `apply.workload_writer`, `apply.owner_workloads`, `scheduler.cache` and, for the RBAC rules, `cli.install_rbac`.
Pod sets are named as in `model.owners`, so that a Workload and its pods match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windlass.kube.request import MERGE_PATCH, Request
from windlass.kube.resources import Resource
from windlass.model.owners import OwnerObject
from windlass.model.unstructured import Unstructured

_SPEC = ("spec", "suspend")
_RUN_POLICY = ("spec", "runPolicy", "suspend")

SUSPEND_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Job": _SPEC,
    "JobSet": _SPEC,
    "TrainJob": _SPEC,
    "RayJob": _SPEC,
    "RayCluster": _SPEC,
    "AppWrapper": _SPEC,
    "SparkApplication": _SPEC,
    "PyTorchJob": _RUN_POLICY,
    "TFJob": _RUN_POLICY,
    "MPIJob": _RUN_POLICY,
    "XGBoostJob": _RUN_POLICY,
    "PaddleJob": _RUN_POLICY,
    "JAXJob": _RUN_POLICY,
}
"""Kind → the field that suspends it. Kinds without one (LeaderWorkerSet, plain pods) are held by scheduling gates."""
ANNOTATED_KINDS = ("LeaderWorkerSet", "PodGroup")
"""Kinds that only get annotations: the number of their evictions, and asks."""


def suspend_owner(resource: Resource, key: str, uid: str, suspended: bool) -> Request:
    *parents, field = SUSPEND_FIELDS[resource.kind]
    body: Unstructured = {field: suspended}
    for parent in reversed(parents):
        body = {parent: body}
    body["metadata"] = {"uid": uid}
    return Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH)


def annotate(resource: Resource, key: str, uid: str, annotations: Mapping[str, str | None]) -> Request:
    """None removes an annotation."""
    body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    return Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH)


def pod_templates_of(raw: Unstructured) -> dict[str, Unstructured]:
    """Pod set → its full template; the model has only the fields that Windlass reads."""
    return {name: template for name, template in _templates(raw["kind"], raw.get("spec") or {}) if name}


def _templates(kind: str, spec: Unstructured) -> Iterator[tuple[str, Unstructured]]:
    match kind:
        case "Job":
            yield "main", spec["template"]
        case "JobSet":
            for job in spec.get("replicatedJobs") or ():
                yield job.get("name", ""), job["template"]["spec"]["template"]
        case "RayCluster":
            yield "headgroup", spec["headGroupSpec"]["template"]
            for group in spec.get("workerGroupSpecs") or ():
                yield group.get("groupName", ""), group["template"]
        case "RayJob":
            yield from _templates("RayCluster", spec["rayClusterSpec"])
            if spec.get("submitterPodTemplate"):
                yield "submitter", spec["submitterPodTemplate"]
        case _:
            for field, roles in spec.items():
                if field.endswith("ReplicaSpecs"):
                    yield from ((role.lower(), replica["template"]) for role, replica in (roles or {}).items())


def terminal_state(owner: OwnerObject) -> str:
    """Succeeded or Failed; empty while the owner has not ended."""
    return owner.status.outcome


def patched_kinds(kinds: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    """From (kind, API group, plural), the kinds that `apply` patches, as (API group, plural)."""
    for kind, group, plural in kinds:
        if kind in SUSPEND_FIELDS or kind in ANNOTATED_KINDS:
            yield group, plural
