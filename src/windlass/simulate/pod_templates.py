"""Builds the pods of a trace from sizes: one spec and one annotations dict per distinct size.

Used by `simulate.synthetic` and the readers in `simulate.traces`. Pods of one shape share the same `PodSpec` and
annotations objects, so that `cluster` recognises a shape by identity and never has to compare specs.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.model.meta import ObjectMeta
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.others import ALIBABA_COUNT, ALIBABA_MILLI, ALIBABA_MODEL
from windlass.model.pod import Container, Pod, PodSpec, RawQuantity, ResourceRequirements
from windlass.simulate.trace import ShapeCount

MAX_GPUS_PER_POD = 8
"""Larger jobs are split into pods of this size: the GPUs of one server in the recorded clusters."""


class PodSize(msgspec.Struct, frozen=True):
    """Requests of one pod of a trace.

    `gpu_milli` 0 means whole GPUs, requested as `nvidia.com/gpu`; 1 to 1000 means that much of each of `gpus` devices,
    requested with the annotations of the openb trace. Only these can name `models`.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def demand_milli(self) -> int:
        """Milli-GPUs of all devices together."""
        return self.gpus * (self.gpu_milli or 1000)


class PodTemplate(msgspec.Struct, frozen=True, eq=False):
    """The objects that all pods of one shape share."""

    spec: PodSpec
    annotations: dict[str, str]
    labels: dict[str, str]
    namespace: str = ""

    def make_pod(self, name: str) -> Pod:
        metadata = ObjectMeta(name=name, namespace=self.namespace, labels=self.labels, annotations=self.annotations)
        return Pod(metadata=metadata, spec=self.spec)


class TemplateCache:
    """One template per size."""

    def __init__(self) -> None:
        self._by_size: dict[PodSize, PodTemplate] = {}

    def get(self, size: PodSize) -> PodTemplate:
        known = self._by_size.get(size)
        if known is None:
            known = self._by_size[size] = make_template(size)
        return known


def make_template(size: PodSize) -> PodTemplate:
    requests: dict[str, RawQuantity] = {}
    if size.cpu_milli:
        requests["cpu"] = cpu_text(size.cpu_milli)
    if size.memory_mib:
        requests["memory"] = f"{size.memory_mib}Mi"
    limits: dict[str, RawQuantity] = {}
    if size.gpus and not size.gpu_milli:
        requests[GPU_RESOURCE] = limits[GPU_RESOURCE] = str(size.gpus)
    return PodTemplate(make_pod_spec(requests, limits), gpu_annotations(size), {})


def make_pod_spec(requests: dict[str, RawQuantity], limits: dict[str, RawQuantity]) -> PodSpec:
    resources = ResourceRequirements(requests=requests, limits=limits)
    return PodSpec(containers=(Container(name="main", resources=resources),))


def gpu_annotations(size: PodSize) -> dict[str, str]:
    if not (size.gpus and size.gpu_milli):
        return {}
    annotations = {ALIBABA_COUNT: str(size.gpus), ALIBABA_MILLI: str(size.gpu_milli)}
    if size.models:
        annotations[ALIBABA_MODEL] = "|".join(size.models)
    return annotations


def cpu_text(milli: int) -> str:
    """CPU as Kubernetes writes it: `12`, `11300m`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def split_gpus_by_pod(gpus: int, most: int = MAX_GPUS_PER_POD) -> list[int]:
    """GPUs per pod of a job: pods of `most`, then the rest (28 → 8, 8, 8, 4)."""
    full, rest = divmod(gpus, most)
    return [most] * full + ([rest] if rest else [])


def make_job_pods(job: str, templates: list[PodTemplate]) -> tuple[Pod, ...]:
    """The pods of a job; a single pod has the job's name."""
    if len(templates) == 1:
        return (templates[0].make_pod(job),)
    return tuple(template.make_pod(f"{job}-{index}") for index, template in enumerate(templates))


def count_shapes(pods: Iterable[Pod]) -> tuple[ShapeCount, ...]:
    """Every distinct shape with its count, in order of first appearance. Shapes are compared by identity."""
    counts: dict[tuple[int, int, int], int] = {}
    first: dict[tuple[int, int, int], Pod] = {}
    for pod in pods:
        shape = (id(pod.spec), id(pod.metadata.annotations), id(pod.metadata.labels))
        if shape in counts:
            counts[shape] += 1
        else:
            counts[shape], first[shape] = 1, pod
    return tuple(ShapeCount(pod=first[shape], count=count) for shape, count in counts.items())
