"""Gangs that hold resources while they wait for one another, and members that block their gang.

Called by `why`. The engine reports missing members. Where a pod would fit but waits for its gang, `why` explains the
member that does not fit.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject, group_names, is_waiting
from windlass.diagnose.unstructured import nested_int
from windlass.model.names.kueue import POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.pod import Pod

GANG_OWNER_KINDS = (
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "JobSet",
    "TrainJob",
    "RayCluster",
    "LeaderWorkerSet",
    "PodGroup",
)
"""Kinds whose pods form one gang."""


class Gang(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    minimum: int
    running: int
    waiting: int

    @property
    def is_partial(self) -> bool:
        return 0 < self.running < self.minimum and self.waiting > 0


def find_gangs(evidence: Evidence) -> list[Gang]:
    """All gangs of the cluster."""
    members: dict[tuple[str, str], list[ClusterObject]] = {}
    minimum: dict[tuple[str, str], int] = {}
    for group in evidence.of_kind("PodGroup"):
        key = (group.namespace, group.name)
        minimum[key] = _minimum(group)
        members.setdefault(key, [])
    for pod in evidence.of_kind("Pod"):
        for key in _groups_of(evidence, pod):
            members.setdefault(key, []).append(pod)
            total = pod.annotations.get(POD_GROUP_TOTAL_COUNT_ANNOTATION, "")
            if total.isdigit():
                minimum[key] = max(minimum.get(key, 0), int(total))
    return [_group(key, pods, minimum.get(key, 0)) for key, pods in members.items()]


def _group(key: tuple[str, str], members: list[ClusterObject], minimum: int) -> Gang:
    pods = [item.decoded for item in members if isinstance(item.decoded, Pod)]
    running = sum(pod.is_bound and pod.status.phase in ("Running", "Succeeded", "Pending") for pod in pods)
    waiting = sum(not pod.is_bound and pod.status.phase in ("Pending", "") for pod in pods)
    return Gang(key[1], key[0], minimum or len(pods), running, waiting)


def _minimum(group: ClusterObject) -> int:
    spec = group.data
    return (
        nested_int(spec, "spec", "minMember")
        or nested_int(spec, "spec", "policy", "gang", "minCount")
        or nested_int(spec, "spec", "schedulingPolicy", "gang", "minCount")
        or nested_int(spec, "spec", "gang", "minCount")
    )


def _groups_of(evidence: Evidence, pod: ClusterObject) -> list[tuple[str, str]]:
    named = [(pod.namespace, name) for name in sorted(group_names(pod))]
    if named:
        return named
    owner = evidence.owner(pod)
    if owner is not None:
        top = evidence.owner(owner) or owner
        for ancestor in (owner, top):
            if ancestor.kind in GANG_OWNER_KINDS:
                return [(ancestor.namespace, ancestor.name)]
        return []
    kinds = [(pod.namespace, name) for kind, name, _ in pod.owners if kind in GANG_OWNER_KINDS]
    return kinds[:1]


def deadlock_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """Partly placed gangs, the subject's among them, that wait for the resources of one another."""
    names = {key for pod in subject.pods for key in _groups_of(evidence, pod)}
    if not names and not any(item.kind in GANG_OWNER_KINDS for item in subject.related):
        return None
    names |= {(item.namespace, item.name) for item in subject.related}
    known = find_gangs(evidence)
    own_gangs = [group for group in known if (group.namespace, group.name) in names]
    partial = [group for group in known if group.is_partial]
    stuck = [group for group in own_gangs if group.is_partial]
    if stuck and len(partial) > 1:
        listed = "; ".join(f"{gang.name} has {gang.running} of {gang.minimum}" for gang in partial[:4])
        message = f"{len(partial)} gangs run in part and wait for the rest of their pods: {listed}"
        return Finding("GANG_DEADLOCK", message)
    return None


def waiting_members(evidence: Evidence, subject: Subject) -> list[ClusterObject]:
    """Waiting pods of the subject's gangs that are not the subject's own."""
    names = {key for pod in subject.pods for key in _groups_of(evidence, pod)}
    if not names:
        return []
    own_pods = {id(pod) for pod in subject.pods}
    return [
        pod
        for pod in evidence.of_kind("Pod")
        if id(pod) not in own_pods and is_waiting(pod) and names & set(_groups_of(evidence, pod))
    ]
