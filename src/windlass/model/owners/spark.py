"""Reads SparkApplications: the driver and the executors, as the Spark operator makes pods of their sizes.

Called by `model.owners.normalise`. Memory is written as Java writes it (`512m`, `4g`), and the pods get a part more.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.owners.owner import Owner, OwnerPodSet, checked_count, checked_template
from windlass.model.owners.wire import OwnerObject, OwnerStatus
from windlass.model.pod import Affinity, Container, RawQuantity, ResourceRequirements, Toleration

ROLE_LABEL = "spark-role"
DRIVER, EXECUTOR = "driver", "executor"
_OUTCOMES = {"COMPLETED": "Succeeded", "FAILED": "Failed"}
_JAVA_MEMORY = re.compile(r"(\d{1,9})([kmgt]?)b?", re.IGNORECASE)
_MIB_PER_UNIT = {"k": 1 / 1024, "": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_LEAST_OVERHEAD_MIB = 384
_JVM_OVERHEAD = 0.1
_OTHER_OVERHEAD = 0.4
"""Of Python and R, which need memory beside Java's."""


class SparkGpu(KubeStruct, frozen=True):
    name: str = ""
    quantity: int = 0


class SparkPod(KubeStruct, frozen=True):
    cores: int = 1
    core_request: RawQuantity | None = None
    memory: str = "1g"
    memory_overhead: str = ""
    gpu: SparkGpu | None = None
    instances: int = 1
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    template: PodTemplate | None = None


class DynamicAllocation(KubeStruct, frozen=True):
    enabled: bool = False
    initial_executors: int | None = None
    min_executors: int | None = None


class SparkSpec(KubeStruct, frozen=True):
    type: str = "Scala"
    suspend: bool = False
    batch_scheduler: str = ""
    memory_overhead_factor: str = ""
    driver: SparkPod = SparkPod()
    executor: SparkPod = SparkPod()
    dynamic_allocation: DynamicAllocation = DynamicAllocation()


class SparkApplicationState(KubeStruct, frozen=True):
    state: str = ""


class SparkStatus(OwnerStatus, frozen=True):
    application_state: SparkApplicationState = SparkApplicationState()

    @property
    def outcome(self) -> str:
        return _OUTCOMES.get(self.application_state.state, "")


class SparkApplicationObject(OwnerObject, frozen=True):
    KIND: ClassVar[str] = "SparkApplication"
    spec: SparkSpec = SparkSpec()
    status: SparkStatus = SparkStatus()


def read_spark_application(wire: SparkApplicationObject) -> Owner:
    spec = wire.spec
    dynamic = spec.dynamic_allocation
    executors = spec.executor.instances
    if dynamic.enabled:
        executors = max(dynamic.initial_executors or 0, dynamic.min_executors or 0, 1)
    sets = (
        OwnerPodSet(DRIVER, 1, _template(spec, spec.driver, "spec.driver")),
        OwnerPodSet(
            EXECUTOR,
            checked_count(executors, "spec.executor.instances"),
            _template(spec, spec.executor, "spec.executor"),
        ),
    )
    return Owner(wire.KIND, wire.metadata, sets, suspended=spec.suspend, pod_set_label=ROLE_LABEL)


def _template(spec: SparkSpec, pod: SparkPod, path: str) -> PodTemplate:
    given = pod.template or PodTemplate()
    cpu = pod.core_request if pod.core_request is not None else str(pod.cores)
    resources: dict[str, RawQuantity] = {"cpu": cpu, "memory": f"{_memory_mib(spec, pod, path)}Mi"}
    limits: dict[str, RawQuantity] = {"memory": resources["memory"]}
    if pod.gpu is not None and pod.gpu.name and pod.gpu.quantity:
        resources[pod.gpu.name] = limits[pod.gpu.name] = str(pod.gpu.quantity)
    main = Container(name=f"spark-{path.rpartition('.')[2]}", resources=_resources(limits, resources))
    base = given.spec
    made = msgspec.structs.replace(
        base,
        containers=(main, *base.containers[1:]),
        node_selector={**base.node_selector, **pod.node_selector},
        tolerations=(*base.tolerations, *pod.tolerations),
        affinity=pod.affinity or base.affinity,
        priority_class_name=pod.priority_class_name or base.priority_class_name,
        scheduler_name=pod.scheduler_name or base.scheduler_name,
    )
    metadata = ObjectMeta(
        labels={**given.metadata.labels, **pod.labels}, annotations={**given.metadata.annotations, **pod.annotations}
    )
    return checked_template(PodTemplate(metadata=metadata, spec=made), path)


def _resources(limits: dict[str, RawQuantity], requests: dict[str, RawQuantity]) -> ResourceRequirements:
    return ResourceRequirements(limits=limits, requests=requests)


def _memory_mib(spec: SparkSpec, pod: SparkPod, path: str) -> int:
    memory = _mib(pod.memory, f"{path}.memory")
    if pod.memory_overhead:
        return round(memory + _mib(pod.memory_overhead, f"{path}.memoryOverhead"))
    factor = _JVM_OVERHEAD if spec.type in ("Java", "Scala") else _OTHER_OVERHEAD
    if spec.memory_overhead_factor:
        try:
            factor = float(spec.memory_overhead_factor)
        except ValueError:
            raise InputError(
                f"{spec.memory_overhead_factor!r} is not a number",
                path="spec.memoryOverheadFactor",
                remedy='use a decimal such as "0.1"',
            ) from None
    return round(memory + max(memory * factor, _LEAST_OVERHEAD_MIB))


def _mib(text: str, path: str) -> float:
    found = _JAVA_MEMORY.fullmatch(text.strip().removesuffix("i"))
    if found is None:
        raise InputError(f"{text!r} is not an amount of memory", path=path, remedy="write it as Java does, such as 4g")
    return int(found[1]) * _MIB_PER_UNIT[found[2].lower()]
