"""One hold that is being explained: the workload, what was decided about it, and its pods as they would be placed.

`advisor` makes it; `limits`, `relief`, `changes` and `offers` read it.
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
        """The flavors that quota gives it; None where quota is what it lacks."""
        plain = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        found = state.placer.pending_pod_sets(piece, self.choices or plain)
        self.pod_sets: list[PendingPodSet] = found[0]
        self.tree: DomainTree | None = found[1]
        self.topology: str = found[2]
        self._spaces: dict[int, PodSetFeasibility] = {}

    @property
    def lacks_quota(self) -> bool:
        return self.choices is None

    @property
    def has_topology_request(self) -> bool:
        """Some of its pods have to be, or would like to be, close together."""
        return self.tree is not None and any(part.topology is not None for part in self.pod_sets)

    def feasibility(self, index: int) -> PodSetFeasibility:
        if index not in self._spaces:
            self._spaces[index] = PodSetFeasibility(self.state.overlay, self.pod_sets[index])
        return self._spaces[index]

    def tightest_pod_set(self) -> int:
        """The part that lacks most places."""
        missing = [part.count - self.feasibility(i).placeable for i, part in enumerate(self.pod_sets)]
        sizes = [part.shape.gpu_milli for part in self.pod_sets]
        return max(range(len(self.pod_sets)), key=lambda i: (missing[i], sizes[i], -i))

    def gpu_totals(self) -> GpuTotals:
        return GpuTotals(self.state.overlay, self.pod_sets, self.state.nodes_of_queue(self.piece))
