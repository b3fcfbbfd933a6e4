"""Quota as it will be at a moment: the tree with those who hold quota then, and nobody else.

`room` says who that is; only differences are booked, so that moving from one moment to the next is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.queue import QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.node import QuotaNode, Usage
from windlass.queueing.pending import Pending
from windlass.queueing.site import PodSetChoice, Site
from windlass.queueing.tree import QuotaTree

Holding = tuple[str, Usage]
"""ClusterQueue, and what is held of it."""


class QuotaClock:
    def __init__(self, system: QueueSystem) -> None:
        self._tree = QuotaTree(system)
        self._shown: dict[str, Holding] = {}

    def queue(self, name: str) -> QuotaNode | None:
        """An active queue."""
        return None if name in self._tree.inactive else self._tree.queues.get(name)

    def show(self, holdings: Mapping[str, Holding]) -> None:
        """Make the tree hold exactly these."""
        for key in [key for key, held in self._shown.items() if holdings.get(key) != held]:
            queue, usage = self._shown.pop(key)
            self._tree.queues[queue].remove(usage)
        for key, held in holdings.items():
            if key not in self._shown and held[0] in self._tree.queues:
                self._shown[key] = held
                self._tree.queues[held[0]].add(held[1])


def usage_of(workload: Workload, choices: tuple[PodSetChoice, ...], node: QuotaNode, site: Site) -> Usage:
    """What the choices take of quota."""
    usage: Usage = {}
    names = [pod_set.name for pod_set in workload.pod_sets]
    requests = Pending(workload, node, site).requests
    for choice in choices:
        for resource, amount in requests[names.index(choice.name)].items():
            if amount and resource in choice.flavors:
                cell = (choice.flavors[resource], resource)
                usage[cell] = usage.get(cell, 0) + amount * choice.count
    return usage


def usage_of_running(workload: Workload) -> Usage:
    usage: Usage = {}
    for part in workload.admission.assignments if workload.admission else ():
        for resource, flavor in part.flavors.items():
            cell = (flavor, resource)
            usage[cell] = usage.get(cell, 0) + part.usage.get(resource, 0)
    return usage
