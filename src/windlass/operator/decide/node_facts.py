"""What the steps of a node's bring-up read, and what one of them finds.

`decide.bring_up` makes the facts; `decide.steps` and `decide.driver_step` read them.
"""

from __future__ import annotations

import msgspec

from windlass.operator.decide.owners import NOBODY, WINDLASS, Owner
from windlass.operator.kinds.gpu_stack import Current, GPUStack
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView, NvidiaDriver
from windlass.operator.pods import PodView

DRIVER_VERSION_LABEL = "nvidia.com/cuda.driver-version.full"


class Found(msgspec.Struct, frozen=True):
    """What a step looks like now, without time."""

    state: str
    reason: Reason = Reason.Done
    message: str = ""
    owner: str = WINDLASS


class NodeFacts(msgspec.Struct, frozen=True):
    """What the steps read."""

    node: NodeView
    pods: tuple[PodView, ...]
    stack: GPUStack
    current: Current
    owners: dict[str, Owner]
    """Steps that others do."""
    repaired_devices: frozenset[int] = frozenset()
    """GPUs that an open repair has out of service: nothing waits for them."""
    default_driver: NvidiaDriver | None = None
    """What NVIDIA's operator runs on nodes for which nothing has been chosen."""
    is_changing: bool = False
    """Whether a change has taken the node: what was loaded before is no answer."""
    handover: str = ""
    """Why parts of the node are between NVIDIA's operator and the agent; empty if they are not."""

    def owner(self, step: str) -> Owner:
        return self.owners.get(step, NOBODY)


def first_choice_blocked(facts: NodeFacts, label: str) -> str:
    """Pods that hold GPUs of a node on which nothing has been chosen yet."""
    if label in facts.node.labels:
        return ""
    return ", ".join(sorted(pod.key for pod in facts.pods if pod.holds_gpus)[:3])
