"""The pod sets of a unit: from what its owner or Workload declares, or by putting equal pods together.

Called by `build`. Pods in a set stand with those on nodes first; the set's template has lost what only one pod has
(its node) and what admission itself lifts (Kueue's gates).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.gpu import FRACTION, FRACTION_DEVICES, MEMORY, TRACE_COUNT, TRACE_MILLI, TRACE_MODELS
from windlass.model.owners import Owner, OwnerPodSet, template_pod
from windlass.model.owners.normalise import LWS_WORKER
from windlass.model.pod import Pod
from windlass.model.topology_request import PREFIX, topology_request_from_annotations
from windlass.model.workload import PodSet, TopologyRequest

PODSET_LABEL = "kueue.x-k8s.io/podset"
ROLE_LABELS = (PODSET_LABEL, "volcano.sh/task-spec", "training.kubeflow.org/replica-type")
"""Labels by which pods of a group say what they are; used for the names of the sets."""
KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
_SHAPING = (FRACTION, FRACTION_DEVICES, MEMORY, TRACE_COUNT, TRACE_MILLI, TRACE_MODELS)


def sort_members(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Those on nodes first, the rest by age and name."""
    return tuple(sorted(pods, key=lambda pod: (not pod.is_bound, pod.metadata.creation_timestamp, pod.key)))


def template_of(pod: Pod) -> Pod:
    """The pod as any of its set: on no node, without the gates that admission lifts, free to wait."""
    spec = pod.spec
    gates = tuple(gate for gate in spec.scheduling_gates if gate.name not in KUEUE_GATES)
    if not spec.node_name and len(gates) == len(spec.scheduling_gates):
        return pod
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(spec, node_name="", scheduling_gates=gates)
    )


def pod_sets_of_group(pods: Sequence[Pod], topology: TopologyRequest | None) -> tuple[PodSet, ...]:
    """One set for each shape of pod, in the order in which the pods came."""
    by_shape: dict[bytes, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key)):
        by_shape.setdefault(_shape(pod), []).append(pod)
    names = _names([members[0] for members in by_shape.values()])
    made = []
    for name, members in zip(names, by_shape.values(), strict=True):
        template = template_of(members[0])
        asked = topology_request_from_annotations(template.metadata.annotations)
        keys = tuple(pod.key for pod in sort_members(members))
        made.append(PodSet(name, len(members), template, pod_keys=keys, topology=_of_gang(asked or topology)))
    return tuple(made)


def _of_gang(request: TopologyRequest | None) -> TopologyRequest | None:
    """Sets are made of shapes here: what their pods ask for is asked of the group."""
    if request is None or request.group or request.slice_size:
        return request
    return msgspec.structs.replace(request, spans_pod_sets=True)


def pod_sets_of_owner(owner: Owner, pods: Sequence[Pod]) -> tuple[PodSet, ...]:
    """The sets that the owner declares, with those of their pods that exist."""
    members = _by_set([one.name for one in owner.pod_sets], owner.pod_set_label, pods)
    return tuple(_owner_set(owner, one, members[one.name]) for one in owner.pod_sets)


def _owner_set(owner: Owner, one: OwnerPodSet, pods: Sequence[Pod]) -> PodSet:
    template = template_of(pods[0]) if pods else template_pod(owner, one)
    annotations = {**owner.metadata.annotations, **one.template.metadata.annotations}
    return PodSet(
        name=one.name,
        count=max(one.count, len(pods)),
        template=template,
        min_count=one.min_count,
        pod_keys=tuple(pod.key for pod in sort_members(pods)),
        topology=topology_request_from_annotations(annotations),
    )


def with_pods(sets: tuple[PodSet, ...], pods: Sequence[Pod], set_label: str = "") -> tuple[PodSet, ...]:
    """The sets of a Workload, with the pods that its Job has made so far."""
    if not pods:
        return sets
    members = _by_set([one.name for one in sets], set_label, pods)
    return tuple(
        msgspec.structs.replace(one, pod_keys=tuple(pod.key for pod in sort_members(members[one.name])))
        for one in sets
    )


def pod_set_name(names: Sequence[str], set_label: str, pod: Pod) -> str:
    """The name of the pod's set; the last one where the pod doesn't say, since leaders do."""
    labels = pod.metadata.labels
    for label in (PODSET_LABEL, set_label):
        if labels.get(label) in names:
            return labels[label]
    if "leader" in names and labels.get(LWS_WORKER) == "0":
        return "leader"
    return names[-1]


def _by_set(names: Sequence[str], set_label: str, pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    members: dict[str, list[Pod]] = {name: [] for name in names}
    if names:
        for pod in pods:
            members[pod_set_name(names, set_label, pod)].append(pod)
    return members


def _shape(pod: Pod) -> bytes:
    """Equal for pods that could stand for one another."""
    template = template_of(pod)
    annotations = {
        name: value
        for name, value in pod.metadata.annotations.items()
        if name in _SHAPING or name.startswith(PREFIX + "podset-")
    }
    role = next((pod.metadata.labels[label] for label in ROLE_LABELS if label in pod.metadata.labels), "")
    return msgspec.json.encode((template.spec, annotations, role), order="deterministic")


def _names(pods: Sequence[Pod]) -> list[str]:
    """A name for each set after its first pod: what the pod says it is, or a number."""
    if len(pods) == 1:
        return [_role(pods[0]) or "main"]
    names: list[str] = []
    for number, pod in enumerate(pods, start=1):
        role = _role(pod)
        names.append(role if role and role not in names else f"set-{number}")
    return names


def _role(pod: Pod) -> str:
    return next((pod.metadata.labels[label] for label in ROLE_LABELS if pod.metadata.labels.get(label)), "")
