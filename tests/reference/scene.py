"""A few nodes with placed pods, on which tests ask the filters about one pod by node name."""

from __future__ import annotations

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.reasons import reason_of_bit
from windlass.placement.filters import static_reasons
from windlass.placement.inter_pod import InterPodRules


class Scene:
    """Nodes, and pods placed on them by name: `Scene(nodes, {"n1": [pod]})`."""

    def __init__(self, nodes, placed=None, **objects):
        self.nodes = NodeColumns(nodes)
        self.listers = Listers(**objects)
        pods = [(pod, self.nodes.index[name]) for name, on_node in (placed or {}).items() for pod in on_node]
        self.rules = InterPodRules(self.nodes, self.listers, pods)

    def place(self, pod, name):
        self.rules.add(pod, self.nodes.index[name])

    def why(self, pod):
        """{node name: names of its reasons, in order of their bits}."""
        static = static_reasons(pod, self.nodes, self.listers)
        mask = static | self.rules.reasons(pod, static)
        return {
            name: [reason_of_bit(bit).name for bit in range(32) if int(cell) >> bit & 1]
            for name, cell in zip(self.nodes.names, mask, strict=True)
        }

    def fits(self, pod):
        """Names of the nodes without a reason."""
        return [name for name, reasons in self.why(pod).items() if not reasons]
