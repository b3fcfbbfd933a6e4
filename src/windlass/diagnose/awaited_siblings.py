"""The pod that an init container waits for: the head, master or leader of the same owner, where that does not work.

`why` asks for a pod that has a node and is still in its init containers; the cause is then the sibling's own.
"""

from __future__ import annotations

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.pod_status import is_failing
from windlass.diagnose.subject import is_waiting, owners_of, subject_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string

LEADER_LABELS = {
    "ray.io/node-type": "head",
    "training.kubeflow.org/job-role": "master",
    "training.kubeflow.org/replica-type": "master",
    "leaderworkerset.sigs.k8s.io/worker-index": "0",
    "batch.kubernetes.io/job-completion-index": "0",
}
"""Labels of the pod that the others of its owner wait for."""
CLUSTER_LABELS = ("ray.io/cluster", "training.kubeflow.org/job-name", "leaderworkerset.sigs.k8s.io/name")
"""Labels that the pods of one owner share, where the owner is not in the evidence."""


def waiting_init_container(pod: ClusterObject) -> str:
    """The init container that runs, which is none that stays beside the others; empty if none does."""
    stays = {
        nested_string(container, "name")
        for container in nested_maps(pod.data, "spec", "initContainers")
        if nested_string(container, "restartPolicy") == "Always"
    }
    for status in nested_maps(pod.data, "status", "initContainerStatuses"):
        if "running" in nested_map(status, "state") and nested_string(status, "name") not in stays:
            return nested_string(status, "name")
    return ""


def awaited_sibling(evidence: Evidence, pod: ClusterObject) -> tuple[ClusterObject, bool] | None:
    """The sibling that finds no node or fails, and whether it is the one that the others wait for; None if none is.

    Where a leader is known, only that counts: workers do not wait for one another before they start.
    """
    family = [other for other in _family(evidence, pod) if other is not pod]
    leaders = [other for other in family if any(other.labels.get(key) == role for key, role in LEADER_LABELS.items())]
    for other in leaders or family:
        if is_waiting(other) or is_failing(other):
            return other, bool(leaders)
    return None


def _family(evidence: Evidence, pod: ClusterObject) -> list[ClusterObject]:
    """The pods of its topmost owner, or those of the same cluster by their labels."""
    owners = owners_of(evidence, pod)
    if owners:
        return list(subject_of(evidence, owners[-1]).pods)
    keys = [(key, pod.labels[key]) for key in CLUSTER_LABELS if key in pod.labels]
    return [
        other
        for other in evidence.of_kind("Pod")
        if other.namespace == pod.namespace
        and (any(other.labels.get(key) == name for key, name in keys) or set(other.owners) & set(pod.owners))
    ]
