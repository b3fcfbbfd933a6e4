"""The pod sets of a unit: as its owner or Workload declares them, or one per group of equal pods.

Called by `build_workload`. Bound pods come first in a set. The set's template is a pod without its node and without
the gates that admission removes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.shape import placement_strategy
from windlass.model.names.kai import KAI_FRACTION, KAI_FRACTION_DEVICES, KAI_MEMORY
from windlass.model.names.kueue import POD_SET_LABEL, TOPOLOGY_PREFIX
from windlass.model.names.others import ALIBABA_COUNT, ALIBABA_MILLI, ALIBABA_MODEL, KUBEFLOW_REPLICA_TYPE_LABEL
from windlass.model.owners import Owner, OwnerPodSet, template_pod
from windlass.model.owners.normalise import LWS_WORKER
from windlass.model.pod import Pod
from windlass.model.topology_request import topology_request_from_annotations
from windlass.model.workload import PodSet, TopologyRequest

ROLE_LABELS = (POD_SET_LABEL, "volcano.sh/task-spec", KUBEFLOW_REPLICA_TYPE_LABEL)
"""Labels with the role of a pod in its group; they name the pod sets."""
_ROLE_LABELS = frozenset(ROLE_LABELS)
KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
_GPU_ANNOTATIONS = (
    KAI_FRACTION,
    KAI_FRACTION_DEVICES,
    KAI_MEMORY,
    ALIBABA_COUNT,
    ALIBABA_MILLI,
    ALIBABA_MODEL,
)


def sort_members(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Bound pods first, then by age and name."""
    return tuple(sorted(pods, key=lambda pod: (not pod.is_bound, pod.metadata.creation_timestamp, pod.key)))


def template_of(pod: Pod) -> Pod:
    """The pod as a template for its set: without its node and without the gates that admission removes."""
    spec = pod.spec
    gates = tuple(gate for gate in spec.scheduling_gates if gate.name not in KUEUE_GATES)
    if not spec.node_name and len(gates) == len(spec.scheduling_gates):
        return pod
    spec = msgspec.structs.replace(spec, node_name="", scheduling_gates=gates)
    return msgspec.structs.replace(pod, spec=spec)


def pod_sets_of_group(pods: Sequence[Pod], topology: TopologyRequest | None) -> tuple[PodSet, ...]:
    """One set per group of equal pods, in the order of their oldest pods."""
    groups = _equal_pods(sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key)))
    names = _names([members[0] for _, members in groups])
    pod_sets = []
    for name, (template, members) in zip(names, groups, strict=True):
        pod_request = topology_request_from_annotations(template.metadata.annotations)
        keys = tuple(pod.key for pod in sort_members(members))
        request = _spanning_pod_sets(pod_request or topology)
        pod_sets.append(PodSet(name, len(members), template, pod_keys=keys, topology=request))
    return tuple(pod_sets)


def _spanning_pod_sets(request: TopologyRequest | None) -> TopologyRequest | None:
    """Equal pods make a set here, so a topology request of the pods is meant for the whole group."""
    if request is None or request.group or request.slice_size:
        return request
    return msgspec.structs.replace(request, spans_pod_sets=True)


def pod_sets_of_owner(owner: Owner, pods: Sequence[Pod]) -> tuple[PodSet, ...]:
    """The sets that the owner declares, with those of their pods that exist."""
    members = members_by_set([declared.name for declared in owner.pod_sets], owner.pod_set_label, pods)
    return tuple(_owner_set(owner, declared, members[declared.name]) for declared in owner.pod_sets)


def _owner_set(owner: Owner, declared: OwnerPodSet, pods: Sequence[Pod]) -> PodSet:
    template = template_of(pods[0]) if pods else template_pod(owner, declared)
    annotations = {**owner.metadata.annotations, **declared.template.metadata.annotations}
    return PodSet(
        name=declared.name,
        count=max(declared.count, len(pods)),
        template=template,
        min_count=declared.min_count,
        pod_keys=tuple(pod.key for pod in sort_members(pods)),
        topology=topology_request_from_annotations(annotations),
    )


def with_pods(sets: tuple[PodSet, ...], pods: Sequence[Pod], set_label: str = "") -> tuple[PodSet, ...]:
    """The sets of a Workload, with the pods that its Job has created so far."""
    if not pods:
        return sets
    members = members_by_set([pod_set.name for pod_set in sets], set_label, pods)
    keys = [tuple(pod.key for pod in sort_members(members[pod_set.name])) for pod_set in sets]
    return tuple(
        msgspec.structs.replace(pod_set, pod_keys=pod_keys) for pod_set, pod_keys in zip(sets, keys, strict=True)
    )


def pod_set_name(names: Sequence[str], set_label: str, pod: Pod) -> str:
    """The name of the pod's set; the last set where no label names one, since leaders have a label."""
    labels = pod.metadata.labels
    for label in (POD_SET_LABEL, set_label):
        if labels.get(label) in names:
            return labels[label]
    if "leader" in names and labels.get(LWS_WORKER) == "0":
        return "leader"
    return names[-1]


def members_by_set(names: Sequence[str], set_label: str, pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    members: dict[str, list[Pod]] = {name: [] for name in names}
    if names:
        for pod in pods:
            members[pod_set_name(names, set_label, pod)].append(pod)
    return members


def _equal_pods(pods: Sequence[Pod]) -> list[tuple[Pod, list[Pod]]]:
    """The template and the members of each set, in the order of their first pods: all are placed as the first one is,
    so they have the same spec, role, and annotations that decide where they can go."""
    groups: list[tuple[Pod, list[Pod]]] = []
    by_marks: dict[object, list[tuple[Pod, list[Pod]]]] = {}
    for pod in pods:
        template, alike = template_of(pod), by_marks.setdefault(placement_marks(pod), [])
        # Specs are compared, not hashed: a gang has few different ones, and encoding each took longer than the rest.
        group = next((group for group in alike if group[0].spec == template.spec), None)
        if group is None:
            group = (template, [])
            alike.append(group)
            groups.append(group)
        group[1].append(pod)
    return groups


def placement_marks(pod: Pod) -> tuple[object, ...]:
    """What tells members of a group apart beside their specs. Pods of an owner's pod set are placed as its template."""
    annotations = [
        (name, value)
        for name, value in pod.metadata.annotations.items()
        if name in _GPU_ANNOTATIONS or name.startswith(TOPOLOGY_PREFIX)
    ]
    labels, role = pod.metadata.labels, ""
    if not _ROLE_LABELS.isdisjoint(labels):
        role = next(labels[label] for label in ROLE_LABELS if label in labels)
    return tuple(sorted(annotations)) if annotations else (), placement_strategy(pod), role


def _names(pods: Sequence[Pod]) -> list[str]:
    """A name for each set: the role of its first pod, or a number."""
    if len(pods) == 1:
        return [_role(pods[0]) or "main"]
    names: list[str] = []
    for number, pod in enumerate(pods, start=1):
        role = _role(pod)
        names.append(role if role and role not in names else f"set-{number}")
    return names


def _role(pod: Pod) -> str:
    return next((pod.metadata.labels[label] for label in ROLE_LABELS if pod.metadata.labels.get(label)), "")
