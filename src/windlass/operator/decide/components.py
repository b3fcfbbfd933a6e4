"""How each component of a change is chosen on a node, and how one sees that the node runs it.

`decide.change_nodes` moves a label; whatever obeys it (the DaemonSet of the revision, the MIG manager) does the rest.
"""

from __future__ import annotations

from windlass.model.names.nvidia import MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.operator.decide.owners import other_owner
from windlass.operator.decide.pool import NodePatch, Pool
from windlass.operator.decide.steps import DRIVER_VERSION_LABEL
from windlass.operator.kinds.gpu_stack import Current
from windlass.operator.observed import NodeView

COMPONENTS_OF_STACK = ("driver", "mig")
"""What a stack's spec can ask for."""
LABELS = {"driver": DRIVER_REVISION_LABEL, "mig": MIG_CONFIG_LABEL}


def chosen(node: NodeView, component: str) -> str:
    """What the node's label says; empty if nothing has been chosen."""
    return node.labels.get(LABELS[component], "")


def choose(patch: NodePatch, component: str, value: str) -> None:
    patch.labels[LABELS[component]] = value or None
    if component == "mig":
        # In the same write: the state of the old layout must not be taken for that of the new one.
        patch.labels[MIG_CONFIG_STATE_LABEL] = "pending" if value else None


def current_value(current: Current, component: str) -> str:
    return current.driver if component == "driver" else current.mig


def with_current(current: Current, component: str, value: str) -> Current:
    if component == "driver":
        return Current(driver=value, mig=current.mig)
    return Current(driver=current.driver, mig=value)


def why_not_ours(pool: Pool, component: str) -> str:
    """Why the stack's component can't be changed by us; empty if it can."""
    if component == "driver" and not pool.stack.spec.driver.image:
        return "spec.driver.image of the stack is empty: its driver is not brought by a container"
    for node in pool.nodes.values():
        owner = other_owner(node, component)
        if owner.name and component == "driver":
            return f"{owner.name} brings the driver of {node.name}"
        if component == "driver" and DRIVER_VERSION_LABEL in node.labels and DRIVER_REVISION_LABEL not in node.labels:
            return f"the driver of {node.name} is on its host, and driver containers would stand beside it"
    return ""
