"""One hold that is being explained: the workload, its verdict, and its pod sets as the placer would see them.

`advisor` makes it; `limits`, `relief`, `changes`, `remedies` and `move_offers` read it.
"""

from __future__ import annotations

from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.explain.dry_runs import Choices, DryRunBudget, DryRuns
from windlass.placement.explain.gpu_fragmentation import GpuTotals
from windlass.placement.explain.pod_set_feasibility import PodSetFeasibility
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.gang import PendingPodSet
from windlass.placement.topology import DomainTree
from windlass.queueing.placement_interface import PodSetChoice


class HeldWorkload:
    def __init__(
        self, state: PostDecisionState, piece: Workload, verdict: Verdict, budget: DryRunBudget | None = None
    ) -> None:
        self.state, self.piece, self.verdict = state, piece, verdict
        self.dry_runs = DryRuns(state, budget)
        self.choices: Choices | None = self.dry_runs.choices(piece)
        """The flavors that quota allows; None where quota doesn't suffice."""
        no_flavors = tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
        pending = state.placer.pending_pod_sets(piece, self.choices or no_flavors)
        self.pod_sets: list[PendingPodSet] = pending[0]
        self.tree: DomainTree | None = pending[1]
        self.topology: str = pending[2]
        self._feasibility_by_index: dict[int, PodSetFeasibility] = {}

    @property
    def lacks_quota(self) -> bool:
        return self.choices is None

    @property
    def has_topology_request(self) -> bool:
        """Whether some of its pod sets require or prefer a topology level."""
        return self.tree is not None and any(pod_set.topology is not None for pod_set in self.pod_sets)

    def feasibility(self, index: int) -> PodSetFeasibility:
        if index not in self._feasibility_by_index:
            self._feasibility_by_index[index] = PodSetFeasibility(self.state.overlay, self.pod_sets[index])
        return self._feasibility_by_index[index]

    def tightest_pod_set(self) -> int:
        """Index of the pod set with most pods that don't fit; of equals, the one with more GPUs."""
        missing = [pod_set.count - self.feasibility(i).placeable for i, pod_set in enumerate(self.pod_sets)]
        sizes = [pod_set.shape.gpu_milli for pod_set in self.pod_sets]
        return max(range(len(self.pod_sets)), key=lambda i: (missing[i], sizes[i], -i))

    def gpu_totals(self) -> GpuTotals:
        return GpuTotals(self.state.overlay, self.pod_sets, self.state.nodes_of_queue(self.piece))
