"""`kind: GPUStack`: what the nodes of one pool or GPU model run, and how many of them may be out of service.

    apiVersion: windlass.dev/v1alpha1
    kind: GPUStack
    metadata: {name: h100}
    spec:
      nodes: {matchLabels: {pool: h100}}
      driver: {source: container, image: registry.example.com/driver, version: 580.95.05}
      maxUnavailable: 10%

Which version the fleet runs is `status.current`: it begins as the spec has it, and only a FleetChange moves it.
"""

from __future__ import annotations

import re

from windlass.model.errors import InputError
from windlass.model.labels import check_selector
from windlass.model.meta import KubeStruct, LabelSelector
from windlass.operator.kinds.base import (
    LABEL_VALUE,
    Condition,
    Metadata,
    SpecStruct,
    check_name,
    check_node_count,
    check_one_of,
    check_seconds,
)

DRIVER_SOURCES = ("auto", "container", "host", "gpu-operator", "none")
TAKEABLE = ("plugin", "labels", "exporter", "mig")
"""Steps that the node agent can do in place of NVIDIA's operator."""
REPAIR_POLICIES = ("Automatic", "ContainOnly", "Off")
_URL = re.compile(r"https?://\S{1,2000}")


class Expected(SpecStruct, frozen=True):
    gpus: int = 0
    """GPUs of each node; 0: not checked."""


class DriverSpec(SpecStruct, frozen=True):
    source: str = "auto"
    """auto: the driver that the host has, else the container if an image is given. gpu-operator: NVIDIA's operator
    brings it, and a FleetChange gives it one NVIDIADriver a version."""
    image: str = ""
    """Of the driver container, without the tag."""
    version: str = ""
    tag: str = "{version}"
    """The image's tag; `{version}` becomes the version of the node's revision."""
    load_timeout: str = "21m"


class MigSpec(SpecStruct, frozen=True):
    config: str = ""
    """A name of the MIG configuration, as in the label nvidia.com/mig.config."""


class TicketHook(SpecStruct, frozen=True):
    url: str = ""
    """Gets a POST with the repair and its evidence; `Idempotency-Key` is the repair's uid."""


class RepairSpec(SpecStruct, frozen=True):
    policy: str = "Automatic"
    max_nodes: int | str = 1
    """Nodes that repairs may have out of service; within maxUnavailable."""
    reboot: bool = False
    """Whether nodes may be rebooted: only where something on them answers such a request. The node agent does not."""
    settle: str = "30s"
    """How long a fault must last before anything is done."""
    drain_wait: str = "0s"
    """How long pods on the device may end by themselves."""
    drain_timeout: str = "30m"
    reset_timeout: str = "5m"
    reboot_timeout: str = "20m"
    validate_timeout: str = "10m"
    breaker_percent: int = 20
    repeats: int = 3
    """This many repairs of one GPU within `repeatsWithin` end in a ticket."""
    repeats_within: str = "336h"
    ticket: TicketHook = TicketHook()


class GPUStackSpec(SpecStruct, frozen=True):
    nodes: LabelSelector
    sku: tuple[str, ...] = ()
    """Globs of GPU products; a node with another product is reported and left alone."""
    expect: Expected = Expected()
    driver: DriverSpec = DriverSpec()
    mig: MigSpec = MigSpec()
    runtime_class: str = ""
    """A handler that the container runtime must have."""
    not_ready_taint: str = "windlass.dev/gpu-not-ready"
    """Its key; autoscalers know prefixes of taints that vanish at startup."""
    take_over: tuple[str, ...] = ()
    """Steps that NVIDIA's operator does and the node agent shall do; what is left out again is given back."""
    max_unavailable: int | str = "5%"
    """At least one."""
    repair: RepairSpec = RepairSpec()


class Current(KubeStruct, frozen=True):
    """What the nodes run that no change is working on."""

    driver: str = ""
    mig: str = ""
    agent: str = ""
    """Empty: as it is installed."""


class GPUStackStatus(KubeStruct, frozen=True):
    current: Current = Current()
    nodes: int = 0
    ready: int = 0
    unavailable: int = 0
    max_unavailable: int = 0
    change: str = ""
    breaker: str = ""
    """Why repairs have stopped; empty while they go on."""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class GPUStack(KubeStruct, frozen=True):
    spec: GPUStackSpec
    metadata: Metadata = Metadata()
    status: GPUStackStatus = GPUStackStatus()

    @property
    def name(self) -> str:
        return self.metadata.name


def check_stack(stack: GPUStack) -> None:
    """Raises an `InputError` that names the field; the CRD's rules say the same to API servers that know CEL."""
    spec = stack.spec
    check_name(stack.name, "metadata.name")
    check_selector(spec.nodes, "spec.nodes")
    if not spec.nodes.match_labels and not spec.nodes.match_expressions:
        raise InputError("it would select every node", path="spec.nodes", remedy="name a label of the pool")
    if not 0 <= spec.expect.gpus <= 64:
        raise InputError(f"{spec.expect.gpus} is out of range", path="spec.expect.gpus", remedy="use 0 to 64")
    _check_driver(spec.driver)
    if spec.mig.config and not LABEL_VALUE.fullmatch(spec.mig.config):
        raise InputError("it is not a label value", path="spec.mig.config", remedy="use a name of the configuration")
    for index, step in enumerate(spec.take_over):
        check_one_of(step, TAKEABLE, f"spec.takeOver[{index}]")
    check_node_count(spec.max_unavailable, "spec.maxUnavailable", least=1)
    _check_repair(spec.repair)


def _check_driver(driver: DriverSpec) -> None:
    path = "spec.driver"
    check_one_of(driver.source, DRIVER_SOURCES, f"{path}.source")
    check_seconds(driver.load_timeout, f"{path}.loadTimeout")
    if driver.source == "container" and not (driver.image and driver.version):
        missing = "image" if not driver.image else "version"
        raise InputError("a driver container needs it", path=f"{path}.{missing}", remedy="name image and version")
    if driver.source == "gpu-operator" and (driver.image or driver.version):
        given = "image" if driver.image else "version"
        raise InputError("its NVIDIADriver says it", path=f"{path}.{given}", remedy="leave it out")
    if driver.version:
        check_driver_version(driver.version, f"{path}.version")


def check_driver_version(version: str, path: str) -> None:
    if not LABEL_VALUE.fullmatch(version):
        raise InputError(
            f"{version[:64]!r} can't be a label value", path=path, remedy="write a version such as 580.95.05"
        )


def _check_repair(repair: RepairSpec) -> None:
    path = "spec.repair"
    check_one_of(repair.policy, REPAIR_POLICIES, f"{path}.policy")
    check_node_count(repair.max_nodes, f"{path}.maxNodes")
    for name, text in (
        ("settle", repair.settle),
        ("drainWait", repair.drain_wait),
        ("drainTimeout", repair.drain_timeout),
        ("resetTimeout", repair.reset_timeout),
        ("rebootTimeout", repair.reboot_timeout),
        ("validateTimeout", repair.validate_timeout),
        ("repeatsWithin", repair.repeats_within),
    ):
        check_seconds(text, f"{path}.{name}")
    if not 1 <= repair.breaker_percent <= 100:
        raise InputError("it is out of range", path=f"{path}.breakerPercent", remedy="use 1 to 100")
    if not 1 <= repair.repeats <= 100:
        raise InputError("it is out of range", path=f"{path}.repeats", remedy="use 1 to 100")
    if repair.ticket.url and not _URL.fullmatch(repair.ticket.url):
        raise InputError("it is not a URL", path=f"{path}.ticket.url", remedy="write https://…")
