"""Where queueing asks what only placement knows: the overlay on which admissions and evictions are tried.

The engine supplies the real one; `UnlimitedPlacement` is the site on which everything fits, for tests and for
questions about quota alone. Placement comes after queueing in the order of rooms, so all that is here is the
protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from windlass.model.queue import ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.verdict import Verdict
from windlass.model.workload import PodSet, Workload
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason


class PodSetChoice(msgspec.Struct, frozen=True):
    """How many pods of a set start, and on which flavors."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource → flavor."""


class LazyVerdict(Protocol):
    """Why no node takes a pod, node by node; put into words only where somebody reads it."""

    def verdict(self) -> Verdict: ...


HoldMessage = str | LazyVerdict
"""Why something waits."""


def hold_message_text(message: HoldMessage) -> str:
    return message if isinstance(message, str) else message.verdict().kube_message


class PlacementResult(msgspec.Struct, frozen=True, eq=False):
    """Whether all pods found a node, and where; otherwise why not."""

    ok: bool
    nodes: tuple[dict[str, int], ...] = ()
    """Per pod set, in the order of the choices: node → pods."""
    message: HoldMessage = ""
    code: str = ""
    """From the closed list of reasons, where it isn't ok."""
    feasible: bool = True
    """False: it would not fit even if everything that may be evicted were gone."""
    after: tuple[str, ...] = ()
    """Removed workloads whose room this placement takes, so that it has to wait until they are gone."""


class PlacementInterface(Protocol):
    """One mutable overlay with an undo log. Everything is deterministic."""

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        """Of one pod, in base units; `nvidia.com/gpu` in milli-GPU."""
        ...

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        """Why the set can't use the flavor; empty where it can."""
        ...

    def checkpoint(self) -> int: ...

    def rollback(self, to: int) -> None:
        """Undoes every `remove` and `place` since that checkpoint."""
        ...

    def remove(self, workload: Workload) -> None:
        """Takes a workload's pods off the overlay, running ones or such as `place` has put there."""
        ...

    def restore(self, workload: Workload) -> None:
        """The opposite of `remove`, whatever was done since."""
        ...

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        """All pods of all sets, or none."""
        ...

    def could_place(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]
    ) -> bool:
        """False only where there would be no room even with all of those gone; quick, and no promise."""
        ...


class UnlimitedPlacement:
    """There is room for everything: quota alone decides."""

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        return quota_requests(pod_set.template)

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        return flavor_ineligible_reason(pod_set.template.spec, flavor)

    def checkpoint(self) -> int:
        return 0

    def rollback(self, to: int) -> None:
        pass

    def remove(self, workload: Workload) -> None:
        pass

    def restore(self, workload: Workload) -> None:
        pass

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        return PlacementResult(ok=True, nodes=tuple({} for _ in choices))

    def could_place(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]
    ) -> bool:
        return True
