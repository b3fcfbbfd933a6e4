"""What `decide` asks for, as data: `operator.apply` carries it out, `--shadow` prints it, tests play it.

Every write names the version of the object that it was decided on, or is harmless twice: a replica that is killed
before or after any of them leaves a state from which the next decision goes on.
"""

from __future__ import annotations

import msgspec

from windlass.model.node import Taint
from windlass.model.unstructured import Unstructured
from windlass.operator.kinds.fleet_change import FleetChangeStatus
from windlass.operator.kinds.gpu_node import GPUNodeStatus
from windlass.operator.kinds.gpu_repair import GPURepairStatus
from windlass.operator.kinds.gpu_stack import GPUStackStatus
from windlass.operator.observed import RoomQuestion

Status = GPUStackStatus | GPUNodeStatus | FleetChangeStatus | GPURepairStatus


class CreateObject(msgspec.Struct, frozen=True):
    """An object of ours that is not there yet; one of the same name is left alone."""

    kind: str
    name: str
    body: Unstructured


class PutStatus(msgspec.Struct, frozen=True):
    kind: str
    name: str
    version: str
    status: Status


class PatchNode(msgspec.Struct, frozen=True):
    """Labels, annotations (None removes one) and, unless None, all taints of a node, others' included."""

    name: str
    version: str
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    taints: tuple[Taint, ...] | None = None


class PutNodeCondition(msgspec.Struct, frozen=True):
    """`windlass.dev/GPUReady` of a node, which others may wait for."""

    name: str
    status: str
    reason: str
    message: str


class EvictPods(msgspec.Struct, frozen=True):
    """All of these or none: a dry run comes first."""

    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    reason: str
    """`change r590`, `repair gpu-3-5-1`."""


class StopWorkload(msgspec.Struct, frozen=True):
    """Deactivates a Workload, if no budget keeps one of its pods: its queue stops all of them and counts no failure."""

    key: str
    uid: str
    api_version: str
    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    reason: str


class ResumeWorkload(msgspec.Struct, frozen=True):
    """Activates a Workload again that a drain has stopped: it is queued in its place."""

    key: str
    uid: str
    api_version: str


class TellPods(msgspec.Struct, frozen=True):
    """Tells pods when they will have to leave, so that the scheduler asks them for a checkpoint before."""

    pods: tuple[tuple[str, str], ...]
    """Key and uid."""
    request: str | None
    """The annotation `windlass.dev/leave`; None takes it back."""


class CreateJob(msgspec.Struct, frozen=True):
    """Of canary work; one of the same name is left alone."""

    name: str
    body: Unstructured


class DeleteJob(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    uid: str


class PatchStatefulSet(msgspec.Struct, frozen=True):
    """The image of one container, and down to which pod it is rolled out."""

    key: str
    version: str
    container: str
    image: str
    partition: int


class ApplyDaemonSet(msgspec.Struct, frozen=True):
    name: str
    body: Unstructured


class DeleteDaemonSet(msgspec.Struct, frozen=True):
    name: str
    uid: str


class CreateNvidiaDriver(msgspec.Struct, frozen=True):
    """An NVIDIADriver of a version, which NVIDIA's operator obeys."""

    name: str
    body: Unstructured


class DeleteNvidiaDriver(msgspec.Struct, frozen=True):
    name: str
    uid: str


class CallTicketHook(msgspec.Struct, frozen=True):
    repair: str
    key: str
    """The repair's uid: the same call twice is one ticket."""
    url: str
    body: Unstructured


Write = (
    CreateObject
    | PutStatus
    | PatchNode
    | PutNodeCondition
    | EvictPods
    | StopWorkload
    | ResumeWorkload
    | TellPods
    | CreateJob
    | DeleteJob
    | PatchStatefulSet
    | ApplyDaemonSet
    | DeleteDaemonSet
    | CreateNvidiaDriver
    | DeleteNvidiaDriver
    | CallTicketHook
)


class Decision(msgspec.Struct, frozen=True):
    writes: tuple[Write, ...]
    wake_at: int
    """When time alone may change the decision."""
    gates: tuple[str, ...] = ()
    """Changes whose gates' queries are to be asked now."""
    rooms: tuple[RoomQuestion, ...] = ()
    """What the engine is to be asked now."""
