"""Selects the scorer of each pod: packed, spread or balanced, by workload class.

`engine` makes it from the configuration; `placement.score_table` asks for every row. The strategy comes from the pod's
annotation `windlass.dev/placement`, else from the first configured class whose selector matches the pod's labels (the
queue label included). `pack` means the configured policy; `spread` prefers nodes with the most free GPU, for a small
blast radius and little interference; `balanced` keeps GPU, CPU and memory of a node used in the same proportion.
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
    def __init__(self, policy_scorer: int, classes: Sequence[WorkloadClass] = ()) -> None:
        self._policy = policy_scorer
        self._classes = tuple(classes)

    @property
    def depends_on_shape_only(self) -> bool:
        """Whether pods of one shape always have the same scorer."""
        return not self._classes

    def scorer(self, pod: Pod, shape: Shape) -> int:
        return self._scorer_of(shape.strategy or self._strategy_of_class(pod))

    def _strategy_of_class(self, pod: Pod) -> str:
        for workload_class in self._classes:
            if matches_selector(workload_class.selector, pod.metadata.labels):
                return workload_class.strategy
        return ""

    def _scorer_of(self, strategy: str) -> int:
        match strategy:
            case "spread":
                return scores.SPREAD
            case "balanced":
                return scores.BALANCED
            case "pack":
                # Under a policy that doesn't pack, such as `spread`, an explicit request for packing still packs.
                return self._policy if self._policy in PACKING_SCORERS else scores.PACK
            case _:
                return self._policy
