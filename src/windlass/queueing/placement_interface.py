"""The interface by which queueing tries admissions and evictions on an overlay of the nodes.

`placement` implements it (`WorkloadPlacer` and its wrappers); it lies above queueing in the import order, so only the
protocol is here. `UnlimitedPlacement` fits everything, for tests and for questions about quota alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from windlass.model.queue import ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.verdict import Verdict
from windlass.model.workload import PodSet, Workload
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason
from windlass.queueing.victim_room import VictimRoom


class PodSetChoice(msgspec.Struct, frozen=True):
    """How many pods of a pod set start, and on which flavors."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""


class LazyVerdict(Protocol):
    """Why no node takes a pod, counted by node; the verdict is built only when it is read."""

    def verdict(self) -> Verdict: ...


HoldMessage = str | LazyVerdict
"""Why a workload waits."""


def hold_message_text(message: HoldMessage) -> str:
    return message if isinstance(message, str) else message.verdict().kube_message


class PlacementResult(msgspec.Struct, frozen=True, eq=False):
    """Whether all pods found a node, and where; otherwise why not."""

    ok: bool
    nodes: tuple[dict[str, int], ...] = ()
    """Per pod set, in the order of the choices: node → pods."""
    message: HoldMessage = ""
    code: str = ""
    """From the closed list of reasons; empty where `ok`."""
    feasible: bool = True
    """False: it would not fit even if everything evictable were evicted."""
    after: tuple[str, ...] = ()
    """Removed workloads whose nodes this placement uses: it has to wait until they have ended."""


class PlacementInterface(Protocol):
    """One mutable overlay with an undo log. Everything is deterministic."""

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        """Requests of one pod in base units; `nvidia.com/gpu` in milli-GPU."""
        ...

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        """Why the set can't use the flavor; empty where it can."""
        ...

    def checkpoint(self) -> int: ...

    def rollback(self, checkpoint: int) -> None:
        """Undoes every `remove` and `place` since that checkpoint."""
        ...

    def remove(self, workload: Workload) -> None:
        """Removes a workload's pods from the overlay: running ones, or those that `place` put there."""
        ...

    def restore(self, workload: Workload) -> None:
        """The opposite of `remove`, whatever was done since."""
        ...

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        """All pods of all sets, or none."""
        ...

    def could_place(self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]) -> bool:
        """False only where it can't fit even with all of `without` removed. A quick check: True promises nothing."""
        ...

    def room(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], units: Sequence[Sequence[Workload]]
    ) -> VictimRoom | None:
        """How much room removing each unit makes, by their number; None where that can't be counted."""
        ...


class UnlimitedPlacement:
    """There is room for everything: quota alone decides."""

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        return quota_requests(pod_set.template)

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        return flavor_ineligible_reason(pod_set.template.spec, flavor)

    def checkpoint(self) -> int:
        return 0

    def rollback(self, checkpoint: int) -> None:
        pass

    def remove(self, workload: Workload) -> None:
        pass

    def restore(self, workload: Workload) -> None:
        pass

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        return PlacementResult(ok=True, nodes=tuple({} for _ in choices))

    def could_place(self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]) -> bool:
        return True

    def room(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], units: Sequence[Sequence[Workload]]
    ) -> VictimRoom | None:
        return None
