"""How each component of a change is chosen on a node, and how one sees that the node runs it.

`decide.change_nodes` moves a label; whatever obeys it (the DaemonSet of the revision, the MIG manager) does the rest.
"""

from __future__ import annotations

import msgspec

from windlass.model.names.nvidia import MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.names.windlass import AGENT_REVISION_LABEL, DRIVER_REVISION_LABEL
from windlass.operator.decide.agent_daemon_set import leaves_out_revisions
from windlass.operator.decide.gpu_operator import default_driver, why_not_driven
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL
from windlass.operator.decide.owners import GPU_OPERATOR, other_owner
from windlass.operator.decide.pool import NodePatch, Pool
from windlass.operator.kinds.gpu_stack import Current
from windlass.operator.observed import NodeView

COMPONENTS_OF_STACK = ("driver", "mig")
"""What a stack's spec can ask for."""
LABELS = {"driver": DRIVER_REVISION_LABEL, "mig": MIG_CONFIG_LABEL, "agent": AGENT_REVISION_LABEL}
KEEPS_PODS = frozenset({"agent"})
"""Components that are exchanged beside running pods: the kubelet keeps what it has allocated. New pods must not be
bound meanwhile, since nothing is allocatable: the taint is there, and nobody is evicted."""


def chosen(node: NodeView, component: str) -> str:
    """What the node's label says; empty if nothing has been chosen."""
    return node.labels.get(LABELS[component], "")


def choose(patch: NodePatch, component: str, value: str) -> None:
    patch.labels[LABELS[component]] = value or None
    if component == "mig":
        # In the same write: the state of the old layout must not be taken for that of the new one.
        patch.labels[MIG_CONFIG_STATE_LABEL] = "pending" if value else None


def current_value(current: Current, component: str) -> str:
    return str(getattr(current, component))


def runs_already(pool: Pool, component: str, value: str) -> bool:
    """Where nothing has been chosen, a driver of NVIDIA's operator is that of its default NVIDIADriver."""
    known = current_value(pool.current, component)
    is_driven = component == "driver" and pool.stack.spec.driver.source == GPU_OPERATOR
    default = default_driver(pool.observed) if is_driven and not known else None
    return value == (default.version if default is not None else known)


def with_current(current: Current, component: str, value: str) -> Current:
    return msgspec.structs.replace(current, **{component: value})


def why_not_ours(pool: Pool, component: str) -> str:
    """Why the stack's component can't be changed by us; empty if it can."""
    if component == "agent":
        return _why_agent_not_ours(pool)
    if component == "driver" and pool.stack.spec.driver.source == GPU_OPERATOR:
        return why_not_driven(pool.observed) or _why_node_not_driven(pool)
    if component == "driver" and not pool.stack.spec.driver.image:
        return "spec.driver.image of the stack is empty: its driver is not brought by a container"
    for node in pool.nodes.values():
        owner = other_owner(node, component)
        if owner.name and component == "driver":
            remedy = ": with driver.source gpu-operator, changes drive it" if owner.name == GPU_OPERATOR else ""
            return f"{owner.name} brings the driver of {node.name}{remedy}"
        if component == "driver" and DRIVER_VERSION_LABEL in node.labels and DRIVER_REVISION_LABEL not in node.labels:
            return f"the driver of {node.name} is on its host, and driver containers would stand beside it"
    return ""


def _why_node_not_driven(pool: Pool) -> str:
    for node in pool.nodes.values():
        owner = other_owner(node, "driver")
        if owner.name not in ("", GPU_OPERATOR):
            return f"the driver of {node.name} is not gpu-operator's, but brought by the {owner.name}"
    return ""


def _why_agent_not_ours(pool: Pool) -> str:
    template = pool.observed.agent
    if template is None:
        return f"namespace {pool.observed.namespace} has no DaemonSet of the node agent (windlass install node)"
    if not leaves_out_revisions(template):
        words = "the installed node agent would run beside another version: apply `windlass install node` again"
        return f"{words}, which leaves out nodes with the label {AGENT_REVISION_LABEL}"
    return ""
