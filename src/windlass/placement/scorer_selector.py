"""Per workload class, not one rule for all: who is packed, who is spread, who is kept in balance.

A pod says so itself (annotation `windlass.dev/placement`), or a class of the configuration says it for the pods that
its selector matches (labels, the queue's label among them). `pack` is the policy in force; `spread` goes to the nodes
with the most free GPU, for a small blast radius and little interference; `balanced` keeps GPU, CPU and memory of a node
used in the same proportion.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cluster.shape import Shape
from windlass.model.configuration import WorkloadClass
from windlass.model.labels import matches_selector
from windlass.model.pod import Pod
from windlass.placement.kernels import scores

PACKING_SCORERS = frozenset(
    {scores.WINDLASS, scores.FGD, scores.BEST_FIT, scores.GPU_PACKING, scores.GPU_CLUSTERING, scores.PACK}
)


class ScorerSelector:
    """The scorer of each pod under a policy and the configured classes."""

    def __init__(self, policy_scorer: int, classes: Sequence[WorkloadClass] = ()) -> None:
        self._policy = policy_scorer
        self._classes = tuple(classes)

    @property
    def depends_on_shape_only(self) -> bool:
        """Whether a pod's shape alone says which scorer it gets."""
        return not self._classes

    def scorer(self, pod: Pod, shape: Shape) -> int:
        return self._scorer_of(shape.strategy or self._class_of(pod))

    def _class_of(self, pod: Pod) -> str:
        for each in self._classes:
            if matches_selector(each.selector, pod.metadata.labels):
                return each.strategy
        return ""

    def _scorer_of(self, strategy: str) -> int:
        match strategy:
            case "spread":
                return scores.SPREAD
            case "balanced":
                return scores.BALANCED
            case "pack":
                return self._policy if self._policy in PACKING_SCORERS else scores.PACK
            case _:
                return self._policy
