"""`kind: FleetChange`: one change of one component of a stack's nodes, in waves, with gates and a recorded way back.

    apiVersion: windlass.dev/v1alpha1
    kind: FleetChange
    metadata: {name: r590}
    spec:
      stack: h100
      driver: {version: 590.44.01}
      waves: [{nodes: 2, bake: 30m}, {nodes: 25%, bake: 1h}, {nodes: 100%, bake: 1h}]
      gates: [{name: p99, family: slo, query: "max by (node) (p99_seconds{node=~\"$nodes\"})", maxRatio: 1.1}]

The nodes of a wave are those that have the new value at its end, earlier waves included. The first wave is the canary.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.labels import check_selector
from windlass.model.meta import KubeStruct, LabelSelector
from windlass.model.times import parse_timestamp
from windlass.operator.kinds.base import (
    LABEL_VALUE,
    Command,
    Condition,
    Metadata,
    SpecStruct,
    check_command,
    check_name,
    check_node_count,
    check_one_of,
    check_seconds,
)
from windlass.operator.kinds.gpu_stack import check_driver_version

COMPONENTS = ("driver", "mig", "agent", "workloadImage")
WORKLOAD_IMAGE = "workloadImage"
"""The component that is no part of the nodes: its waves are pods."""
CHANGE_VERBS = ("Promote", "Abort", "Rollback", "Retry")
CHANGE_PHASES = (
    *("Pending", "Progressing", "Baking", "Held", "RollingBack", "Aborting"),
    *("Succeeded", "RolledBack", "Aborted", "Failed", "Refused"),
)
FINAL_PHASES = frozenset({"Succeeded", "RolledBack", "Aborted", "Failed", "Refused"})
GATE_VERDICTS = ("Pass", "Fail", "NoData", "Inconclusive")
FAULT_GATE = "gpu-faults"
"""The gate that every change has: faults on changed nodes beside those on control nodes."""
CANARY_GATE = "canary-work"
"""The gate of a change that has such work."""
ROOM_RULES = ("Prefer", "Require", "Ignore")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_OFFSET = re.compile(r"[+-](0[0-9]|1[0-4]):[0-5][0-9]")


class DriverChange(SpecStruct, frozen=True):
    version: str


class MigChange(SpecStruct, frozen=True):
    config: str


class AgentChange(SpecStruct, frozen=True):
    version: str
    """The tag of the agent's image."""


class WorkloadImageChange(SpecStruct, frozen=True):
    """The image of one container of a StatefulSet."""

    namespace: str
    name: str
    container: str
    image: str


class Wave(SpecStruct, frozen=True):
    nodes: int | str
    bake: str = "10m"


class CanaryWork(SpecStruct, frozen=True):
    """A Job that every node of the first wave has to finish before it goes back into service."""

    job_template: dict[str, Any]
    """metadata and spec of the Job, as in a CronJob."""
    timeout: str = "30m"
    max_ratio: float | None = None
    """Of its mean time to that of the same Job on control nodes."""
    control_nodes: int = 0
    """How many; 0: as many as the canary has."""


class Canary(SpecStruct, frozen=True):
    nodes: LabelSelector | None = None
    """Nodes of the first wave are taken from these."""
    work: CanaryWork | None = None


class Gate(SpecStruct, frozen=True):
    """A PromQL query with one value a node. `$nodes` becomes a regular expression of the nodes that are compared, and
    `$window` the time since the wave began to bake."""

    name: str
    query: str
    family: str = "telemetry"
    max: float | None = None
    """Of the mean over changed nodes."""
    min: float | None = None
    max_ratio: float | None = None
    """Of the mean over changed nodes to that over control nodes at the same time."""
    min_ratio: float | None = None


def has_ratio(gate: Gate) -> bool:
    return gate.max_ratio is not None or gate.min_ratio is not None


class Window(SpecStruct, frozen=True):
    """Nodes are taken only inside a window. Over midnight if `end` is not later than `start`."""

    start: str
    end: str
    days: tuple[str, ...] = DAYS
    utc_offset: str = "+00:00"


class Freeze(SpecStruct, frozen=True):
    from_: str = msgspec.field(name="from")
    until: str
    reason: str = ""


class Drain(SpecStruct, frozen=True):
    wait: str = "0s"
    """How long pods may end by themselves before they are evicted."""
    timeout: str = "30m"
    room: str = "Prefer"
    """Prefer: nodes are taken first whose work would start elsewhere. Require: others are not taken. Ignore: the engine
    is not asked."""


class FleetChangeSpec(SpecStruct, frozen=True):
    stack: str
    driver: DriverChange | None = None
    mig: MigChange | None = None
    agent: AgentChange | None = None
    workload_image: WorkloadImageChange | None = None
    waves: tuple[Wave, ...] = (Wave(nodes=1), Wave(nodes="10%"), Wave(nodes="50%"), Wave(nodes="100%"))
    canary: Canary = Canary()
    gates: tuple[Gate, ...] = ()
    windows: tuple[Window, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    max_unavailable: int | str | None = None
    """Nodes that this change may have out of service; within the stack's maxUnavailable."""
    max_failed: int | str = 0
    """Nodes that may fail, and go back one by one, without ending the change. In the canary, none may."""
    max_faults: int = 0
    """Changed nodes that may report a GPU fault."""
    fault_rate: float | None = None
    """Faults per node and hour that each bake must be able to show; one that is too short for it is inconclusive."""
    node_timeout: str = "30m"
    """From the end of the drain until the node is validated again."""
    data_timeout: str = "1h"
    """How long a gate may lack data, or be inconclusive, after the bake."""
    drain: Drain = Drain()
    on_failure: str = "Rollback"
    paused: bool = False
    command: Command | None = None

    @property
    def has_ratios(self) -> bool:
        """Whether a gate compares changed nodes with others."""
        work = self.canary.work
        return any(map(has_ratio, self.gates)) or (work is not None and work.max_ratio is not None)

    @property
    def components(self) -> list[str]:
        values = (self.driver, self.mig, self.agent, self.workload_image)
        return [name for name, value in zip(COMPONENTS, values, strict=True) if value is not None]

    @property
    def component(self) -> str:
        """The first that is set; `check_change` refuses a change that has several."""
        return next(iter(self.components), "")

    @property
    def to(self) -> str:
        if self.driver is not None:
            return self.driver.version
        if self.agent is not None:
            return self.agent.version
        if self.workload_image is not None:
            return self.workload_image.image
        return self.mig.config if self.mig is not None else ""


class GateStatus(KubeStruct, frozen=True):
    name: str
    verdict: str
    message: str = ""
    at: str = ""
    wave: int = 0


class FleetChangeStatus(KubeStruct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    since: str = ""
    deadline: str = ""
    component: str = ""
    from_: str | None = msgspec.field(name="from", default=None)
    """The way back: what the stack ran. Nothing is written to a node before it is here."""
    to: str = ""
    wave: int = 0
    waves: int = 0
    promoted: int = 0
    """Waves that a person has promoted, from the first one on: what failed in them counts no more."""
    bake_since: str = ""
    nodes: int = 0
    changed: int = 0
    failed: int = 0
    stragglers: tuple[str, ...] = ()
    """Nodes that are not on the wanted value; the first 32."""
    gates: tuple[GateStatus, ...] = ()
    attempts: int = 0
    """How often it was begun again."""
    last_command: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class FleetChange(KubeStruct, frozen=True):
    spec: FleetChangeSpec
    metadata: Metadata = Metadata()
    status: FleetChangeStatus = FleetChangeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_final(self) -> bool:
        return self.status.phase in FINAL_PHASES

    @property
    def is_unfinished(self) -> bool:
        """Whether it has begun and not ended: it holds the stack's lock."""
        return not self.is_final and self.status.phase != "Pending"


def check_change(change: FleetChange) -> None:
    """Raises an `InputError` that names the field; the CRD's rules say the same to API servers that know CEL."""
    spec = change.spec
    check_name(change.name, "metadata.name")
    check_name(spec.stack, "spec.stack")
    if len(spec.components) != 1:
        raise InputError(
            "a change has exactly one component", path="spec", remedy=f"write one of {', '.join(COMPONENTS)}"
        )
    if spec.driver is not None:
        check_driver_version(spec.driver.version, "spec.driver.version")
    if spec.mig is not None and not LABEL_VALUE.fullmatch(spec.mig.config):
        raise InputError("it is not a label value", path="spec.mig.config", remedy="use a name of the configuration")
    if spec.agent is not None and not LABEL_VALUE.fullmatch(spec.agent.version):
        raise InputError("it is not a label value", path="spec.agent.version", remedy="write the tag of an image")
    if spec.workload_image is not None:
        _check_image(spec)
    _check_waves(spec)
    for index, gate in enumerate(spec.gates):
        _check_gate(gate, f"spec.gates[{index}]", [other.name for other in spec.gates[:index]])
    for index, window in enumerate(spec.windows):
        _check_window(window, f"spec.windows[{index}]")
    for index, freeze in enumerate(spec.freezes):
        _check_freeze(freeze, f"spec.freezes[{index}]")
    check_selector(spec.canary.nodes, "spec.canary.nodes")
    if spec.canary.work is not None:
        _check_work(spec.canary.work, "spec.canary.work")
    if spec.max_unavailable is not None:
        check_node_count(spec.max_unavailable, "spec.maxUnavailable", least=1)
    check_node_count(spec.max_failed, "spec.maxFailed")
    if spec.fault_rate is not None and not 0 < spec.fault_rate < 1000:
        raise InputError(f"{spec.fault_rate} is not a rate", path="spec.faultRate", remedy="write 0.01")
    check_one_of(spec.drain.room, ROOM_RULES, "spec.drain.room")
    check_one_of(spec.on_failure, ("Rollback", "Hold"), "spec.onFailure")
    for name, text in (
        ("nodeTimeout", spec.node_timeout),
        ("dataTimeout", spec.data_timeout),
        ("drain.wait", spec.drain.wait),
        ("drain.timeout", spec.drain.timeout),
    ):
        check_seconds(text, f"spec.{name}")
    check_command(spec.command, CHANGE_VERBS)


def _check_image(spec: FleetChangeSpec) -> None:
    wanted, path = spec.workload_image, "spec.workloadImage"
    assert wanted is not None  # its caller has looked
    check_name(wanted.namespace, f"{path}.namespace")
    check_name(wanted.container, f"{path}.container")
    if not wanted.name:
        raise InputError("a change of an image is of a StatefulSet", path=f"{path}.name", remedy="name it")
    if not wanted.image or len(wanted.image) > 512:
        raise InputError("it is not an image", path=f"{path}.image", remedy="write registry/name:tag")
    if spec.canary.work is not None or spec.canary.nodes is not None:
        raise InputError("the waves of an image are pods, not nodes", path="spec.canary", remedy="leave it out")


def _check_work(work: CanaryWork, path: str) -> None:
    template = (work.job_template.get("spec") or {}).get("template") or {}
    if not (template.get("spec") or {}).get("containers"):
        raise InputError(
            "it has no containers", path=f"{path}.jobTemplate.spec.template.spec", remedy="write what a CronJob has"
        )
    check_seconds(work.timeout, f"{path}.timeout")
    if work.max_ratio is not None and not 0 < work.max_ratio < 1000:
        raise InputError(f"{work.max_ratio} is not a ratio", path=f"{path}.maxRatio", remedy="write 1.1")
    if not 0 <= work.control_nodes <= 100:
        raise InputError("it is out of range", path=f"{path}.controlNodes", remedy="use 0 to 100")


def _check_waves(spec: FleetChangeSpec) -> None:
    if not 1 <= len(spec.waves) <= 32:
        raise InputError("a change has 1 to 32 waves", path="spec.waves", remedy="add a canary")
    for index, wave in enumerate(spec.waves):
        check_node_count(wave.nodes, f"spec.waves[{index}].nodes", least=1)
        check_seconds(wave.bake, f"spec.waves[{index}].bake")


def _check_gate(gate: Gate, path: str, earlier: list[str]) -> None:
    check_name(gate.name, f"{path}.name")
    if gate.name in (*earlier, FAULT_GATE, CANARY_GATE):
        raise InputError(f"there is a gate {gate.name!r} already", path=f"{path}.name", remedy="rename it")
    check_one_of(gate.family, ("telemetry", "slo"), f"{path}.family")
    if not gate.query.strip():
        raise InputError("a gate needs a query", path=f"{path}.query", remedy="write PromQL with one value a node")
    if all(limit is None for limit in (gate.max, gate.min, gate.max_ratio, gate.min_ratio)):
        raise InputError("a gate without a limit never fails", path=path, remedy="set max, min, maxRatio or minRatio")
    for name, ratio in (("maxRatio", gate.max_ratio), ("minRatio", gate.min_ratio)):
        if ratio is not None and not 0 < ratio < 1000:
            raise InputError(f"{ratio} is not a ratio", path=f"{path}.{name}", remedy="write 1.1 for ten per cent more")


def _check_window(window: Window, path: str) -> None:
    for name, text in (("start", window.start), ("end", window.end)):
        if not _CLOCK.fullmatch(text):
            raise InputError(f"{text[:16]!r} is not a time of day", path=f"{path}.{name}", remedy="write 22:00")
    if not _OFFSET.fullmatch(window.utc_offset):
        raise InputError("it is not an offset", path=f"{path}.utcOffset", remedy="write +01:00")
    if not window.days:
        raise InputError("a window without days never opens", path=f"{path}.days", remedy="leave it out for all")
    for index, day in enumerate(window.days):
        check_one_of(day, DAYS, f"{path}.days[{index}]")


def _check_freeze(freeze: Freeze, path: str) -> None:
    for name, text in (("from", freeze.from_), ("until", freeze.until)):
        if not parse_timestamp(text):
            raise InputError(f"{text[:32]!r} is not a time", path=f"{path}.{name}", remedy="write it in RFC 3339")
