"""`kind: GPURepair`: one incident of one GPU, or of a whole node, with every attempt to heal it.

The operator opens one for a fault that the node's agent reports, a person with `windlass quarantine`. It is kept
when it is over: repeats are counted.
"""

from __future__ import annotations

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct
from windlass.model.repair_state import ENDS_BY_ITSELF, WHOLE_NODE
from windlass.operator.kinds.base import Command, Condition, Metadata, SpecStruct, check_command

REPAIR_VERBS = ("Hold", "Retry", "Return")
REPAIR_PHASES = (
    *ENDS_BY_ITSELF,
    *("Held", "Ticket", "Returned"),
)
_MAX_INDEX = 255


class GPURepairSpec(SpecStruct, frozen=True):
    node: str
    device: int = WHOLE_NODE
    """The GPU's index; -1: the whole node."""
    fault: str = ""
    """What was wrong when it was opened: `Xid 79`, `lost`, or a person's words."""
    action: str = ""
    """The catalogue's: reset, reboot, ticket; empty: none."""
    requested_by: str = ""
    """A person; such a repair goes no further than the drain, and ends with `repair return`."""
    command: Command | None = None


class Attempt(KubeStruct, frozen=True):
    rung: str
    at: str
    result: str = ""
    message: str = ""


class Ticket(KubeStruct, frozen=True):
    state: str = ""
    """Calling, then Called: the hook is called again after a crash in between, with the same key."""
    at: str = ""
    reference: str = ""
    """What the hook answered."""


class GPURepairStatus(KubeStruct, frozen=True):
    phase: str = "Suspected"
    reason: str = ""
    message: str = ""
    since: str = ""
    deadline: str = ""
    opened: str = ""
    ended: str = ""
    stack: str = ""
    node_uid: str = msgspec.field(default="", name="nodeUID")
    boot_id: str = msgspec.field(default="", name="bootID")
    """Before the reboot: only another one proves it."""
    rung: str = ""
    """The rung that is validated: reset, reboot or return."""
    attempts: tuple[Attempt, ...] = ()
    ticket: Ticket = Ticket()
    last_command: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = msgspec.field(default_factory=tuple)


class GPURepair(KubeStruct, frozen=True):
    spec: GPURepairSpec
    metadata: Metadata = Metadata()
    status: GPURepairStatus = GPURepairStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_open(self) -> bool:
        return self.status.phase != "Returned"

    @property
    def device_name(self) -> str:
        where = f":{self.spec.device}" if self.spec.device != WHOLE_NODE else ""
        return f"{self.spec.node}{where}"


def check_repair(repair: GPURepair) -> None:
    """Raises an `InputError` that names the field."""
    spec = repair.spec
    if not spec.node:
        raise InputError("a repair is of a node", path="spec.node", remedy="name it")
    if not WHOLE_NODE <= spec.device <= _MAX_INDEX:
        raise InputError(
            f"{spec.device} is not the index of a GPU", path="spec.device", remedy="use -1 for the whole node"
        )
    check_command(spec.command, REPAIR_VERBS)
