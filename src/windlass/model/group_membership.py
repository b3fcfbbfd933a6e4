"""Which gang a pod is marked as a member of: the one table of the forms, and of the owners whose pods form a gang.

`cluster.workloads` groups pods by it; `diagnose`, `web` and `simulate` ask here too, so that they name the gang that
the engine decides on. The first form of `GROUP_FORMS` that a pod uses counts, and a group counts before an owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from windlass.model.names.kai import KAI_GROUP_ANNOTATION
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, PREBUILT_WORKLOAD_LABEL, WORKLOAD_ANNOTATION
from windlass.model.names.others import COSCHEDULING_LABELS
from windlass.model.names.volcano import VOLCANO_GROUP_ANNOTATION, VOLCANO_QUALIFIED_GROUP_ANNOTATION
from windlass.model.pod import Pod

GroupSource = Literal[
    "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai", "kueue-group"
]
"""The API group of the PodGroup that a pod names, or `kueue-group`: Kueue's pod groups have no object."""
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

    def name_in(self, labels: Mapping[str, object], annotations: Mapping[str, object]) -> str:
        for keys, values in ((self.annotations, annotations), (self.labels, labels)):
            for key in keys:
                name = values.get(key)
                if name and isinstance(name, str):
                    return name
        return ""


KUEUE_FORM = GroupForm(KUEUE_GROUP, (KUEUE_POD_GROUP_NAME,), (KUEUE_POD_GROUP_NAME,))
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
POD_GROUP_SOURCES = tuple(form.source for form in GROUP_FORMS if form.source != KUEUE_GROUP)
"""Sources whose groups are objects of kind PodGroup."""

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
    return own or KUEUE_FORM.name_in(labels, annotations)


def read_group_size(value: object) -> int | None:
    """The number in Kueue's annotation pod-group-total-count; None for what Kueue's webhook refuses."""
    if not isinstance(value, str) or not (value.isascii() and value.isdigit() and len(value) < 9):
        return None
    return int(value) or None
