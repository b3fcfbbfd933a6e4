"""What every kind of owner is reduced to: `Owner`, its pod sets, and the checks that all readers share.

The modules beside it read one project's kinds each; `model.owners.normalise` chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import ELASTIC_JOB_ANNOTATION
from windlass.model.pod import Pod, RawQuantity
from windlass.model.topology_request import MAX_PODS
from windlass.model.validation import check_pod


class OwnerPodSet(msgspec.Struct, frozen=True):
    """Pods of one template."""

    name: str
    count: int
    """Pods that it runs at a time, as far as they have not ended for good."""
    template: PodTemplate
    min_count: int | None = None
    ended: int = 0
    """Pods by which `count` is smaller since they have ended for good (a Job's completions)."""


class TrainingRuntimeUse(msgspec.Struct, frozen=True):
    """What a TrainJob takes from a runtime, and what it changes there."""

    kind: str
    key: str
    nodes: int | None = None
    requests: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    limits: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class Owner(msgspec.Struct, frozen=True):
    """The object that makes the pods, and how many pods of which template it makes."""

    kind: str
    metadata: ObjectMeta
    pod_sets: tuple[OwnerPodSet, ...] = ()
    """Of one gang, if the owner makes several."""
    gang_count: int = 1
    """Number of gangs with these sets, each a workload of its own (LeaderWorkerSet)."""
    is_gang: bool = True
    """Its pods start together or not at all."""
    min_pods: int | None = None
    suspended: bool = False
    """False as long as Kueue's annotation says that it is being stopped: its template is not restored yet."""
    finished: bool = False
    succeeded: bool = False
    """Finished successfully."""
    deadline: int | None = None
    pod_set_label: str = ""
    """Pod label whose value is the name of the pod's set."""
    queue: str = ""
    """The queue that its spec names; most kinds have a label for that."""
    makes_owners: bool = False
    """It makes other owners (a CronJob's Jobs), which are decided on in its place once they exist."""
    is_template: bool = False
    """It makes nothing by itself: others are made by it (a training runtime)."""
    trainer_sets: tuple[str, ...] = ()
    """Of a training runtime: the sets whose size and resources a TrainJob may change."""
    runtime: TrainingRuntimeUse | None = None
    """The runtime that has its pod templates (TrainJob)."""
    hold: str = ""
    """What it asks for and Windlass can't give, by the path of the field."""

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def is_elastic(self) -> bool:
        """A Job that may grow while it runs: Kueue's workload slices."""
        return self.kind == "Job" and self.metadata.annotations.get(ELASTIC_JOB_ANNOTATION) == "true"


def template_pod(owner: Owner, pod_set: OwnerPodSet) -> Pod:
    """A pod of the set as the controller would create it."""
    name = f"{owner.metadata.name or owner.metadata.generate_name}-{pod_set.name}"
    metadata = msgspec.structs.replace(
        pod_set.template.metadata, name=name, namespace=owner.metadata.namespace or "default"
    )
    return Pod(metadata=metadata, spec=pod_set.template.spec)


def checked_template(template: PodTemplate, path: str) -> PodTemplate:
    """The template, checked like a pod; paths of errors are relative to the owner."""
    named = msgspec.structs.replace(template.metadata, name="template")
    try:
        check_pod(Pod(metadata=named, spec=template.spec))
    except InputError as error:
        raise InputError(error.message, path=f"{path}.{error.path}", remedy=error.remedy, code=error.code) from None
    return template


def distinct_sets(sets: Iterable[OwnerPodSet], path: str) -> tuple[OwnerPodSet, ...]:
    made = tuple(sets)
    names = [pod_set.name for pod_set in made]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise InputError(
                f"name {name!r} is empty or used twice", path=f"{path}[{index}]", remedy="use unique names"
            )
    return made


def checked_count(value: int, path: str) -> int:
    if not 0 <= value <= MAX_PODS:
        raise InputError(f"{value} is out of range", path=path, remedy=f"use 0 to {MAX_PODS}")
    return value


def longest_limit(limits: list[int | None]) -> int | None:
    """The longest limit, if every part has one."""
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None
