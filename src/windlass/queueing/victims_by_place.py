"""Victims chosen by place: candidates on a few nodes that together hold the preemptor, the cheapest nodes first.

`classical_preemption` calls `find_by_place` where removing candidates in their order frees enough quota but no place
(eight one-GPU borrowers that are spread over two nodes, for a pod of eight GPUs), and where there are too many
candidates for its search of cheaper victims. The rules of quota stay those of the attempt that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windlass.queueing.classical_candidates import Candidates
from windlass.queueing.preemption_common import PlacementTrial, PreemptionRequest, Target
from windlass.queueing.quota_node import AdmittedWorkload

MAX_PLACES = 12
"""So many places are compared; each costs one placement and the attempt to clear it."""


def find_by_place(
    request: PreemptionRequest,
    candidates: Candidates,
    attempt: Callable[[Sequence[AdmittedWorkload]], list[Target]],
) -> list[Target]:
    """The cheapest victims of the places that were tried; `attempt` takes candidates in an order and finds victims."""
    best: list[Target] = []
    for here in _places(request, candidates):
        chosen = set(here)
        targets = attempt([*here, *(running for running in candidates.ordered if running not in chosen)])
        if targets and (not best or candidates.eviction_cost(targets) < candidates.eviction_cost(best)):
            best = targets
    return best


def _places(request: PreemptionRequest, candidates: Candidates) -> Iterator[list[AdmittedWorkload]]:
    """The candidates on the nodes where the preemptor fits when they are gone; no node is in two places."""
    trial = request.placement_trial
    assert trial is not None, "without nodes there are no places"
    left = _by_cost_of_node(request, candidates)
    for _ in range(MAX_PLACES):
        removed = _fewest_nodes(trial, left)
        if removed is None:
            return
        used = trial.placed_nodes
        trial.reset_throttle()
        yield [running for running in removed if not used.isdisjoint(running.nodes)]
        remaining = [(name, here) for name, here in left if name not in used]
        if len(remaining) == len(left):
            return
        left = remaining


def _fewest_nodes(
    trial: PlacementTrial, left: Sequence[tuple[str, list[AdmittedWorkload]]]
) -> list[AdmittedWorkload] | None:
    """The candidates of as few of the first nodes as make a place, on the overlay at the end; None if all don't."""

    def removed(number: int) -> list[AdmittedWorkload]:
        return list(dict.fromkeys(running for _, here in left[:number] for running in here))

    end = 1
    while not trial.fits(removed(end)):
        if end >= len(left):
            return None
        end *= 2
    first = end // 2 + 1
    while first < end:
        middle = (first + end) // 2
        if trial.fits(removed(middle)):
            end = middle
        else:
            first = middle + 1
    return removed(end) if trial.fits(removed(end)) else None


def _by_cost_of_node(request: PreemptionRequest, candidates: Candidates) -> list[tuple[str, list[AdmittedWorkload]]]:
    """Nodes with the candidates on them, by what it costs to free one pod's request there."""
    by_node: dict[str, list[AdmittedWorkload]] = {}
    for running in candidates.ordered:
        for name in running.nodes:
            by_node.setdefault(name, []).append(running)
    pods = max(1, sum(pod_set.count for pod_set in request.pending.workload.pod_sets))
    need = {cell: -(-request.usage.get(cell, 0) // pods) for cell in request.needs_preemption}

    def needed(here: Sequence[AdmittedWorkload]) -> list[Target]:
        """The first of them that free enough for one pod, as far as usage tells; all if they don't."""
        missing, found = dict(need), []
        for running in here:
            found.append(Target(running, ""))
            for cell in missing:
                missing[cell] -= running.usage.get(cell, 0) // len(running.nodes)
            if all(amount <= 0 for amount in missing.values()):
                break
        return found

    return sorted(by_node.items(), key=lambda entry: (candidates.eviction_cost(needed(entry[1])), entry[0]))
