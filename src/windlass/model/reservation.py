"""`kind: Reservation`: capacity that is kept for certain workloads during a time.

Decoded by `model.codec`, strictly: an unknown field is an error. The snapshot has the reservations;
`placement.timeplan` chooses their nodes and keeps other work out.

    apiVersion: windlass.dev/v1
    kind: Reservation
    metadata: {name: launch}
    spec:
      count: 2
      resources: {nvidia.com/gpu: 8}
      topology: topology.kubernetes.io/rack
      from: 2026-01-01T08:00:00Z
      until: 2026-01-01T12:00:00Z
      who: {namespaces: [research], queues: [research/urgent], labels: {user: ada}}

`gpus: 16` is short for sixteen units of one GPU each. The kind is cluster-scoped, so that only
administrators, by RBAC, can reserve.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import Container, Pod, PodSpec, RawQuantity, ResourceRequirements, Toleration
from windlass.model.quota import quota_requests
from windlass.model.times import parse_timestamp

MAX_UNITS = 100_000


class StrictStruct(KubeStruct, frozen=True, forbid_unknown_fields=True):
    """Base of our own kind's parts."""


class ReservationSubjects(StrictStruct, frozen=True):
    """Workloads that may use it: those that match any of these."""

    namespaces: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """LocalQueues as `namespace/name`."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that the workload's pods all have: a user, a team, a project."""

    def matches(self, namespace: str, queue: str, labels: Mapping[str, str]) -> bool:
        if namespace in self.namespaces or (queue and f"{namespace}/{queue}" in self.queues):
            return True
        return bool(self.labels) and self.labels.items() <= labels.items()


class ReservationSpec(StrictStruct, frozen=True):
    from_: str = msgspec.field(name="from", default="")
    until: str = ""
    who: ReservationSubjects = ReservationSubjects()
    gpus: int | None = None
    """Units of one GPU each; instead of `count` and `resources`."""
    count: int = 1
    """Units."""
    resources: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    """Of one unit; a unit is on one node."""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    topology: str = ""
    """Node label: all units are in one domain of it."""
    tolerations: tuple[Toleration, ...] = ()


class ReservationStatus(KubeStruct, frozen=True):
    nodes: dict[str, int] = msgspec.field(default_factory=dict)
    """Node → units of the last plan, which are kept if possible."""


class ReservationObject(StrictStruct, frozen=True):
    """The Kubernetes object."""

    spec: ReservationSpec
    metadata: ObjectMeta = ObjectMeta()
    status: ReservationStatus = ReservationStatus()
    api_version: str = ""
    kind: str = ""


class Reservation(msgspec.Struct, frozen=True):
    """A checked reservation: `count` units like `pod`, from `start` to `until`, for `who`."""

    name: str
    start: int
    until: int
    count: int
    template: Pod
    who: ReservationSubjects
    topology: str = ""
    nodes: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"reservation/{self.name}"


def reservation_from_object(wire: ReservationObject) -> Reservation:
    """The reservation of the object. Raises an `InputError` that names the field."""
    spec = wire.spec
    if not wire.metadata.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    start, until = _time(spec.from_, "spec.from"), _time(spec.until, "spec.until")
    if until <= start:
        raise InputError("ends before it begins", path="spec.until", remedy="use a time after spec.from")
    if not (spec.who.namespaces or spec.who.queues or spec.who.labels):
        raise InputError("names no workloads", path="spec.who", remedy="name namespaces, queues or labels")
    for index, queue in enumerate(spec.who.queues):
        if queue.count("/") != 1:
            raise InputError(
                f"{queue!r} is not a LocalQueue",
                path=f"spec.who.queues[{index}]",
                remedy="use namespace/name",
            )
    count, resources = _units(spec)
    return Reservation(
        name=wire.metadata.name,
        start=start,
        until=until,
        count=count,
        template=_unit(wire.metadata.name, spec, resources),
        who=spec.who,
        topology=spec.topology,
        nodes=wire.status.nodes,
    )


def _time(text: str, path: str) -> int:
    seconds = parse_timestamp(text)
    if not seconds:
        raise InputError(f"{text[:64]!r} is not a time", path=path, remedy="write it as 2026-01-31T08:00:00Z")
    return seconds


def _units(spec: ReservationSpec) -> tuple[int, dict[str, RawQuantity]]:
    if spec.gpus is not None:
        if spec.resources or spec.count != 1:
            raise InputError("can't be combined with count or resources", path="spec.gpus", remedy="use one of them")
        if not 0 < spec.gpus <= MAX_UNITS:
            raise InputError(f"{spec.gpus} GPUs", path="spec.gpus", remedy=f"use 1 to {MAX_UNITS}")
        return spec.gpus, {GPU_RESOURCE: 1}
    if not spec.resources:
        raise InputError("reserves nothing", path="spec.resources", remedy="name resources, or use spec.gpus")
    if not 0 < spec.count <= MAX_UNITS:
        raise InputError(f"{spec.count} units", path="spec.count", remedy=f"use 1 to {MAX_UNITS}")
    return spec.count, spec.resources


def _unit(name: str, spec: ReservationSpec, resources: dict[str, RawQuantity]) -> Pod:
    """A unit as a pod with the same requests. It tolerates the GPU taint, which GPU nodes often have."""
    asked = ResourceRequirements(requests=resources, limits=resources)
    tolerations = (*spec.tolerations, Toleration(key=GPU_RESOURCE, operator="Exists"))
    pod = Pod(
        metadata=ObjectMeta(name=name, namespace="reservation"),
        spec=PodSpec(
            containers=(Container(name="unit", resources=asked),),
            node_selector=spec.node_selector,
            tolerations=tolerations,
        ),
    )
    try:
        quota_requests(pod)
    except InputError as error:
        resource = error.path.rpartition("limits.")[2].rpartition("requests.")[2]
        raise InputError(error.message, path=f"spec.resources.{resource}" if resource else "spec.resources") from None
    return pod
