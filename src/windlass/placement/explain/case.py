"""One hold that is being explained: the workload, what was decided about it, and its pods as they would be placed.

`advisor` makes it; `limits`, `relief`, `changes` and `offers` read it.
"""

from __future__ import annotations

from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.explain.aftermath import Aftermath
from windlass.placement.explain.codes import GpuSums
from windlass.placement.explain.space import Space
from windlass.placement.explain.trials import Budget, Choices, Trials
from windlass.placement.gang import Part
from windlass.placement.topology import DomainTree
from windlass.queueing.site import PodSetChoice


class Case:
    def __init__(
        self, after: Aftermath, piece: Workload, verdict: Verdict, budget: Budget | None = None
    ) -> None:
        self.after, self.piece, self.verdict = after, piece, verdict
        self.trials = Trials(after, budget)
        self.choices: Choices | None = self.trials.choices(piece)
        """The flavors that quota gives it; None where quota is what it lacks."""
        plain = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        found = after.site.parts(piece, self.choices or plain)
        self.parts: list[Part] = found[0]
        self.tree: DomainTree | None = found[1]
        self.topology: str = found[2]
        self._spaces: dict[int, Space] = {}

    @property
    def lacks_quota(self) -> bool:
        return self.choices is None

    @property
    def is_close(self) -> bool:
        """Some of its pods have to be, or would like to be, close together."""
        return self.tree is not None and any(part.topology is not None for part in self.parts)

    def space(self, index: int) -> Space:
        if index not in self._spaces:
            self._spaces[index] = Space(self.after.overlay, self.parts[index])
        return self._spaces[index]

    def tightest(self) -> int:
        """The part that lacks most places."""
        missing = [part.count - self.space(i).fitting for i, part in enumerate(self.parts)]
        sizes = [part.shape.gpu_milli for part in self.parts]
        return max(range(len(self.parts)), key=lambda i: (missing[i], sizes[i], -i))

    def sums(self) -> GpuSums:
        return GpuSums(self.after.overlay, self.parts, self.after.nodes_of_queue(self.piece))
