"""Gangs that hold resources while they wait for one another, and members that block or fail the others.

Called by `why`. The engine reports missing members. Where a pod would fit but waits for its gang, `why` explains the
member that does not fit; where it waits in an init container for its leader, or has lost a peer, what is wrong with
that one.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence, once_per_evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.pod_status import ended_at, is_failing
from windlass.diagnose.subject import Subject, group_of, is_waiting, owners_of, subject_of
from windlass.diagnose.unstructured import nested_int, nested_map, nested_maps, nested_string
from windlass.model.digits import is_digits
from windlass.model.group_membership import ANNOUNCED_FORMS, GANG_KINDS, KUEUE_GROUP, workload_name
from windlass.model.owners.normalise import LWS_GROUP
from windlass.model.pod import Pod
from windlass.model.queue_names import named_queue

GANG_OWNER_KINDS = {kind for _, kind in GANG_KINDS} | {"JobSet", "PodGroup"}
"""Kinds whose pods form one gang. The engine starts a JobSet as a whole only in a queue, but it needs all its pods."""
GANG_JOB_GROUPS = {group for group, kind in GANG_KINDS if kind == "Job"}
"""API groups whose Jobs are gangs; that of Kubernetes is not one of them."""
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
"""Annotation of the pods of a LeaderWorkerSet: how many are in one group."""
GangKey = tuple[str, str, str]
"""Namespace, what names it (the source of a group, or the kind of an owner) and name."""


class Gang(msgspec.Struct, frozen=True):
    name: str
    minimum: int
    running: int
    waiting: int

    @property
    def is_partial(self) -> bool:
        return 0 < self.running < self.minimum and self.waiting > 0


@once_per_evidence
def _waiting_gangs(evidence: Evidence) -> set[GangKey]:
    """Gangs with pods that wait for a node."""
    pods = (pod for pod in evidence.of_kind("Pod") if isinstance(pod.decoded, Pod) and not pod.decoded.is_bound)
    return {key for pod in pods if (key := _gang_of(evidence, pod)) is not None}


@once_per_evidence
def find_gangs(evidence: Evidence) -> dict[GangKey, Gang]:
    """All gangs of the cluster."""
    members: dict[GangKey, list[ClusterObject]] = {}
    minimum: dict[GangKey, int] = {}
    for group in evidence.of_kind("PodGroup"):
        minimum[_key_of(group)] = _minimum(group)
        members.setdefault(_key_of(group), [])
    for pod in evidence.of_kind("Pod"):
        key = _gang_of(evidence, pod)
        if key is not None:
            members.setdefault(key, []).append(pod)
            minimum[key] = max(minimum.get(key, 0), _announced_size(key, pod))
    return {key: _gang(key, pods, minimum.get(key, 0)) for key, pods in members.items()}


def _announced_size(key: GangKey, pod: ClusterObject) -> int:
    """0 where its pods announce no size. Kueue makes a Workload of a pod group, whose pods go on announcing it."""
    _, named_by, _ = key
    if named_by == "LeaderWorkerSet":
        size = pod.annotations.get(LWS_SIZE, "")
        return int(size) if is_digits(size) else 0
    form = ANNOUNCED_FORMS.get(KUEUE_GROUP if named_by == "Workload" else named_by)
    return (form.size_in(pod.annotations) or 0) if form is not None else 0


def _gang(key: GangKey, members: list[ClusterObject], minimum: int) -> Gang:
    pods = [item.decoded for item in members if isinstance(item.decoded, Pod)]
    running = sum(pod.is_bound and pod.status.phase in ("Running", "Succeeded", "Pending") for pod in pods)
    waiting = sum(not pod.is_bound and pod.status.phase in ("Pending", "") for pod in pods)
    return Gang(key[2], minimum or len(pods), running, waiting)


def _minimum(group: ClusterObject) -> int:
    spec = group.data
    return (
        nested_int(spec, "spec", "minMember")
        or nested_int(spec, "spec", "policy", "gang", "minCount")
        or nested_int(spec, "spec", "schedulingPolicy", "gang", "minCount")
        or nested_int(spec, "spec", "gang", "minCount")
    )


def _gang_of(evidence: Evidence, pod: ClusterObject) -> GangKey | None:
    """As the engine groups pods: a Kueue Workload that exists, then a group, then the topmost owner that is a gang."""
    named_workload = workload_name(pod.labels, pod.annotations)
    workload = evidence.get("Workload", pod.namespace, named_workload) if named_workload else None
    if workload is not None:
        return _key_of(workload)
    group = group_of(pod)
    if group is not None:
        return pod.namespace, group.source, group.name
    if not pod.owners:
        return None
    known = [_key_of(owner) for owner in reversed(owners_of(evidence, pod))]
    named = [(pod.namespace, kind, name) for kind, name, _ in pod.owners]
    key = next((key for key in (*known, *named) if _makes_gang(evidence, pod, key)), None)
    is_set = key is not None and key[1] == "LeaderWorkerSet" and (key in known or LWS_GROUP in pod.labels)
    return _group_of_set(key, pod) if key is not None and is_set else key


def _makes_gang(evidence: Evidence, pod: ClusterObject, key: GangKey) -> bool:
    """A plain Job starts its pods one by one, unless a queue admits it whole or its pods are ranks of one program."""
    if key[1] != "Job":
        return key[1] in GANG_OWNER_KINDS
    references = pod.decoded.metadata.owner_references if isinstance(pod.decoded, Pod) else ()
    named = (reference.api_version for reference in references if (reference.kind, reference.name) == key[1:])
    job = evidence.get("Job", key[0], key[2])
    groups = {job.api_group} if job is not None else {version.rpartition("/")[0] for version in named}
    if not groups.isdisjoint(GANG_JOB_GROUPS):
        return True
    if job is None:
        return False
    spec = nested_map(job.data, "spec")
    is_ranked = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    return is_ranked or bool(named_queue(job.labels, job.annotations))


def _group_of_set(key: GangKey, pod: ClusterObject) -> GangKey:
    """The group of a LeaderWorkerSet that the pod is of: its groups start and serve independently of one another."""
    number = pod.labels.get(LWS_GROUP) or pod.name.removeprefix(f"{key[2]}-").partition("-")[0]
    return (*key[:2], f"{key[2]}-{number}")


def _key_of(item: ClusterObject) -> GangKey:
    return item.namespace, item.api_group if item.kind == "PodGroup" else item.kind, item.name


def _gangs_of(evidence: Evidence, subject: Subject) -> set[GangKey]:
    return {key for pod in subject.pods if (key := _gang_of(evidence, pod)) is not None}


def deadlock_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """Partly placed gangs, the subject's among them, that wait for the resources of one another."""
    own = _gangs_of(evidence, subject)
    if not own and not any(item.kind in GANG_OWNER_KINDS for item in subject.related):
        return None
    own |= {_key_of(item) for item in subject.related}
    if len(_waiting_gangs(evidence)) < 2:
        return None  # what is not partial waits for nobody
    partial = {key: gang for key, gang in find_gangs(evidence).items() if gang.is_partial}
    if len(partial) > 1 and not own.isdisjoint(partial):
        some = [*partial.values()][:4]
        listed = "; ".join(f"{gang.name} has {gang.running} of {gang.minimum}" for gang in some)
        message = f"{len(partial)} gangs run in part and wait for the rest of their pods: {listed}"
        return Finding("GANG_DEADLOCK", message)
    return None


def partial_gang(evidence: Evidence, subject: Subject) -> Gang | None:
    """The subject's gang, if some of its pods run while others wait."""
    own = _gangs_of(evidence, subject)
    found = find_gangs(evidence) if own else {}
    return next((found[key] for key in sorted(own) if key in found and found[key].is_partial), None)


def waiting_members(evidence: Evidence, subject: Subject) -> list[ClusterObject]:
    """Waiting pods of the subject's gangs that are not the subject's own."""
    gangs = _gangs_of(evidence, subject)
    if not gangs:
        return []
    own_pods = {id(pod) for pod in subject.pods}
    return [
        pod
        for pod in evidence.of_kind("Pod")
        if id(pod) not in own_pods and is_waiting(pod) and _gang_of(evidence, pod) in gangs
    ]


# Siblings that a pod with a node waits for, or has lost


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


PEER_LOST = re.compile(
    r"remote process exited|ncclRemoteError|(closed|reset) by (remote )?peer|socket closed|rendezvous|watchdog caught"
    r"|\b(peer|rank|worker|actor|node)\b.{0,40}\b(closed|exited|died|dead|lost|failed|unreachable)",
    re.I,
)
"""What programs of a gang say when another of them is gone."""


def failed_peer(evidence: Evidence, pod: ClusterObject) -> ClusterObject | None:
    """The sibling that failed first, or never came, where the pod's own log complains of its peers."""
    if not any(PEER_LOST.search(line) for log in evidence.logs_of(pod) for line in log.lines):
        return None
    own_end = ended_at(pod)
    for other in _family(evidence, pod):
        is_later = own_end and ended_at(other) > own_end
        if other is not pod and not is_later and (is_waiting(other) or is_failing(other)):
            return other
    return None


# Pods that a rollout replaces


def replaced_pods(evidence: Evidence, pod: ClusterObject) -> list[ClusterObject]:
    """Working pods of older ReplicaSets of its Deployment, if that may not end them before the new ones are ready."""
    owners = owners_of(evidence, pod)
    if [owner.kind for owner in owners[:2]] != ["ReplicaSet", "Deployment"] or _may_end_first(owners[1]):
        return []
    others = [item for item in evidence.children(owners[1]) if item.kind == "ReplicaSet" and item is not owners[0]]
    pods = [old for item in others for old in evidence.children(item) if old.kind == "Pod"]
    return [old for old in pods if not is_waiting(old) and not is_failing(old)]


def _may_end_first(deployment: ClusterObject) -> bool:
    """Whether its strategy lets it end old pods first: by default a quarter of them, rounded down."""
    strategy = nested_map(deployment.data, "spec", "strategy")
    allowed = nested_map(strategy, "rollingUpdate").get("maxUnavailable", "25%")
    spec = nested_map(deployment.data, "spec")
    replicas = nested_int(spec, "replicas") if "replicas" in spec else 1
    if isinstance(allowed, str) and allowed.removesuffix("%").isascii() and allowed.removesuffix("%").isdigit():
        share = int(allowed.removesuffix("%"))
        allowed = replicas * share // 100 if allowed.endswith("%") else share
    return nested_string(strategy, "type") == "Recreate" or not isinstance(allowed, int) or allowed > 0
