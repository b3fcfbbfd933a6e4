"""The MIG layout that a node's label asks for, and whether the node has it.

`gpu_stack` and `root_causes` call it. What a node should have stands on its label, what it has in its resources; the
MIG manager, which makes the one the other, may be failing, or may not run there at all.
"""

from __future__ import annotations

import re

from windlass.diagnose import nodes
from windlass.model.digits import is_digits
from windlass.model.mig import mig_resource_name
from windlass.model.names.nvidia import GPU_COUNT_LABEL, MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.node import Node

STRATEGY_LABEL = "nvidia.com/mig.strategy"
UNIFORM = re.compile(r"all-(([1-7])g\.\d+gb(\.me(\.all)?)?)")
"""Layouts of mig-parted's own file that cut every GPU into instances of one profile."""
MOST_INSTANCES = 7


def promised_instances(node: Node) -> dict[str, int]:
    """Resource → instances that the node would advertise with the layout of its label, and does not."""
    layout = UNIFORM.fullmatch(node.labels.get(MIG_CONFIG_LABEL, ""))
    if layout is None or node.labels.get(STRATEGY_LABEL, "mixed") != "mixed":
        return {}
    resource = mig_resource_name(layout[1].replace(".me", "+me"))
    if nodes.gpu_resources(node).get(resource) or node.labels.get(MIG_CONFIG_STATE_LABEL) == "success":
        return {}
    count = node.labels.get(GPU_COUNT_LABEL, "")
    return {resource: (int(count) if is_digits(count) else 1) * (MOST_INSTANCES // int(layout[2]))}
