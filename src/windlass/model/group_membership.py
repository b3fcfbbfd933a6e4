"""Which gang a pod is marked as a member of: the one table of the forms, and of the owners whose pods form a gang.

`cluster.workloads` groups pods by it; `diagnose`, `web` and `simulate` ask here too, so that they name the gang that
the engine decides on. The first form of `GROUP_FORMS` that a pod uses counts, and a group counts before an owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from windlass.model.names.kai import KAI_GROUP_ANNOTATION
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    WORKLOAD_ANNOTATION,
)
from windlass.model.names.others import COSCHEDULING_LABELS
from windlass.model.names.volcano import VOLCANO_GROUP_ANNOTATION, VOLCANO_QUALIFIED_GROUP_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.queue_names import describe_queue, named_queue

GroupSource = Literal[
    "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai", "kueue-group"
]
"""Of groups that are objects, the API group of their PodGroup; of announced groups, a word of our own. Two groups of
one name are different gangs where their sources differ, and `read_parts` reads each source in its own way."""
NATIVE: Final = "scheduling.k8s.io"
COSCHEDULING: Final = "scheduling.x-k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
KAI: Final = "scheduling.run.ai"
KUEUE_GROUP: Final = "kueue-group"


class GroupForm(msgspec.Struct, frozen=True):
    """One way in which a pod names its group. Annotations count before labels, as Kueue reads them."""

    source: GroupSource
    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    size_annotation: str = ""
    """Of an announced group, which is no object: the annotation of every pod that has the number of pods."""

    def size_in(self, annotations: Mapping[str, object]) -> int | None:
        """The number of pods that a pod announces; None where it is no number from 1 to 99,999,999."""
        value = annotations.get(self.size_annotation)
        if not isinstance(value, str) or not (value.isascii() and value.isdigit() and len(value) < 9):
            return None
        return int(value) or None


KUEUE_FORM = GroupForm(KUEUE_GROUP, (KUEUE_POD_GROUP_NAME,), (KUEUE_POD_GROUP_NAME,), POD_GROUP_TOTAL_COUNT_ANNOTATION)
GROUP_FORMS = (
    GroupForm(NATIVE),  # the field spec.schedulingGroup.podGroupName
    GroupForm(COSCHEDULING, labels=COSCHEDULING_LABELS),
    GroupForm(VOLCANO, (VOLCANO_GROUP_ANNOTATION, VOLCANO_QUALIFIED_GROUP_ANNOTATION)),
    GroupForm(KAI, (KAI_GROUP_ANNOTATION,)),
    KUEUE_FORM,
)
"""In order of precedence."""
_MARKS = tuple(
    (form.source, is_annotation, key)
    for form in GROUP_FORMS
    for is_annotation, keys in ((True, form.annotations), (False, form.labels))
    for key in keys
)
"""The forms, flat: this is asked for every pod."""
GROUP_LABELS = frozenset(label for form in GROUP_FORMS for label in form.labels)
GROUP_ANNOTATIONS = frozenset(annotation for form in GROUP_FORMS for annotation in form.annotations)
POD_GROUP_SOURCES = tuple(form.source for form in GROUP_FORMS if not form.size_annotation)
"""Sources whose groups are objects of kind PodGroup."""
ANNOUNCED_FORMS: dict[str, GroupForm] = {form.source: form for form in GROUP_FORMS if form.size_annotation}
"""Source → form of the announced groups: those without an object, whose size every pod announces."""

INDEPENDENT_POD_KINDS = frozenset(
    ("apps", kind) for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "Deployment")
) | {
    ("", "Node"),
    ("", "ReplicationController"),
    ("", "Pod"),
}
"""Kinds whose pods are independent of one another."""
GANG_KINDS = frozenset(
    ("kubeflow.org", kind) for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
) | {
    ("trainer.kubeflow.org", "TrainJob"),
    ("ray.io", "RayCluster"),
    ("ray.io", "RayJob"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("batch.volcano.sh", "Job"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("sparkoperator.k8s.io", "SparkApplication"),
}
"""Kinds whose pods form a gang, even where the owner object is not known."""
GANG_IF_QUEUED_KINDS = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
"""Kinds whose pods form a gang if they have a queue label."""
OWNER_MAKING_KINDS = frozenset({("batch", "CronJob"), ("ray.io", "RayService")})
"""Kinds that make owners (Jobs, RayClusters) one after the other: these are decided on."""
KNOWN_OWNER_KINDS = GANG_KINDS | GANG_IF_QUEUED_KINDS | INDEPENDENT_POD_KINDS | OWNER_MAKING_KINDS


class GroupReference(msgspec.Struct, frozen=True):
    source: GroupSource
    name: str


def group_reference(
    labels: Mapping[str, object], annotations: Mapping[str, object], pod_group_name: str
) -> GroupReference | None:
    """The group that a pod with these names; `pod_group_name` is that of its `spec.schedulingGroup`."""
    if pod_group_name:
        return GroupReference(NATIVE, pod_group_name)
    if GROUP_LABELS.isdisjoint(labels) and GROUP_ANNOTATIONS.isdisjoint(annotations):
        return None  # most pods
    for source, is_annotation, key in _MARKS:
        name = (annotations if is_annotation else labels).get(key)
        if name and isinstance(name, str):
            return GroupReference(source, name)
    return None


def group_of_pod(pod: Pod) -> GroupReference | None:
    native = pod.spec.scheduling_group
    name = native.pod_group_name if native is not None else ""
    return group_reference(pod.metadata.labels, pod.metadata.annotations, name)


def workload_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The Kueue Workload that a pod names, if one exists: it counts before every group. Kueue names the Workload of a
    pod group like the group."""
    own = annotations.get(WORKLOAD_ANNOTATION) or labels.get(PREBUILT_WORKLOAD_LABEL)
    return own or annotations.get(KUEUE_POD_GROUP_NAME) or labels.get(KUEUE_POD_GROUP_NAME, "")


class GroupMember(NamedTuple):
    """What the pods of a group without an object have to agree on, of one of them."""

    key: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def group_disagreement(form: GroupForm, members: Sequence[GroupMember]) -> str:
    """Where the pods name different queues or sizes, as Kueue refuses them: whose quota would it be charged to? Empty
    where they agree. The engine holds such a group, and `check` reports it."""
    queues = {member.key: named_queue(member.labels, member.annotations) for member in members}
    if pair := _first_pair(queues):
        first, other = pair
        first_queue, other_queue = [describe_queue(queues[key]) if queues[key] else "no queue" for key in pair]
        said = f"{first_queue} on {first} and {other_queue} on {other}"
        return f"the pods of the group name different queues: {said}; name one queue on all of them"
    sizes = {member.key: member.annotations.get(form.size_annotation, "") for member in members}
    if pair := _first_pair(sizes):
        (first, other), name = pair, form.size_annotation
        first_size, other_size = sizes[first], sizes[other]
        said = f'"{first_size}" on {first} and "{other_size}" on {other}'
        return f"the pods of the group have different values of {name}: {said}; set one on all of them"
    return ""


def _first_pair(values: Mapping[str, str]) -> tuple[str, ...]:
    """The first two pods by name that differ; empty where all are the same."""
    if len(set(values.values())) < 2:
        return ()
    first = min(values)
    return first, min(key for key in values if values[key] != values[first])
