"""The pods of a Job: how each counts, and the indices of an Indexed Job. Used by `job`."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.api.timestamps import parse_time
from windlass.embedded.controllers.objects import annotations_of, is_deleting, name_of, uid_of
from windlass.embedded.controllers.pod_state import phase_of
from windlass.embedded.controllers.pod_template import pod_from_template
from windlass.model.names.kubernetes import JOB_CONTROLLER_UID_LABEL, JOB_NAME_LABEL
from windlass.model.unstructured import Unstructured

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def is_indexed(job: Unstructured) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Unstructured) -> int:
    """-1 without an index."""
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    found = parse_decimal(text)
    return -1 if found is None else found


def has_tracking_finalizer(pod: Unstructured) -> bool:
    """Whether it has not been counted yet."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def remove_finalizer_patch(pod: Unstructured) -> Unstructured:
    """The patch that releases a counted pod."""
    remaining = [name for name in pod["metadata"].get("finalizers") or () if name != TRACKING_FINALIZER]
    return {"metadata": {"uid": uid_of(pod), "finalizers": remaining or None}}


def has_failed(job: Unstructured, pod: Unstructured) -> bool:
    """A pod that is being deleted counts as failed, since its outcome may never be known."""
    if phase_of(pod) == "Failed":
        return True
    if job["spec"].get("podReplacementPolicy") == "Failed":
        return False
    return is_deleting(pod) and phase_of(pod) != "Succeeded"


def finished_at(pod: Unstructured, now: float) -> float:
    """When its last container ended; else when it was deleted, else now."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    times = [parse_time(((status.get("state") or {}).get("terminated") or {}).get("finishedAt")) for status in statuses]
    known = max(times, default=0.0) or parse_time(pod["metadata"].get("deletionTimestamp"))
    return min(known, now) if known else now


def new_pod(job: Unstructured, index: int = -1) -> Unstructured:
    """The Job's next pod; for an Indexed Job, the pod of an index."""
    name = name_of(job)
    pod = pod_from_template(job["spec"]["template"], job, prefix=f"{name}-" if index < 0 else f"{name}-{index}-")
    metadata = pod["metadata"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), TRACKING_FINALIZER]
    labels = {JOB_NAME_LABEL: name, "job-name": name}
    uid = uid_of(job)
    labels |= {JOB_CONTROLLER_UID_LABEL: uid, "controller-uid": uid}
    metadata["labels"] = {**metadata["labels"], **labels}
    if index >= 0:
        metadata["annotations"] = {**metadata.get("annotations", {}), COMPLETION_INDEX: str(index)}
        metadata["labels"][COMPLETION_INDEX] = str(index)
        spec = pod["spec"]
        spec["hostname"] = spec.get("hostname") or f"{name}-{index}"
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            _add_index(container)
    return pod


def _add_index(container: Unstructured) -> None:
    environment = container.setdefault("env", [])
    if not any(variable.get("name") == "JOB_COMPLETION_INDEX" for variable in environment):
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
        environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})


def duplicate_index_pods(pods: Sequence[Unstructured]) -> list[Unstructured]:
    """Active pods of an index that has an older active pod."""
    seen: set[int] = set()
    extra: list[Unstructured] = []
    for pod in sorted(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), name_of(pod))):
        index = index_of(pod)
        if index < 0 or index in seen:
            extra.append(pod)
        seen.add(index)
    return extra
