"""The nodes of one stack during one decision: what was observed of them, and what is to be written.

Made by `decide.main` for every stack; the rules of bring-up, changes and repairs read it and leave their drafts
here. There is one count of unavailable nodes, `Budget`, which all three draw on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from windlass.model.names.windlass import CHANGE_TAINT, REPAIR_TAINT
from windlass.model.node import Taint
from windlass.model.repair_state import WHOLE_NODE
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.kinds.base import node_count
from windlass.operator.kinds.fleet_change import FleetChange
from windlass.operator.kinds.gpu_node import GPUNode, GPUNodeStatus
from windlass.operator.kinds.gpu_repair import GPURepair
from windlass.operator.kinds.gpu_stack import Current, GPUStack
from windlass.operator.observed import NodeView, Observed, RoomQuestion
from windlass.operator.pods import PodView
from windlass.operator.queued_work import QueuedWork
from windlass.operator.writes import PatchNode, Write

OUR_TAINTS = (CHANGE_TAINT, REPAIR_TAINT)
RENEWED_WAIT_SECONDS = 24 * 3600
"""A wait that only a person or time ends has a deadline too: after so long it is asked again whether it still holds."""


class Wait(msgspec.Struct, frozen=True):
    """Since when something is in a state, and until when it may be."""

    since: str
    deadline: str


def wait_for(previous: tuple[str, str, str], reason: str, now: int, seconds: int) -> Wait:
    """Keeps time and deadline as long as the reason stays; `previous` is reason, since and deadline as written."""
    if previous[0] == reason and previous[1] and previous[2]:
        return Wait(previous[1], previous[2])
    return Wait(format_timestamp(now), format_timestamp(now + seconds))


@dataclass
class NodePatch:
    """Changes of one Node, collected."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    taints: dict[str, Taint | None] = field(default_factory=dict)
    """By key; None removes it."""

    def write(self, node: NodeView) -> PatchNode | None:
        """What differs from the node as it is."""
        labels = {key: value for key, value in self.labels.items() if node.labels.get(key) != value}
        annotations = {key: value for key, value in self.annotations.items() if node.annotations.get(key) != value}
        taints = tuple(taint for taint in node.taints if taint.key not in self.taints)
        taints += tuple(taint for taint in self.taints.values() if taint is not None)
        same = set(map(_identity, taints)) == set(map(_identity, node.taints))
        if not labels and not annotations and same:
            return None
        return PatchNode(node.name, node.version, labels, annotations, None if same else taints)


def _identity(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.effect, taint.value


class Budget:
    """How many nodes of the stack are out of service, whatever the cause, and how many may be."""

    def __init__(self, limit: int, unavailable: Iterable[str]) -> None:
        self.limit, self.unavailable = limit, set(unavailable)

    def take(self, node: str) -> bool:
        """Whether the node may be taken out of service. One that is out already costs nothing."""
        if node in self.unavailable:
            return True
        if len(self.unavailable) >= self.limit:
            return False
        self.unavailable.add(node)
        return True


@dataclass
class Pool:
    stack: GPUStack
    nodes: Mapping[str, NodeView]
    """Those that this stack alone selects, by name, in order."""
    gpu_nodes: Mapping[str, GPUNode]
    changes: tuple[FleetChange, ...]
    repairs: tuple[GPURepair, ...]
    observed: Observed
    now: int
    statuses: dict[str, GPUNodeStatus] = field(default_factory=dict)
    """Drafts, by node."""
    patches: dict[str, NodePatch] = field(default_factory=dict)
    current: Current = field(init=False)
    writes: list[Write] = field(default_factory=list)
    wake_at: int = 0
    budget: Budget = field(init=False)
    gates_due: list[str] = field(default_factory=list)
    rooms_due: list[RoomQuestion] = field(default_factory=list)
    repair_nodes: set[str] = field(default_factory=set)
    """Nodes that repairs have taken in this decision."""
    told: set[str] = field(default_factory=set)
    """Pods that a drain of this decision gives time to leave."""
    stopped: set[str] = field(default_factory=set)
    """Workloads that a drain of this decision wants to stay stopped."""

    stamp: str = field(init=False)
    """Now, as it is written."""

    def __post_init__(self) -> None:
        self.stamp = format_timestamp(self.now)
        self.current = self.stack.status.current
        for name, node in self.nodes.items():
            known = self.gpu_nodes.get(name)
            is_same = known is not None and known.status.node_uid in ("", node.uid)
            self.statuses[name] = known.status if known is not None and is_same else GPUNodeStatus()
        limit = max(1, node_count(self.stack.spec.max_unavailable, len(self.nodes), round_up=False))
        self.budget = Budget(limit, (name for name in self.nodes if self.why_unavailable(name)))

    def patch(self, node: str) -> NodePatch:
        return self.patches.setdefault(node, NodePatch())

    def pods_on(self, node: str) -> tuple[PodView, ...]:
        return self.observed.pods.get(node, ())

    def work_of(self, pod: PodView) -> QueuedWork | None:
        """The Workload of a pod, if it stands for something that a queue can stop."""
        work = self.observed.queued.find(pod.workload, (pod.uid, pod.owner_uid))
        return work if work is not None and not work.is_of_pods else None

    def holders(self, node: str) -> list[PodView]:
        """Pods that have to leave before the node's GPUs can be touched."""
        return [pod for pod in self.pods_on(node) if pod.holds_gpus]

    def wake(self, at: str | int) -> None:
        """Asks to be called again at that time, if it is still to come."""
        moment = parse_timestamp(at) if isinstance(at, str) else at
        if moment > self.now and (not self.wake_at or moment < self.wake_at):
            self.wake_at = moment

    def is_past(self, deadline: str) -> bool:
        self.wake(deadline)
        return bool(deadline) and self.now >= parse_timestamp(deadline)

    def unavailable_nodes(self) -> str:
        """How many are out of service, and the first of them, for a message."""
        names = sorted(self.budget.unavailable)
        first = f" ({names[0]}: {self.why_unavailable(names[0]) or 'just taken'})" if names else ""
        return f"{len(names)} nodes are out of service{first}"

    def why_unavailable(self, name: str) -> str:
        """Empty if the node takes GPU work. Nodes that others cordoned count as well: the capacity is missing."""
        node, status = self.nodes[name], self.statuses[name]
        if not node.is_ready:
            return "its kubelet is not ready"
        if node.unschedulable:
            return "it is cordoned"
        for key in (*OUR_TAINTS, self.stack.spec.not_ready_taint):
            if node.has_taint(key):
                return f"it has the taint {key}"
        if status.change is not None and not status.change.result:
            return f"change {status.change.change} has taken it"
        repair = next((repair for repair in self.repairs if repair.spec.node == name and takes_node(repair)), None)
        if repair is not None:
            return f"repair {repair.name} has taken it"
        return "" if node.gpu_allocatable else "no GPU is allocatable"


def takes_node(repair: GPURepair) -> bool:
    """Whether the repair has the whole node, not only a device, out of service."""
    is_acting = repair.is_open and repair.status.phase != "Suspected"
    return is_acting and (repair.spec.device == WHOLE_NODE or repair.status.rung == "reboot")
