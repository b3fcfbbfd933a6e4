"""Owners of pods that a queue can stop and start: where each kind says that it is suspended, and what it is made of.

Used by `apply.admission` and, for the rights that this takes, by `cli.install_rbac`; data in, data out. Pod sets
are named as `model.owners` names them, so that a Workload and the pods that come of it fit together.
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
    "PyTorchJob": _RUN_POLICY,
    "TFJob": _RUN_POLICY,
    "MPIJob": _RUN_POLICY,
    "XGBoostJob": _RUN_POLICY,
    "PaddleJob": _RUN_POLICY,
    "JAXJob": _RUN_POLICY,
}
"""Kind → the field that stops it. Kinds without one (LeaderWorkerSet, plain pods) are held by their pods' gates."""
ANNOTATED_KINDS = ("LeaderWorkerSet", "PodGroup")
"""Kinds that only get a note of how often they had to go."""


def suspend_owner(resource: Resource, key: str, uid: str, suspended: bool) -> Request:
    """Stops what the owner runs, or lets it go."""
    *above, last = SUSPEND_FIELDS[resource.kind]
    body: Unstructured = {last: suspended}
    for name in reversed(above):
        body = {name: body}
    body["metadata"] = {"uid": uid}
    return Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH)


def annotate(resource: Resource, key: str, uid: str, annotations: Mapping[str, str]) -> Request:
    body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    return Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH)


def pod_templates_of(raw: Unstructured) -> dict[str, Unstructured]:
    """Pod set → its template as the API server has it, of which the model keeps only what it reads."""
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
                    yield from ((role.lower(), one["template"]) for role, one in (roles or {}).items())


def terminal_state(owner: OwnerObject) -> str:
    """How an owner has ended; empty while it has not."""
    for one in owner.status.conditions:
        if one.status == "True" and one.type in ("Complete", "Completed", "Succeeded", "Failed"):
            return "Failed" if one.type == "Failed" else "Succeeded"
    ends = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "STOPPED": "Failed"}
    return ends.get(owner.status.job_status, "")


def patched_kinds(kinds: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, str]]:
    """Of kinds as (kind, API group, plural), those that are patched here, as (API group, plural)."""
    for kind, group, plural in kinds:
        if kind in SUSPEND_FIELDS or kind in ANNOTATED_KINDS:
            yield group, plural
