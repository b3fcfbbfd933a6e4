"""`kind: GPUNode`: the state of one node, written by the operator alone; its name is the node's.

Every step has its owner, state, reason and deadline, every device its state. `change` is the record of the fleet change
that has taken the node: it is written before the node is touched, and holds the way back.
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct
from windlass.operator.kinds.base import Condition, Metadata

STEP_NAMES = ("driver", "runtime", "plugin", "labels", "exporter", "mig", "validator")
"""In their order."""
STEP_STATES = ("Waiting", "Working", "Done", "Failed", "NotOurs")
NODE_PHASES = ("Ready", "NotReady", "NotOurs")
DEVICE_STATES = ("InService", "Faulty", "HeldBack")
CHANGE_RESULTS = ("", "Done", "RolledBack", "Blocked", "Failed")
"""Of a node in a change: under way, changed, back on the old one, never touched since its pods could not go, stuck."""


class Step(KubeStruct, frozen=True):
    name: str
    owner: str
    state: str
    reason: str
    message: str = ""
    since: str = ""
    deadline: str = ""
    tries: int = 0


class DeviceStatus(KubeStruct, frozen=True):
    index: int
    state: str
    fault: str = ""
    repair: str = ""


class NodeChange(KubeStruct, frozen=True):
    change: str
    uid: str
    """Of the FleetChange: another one of the same name is another change."""
    wave: int
    component: str
    want: str
    """What the node shall run now; the old value once it goes back."""
    previous: str
    """The way back."""
    since: str
    deadline: str
    result: str = ""
    reason: str = ""
    message: str = ""
    failed: bool = False
    """It did not come up with the new one in time."""
    faults: tuple[str, ...] = ()
    """Faults that were seen on the node while the change was unfinished: they feed the gate."""


class GPUNodeStatus(KubeStruct, frozen=True):
    stack: str = ""
    phase: str = "NotReady"
    reason: str = ""
    message: str = ""
    since: str = ""
    deadline: str = ""
    was_ready: bool = False
    """Whether it has ever been opened for GPU work."""
    node_uid: str = msgspec.field(default="", name="nodeUID")
    boot_id: str = msgspec.field(default="", name="bootID")
    driver: str = ""
    steps: tuple[Step, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()
    change: NodeChange | None = None
    conditions: tuple[Condition, ...] = ()


class GPUNode(KubeStruct, frozen=True):
    metadata: Metadata = Metadata()
    status: GPUNodeStatus = GPUNodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name
