"""Workloads in pieces, as they are decided: who comes before whom, what stands with what, what is implied.

`placement.decision_context` decides on the pieces that this makes of workloads (see `elastic`), with the topology
that their queue implies, and drops what can't stay without the rest of its gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.model.queue import QueueSystem
from windlass.model.workload import TopologyRequest, Workload
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.workload_pieces import is_above_minimum, prerequisite_pieces, split_workload
from windlass.queueing.outcome import Admitted, Evicted, Outcome
from windlass.queueing.placement_interface import PodSetChoice
from windlass.queueing.quota_node import queue_order_timestamp

UNCONSTRAINED_TOPOLOGY = TopologyRequest("unconstrained")


def drop_without_prerequisites(outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> list[Outcome]:
    """Without what was admitted of a gang whose minimum, later in the same decision, had to make room for others.

    Whatever is admitted beside a minimum that waits for somebody to go waits with it.
    """
    evicted = {one.workload for one in outcomes if isinstance(one, Evicted)}
    admitted = {one.workload: one for one in outcomes if isinstance(one, Admitted)}

    def runs(key: str) -> bool:
        if key not in pieces or key in admitted:
            return True
        return pieces[key].admission is not None and key not in evicted

    kept: list[Outcome] = []
    for one in outcomes:
        if isinstance(one, Admitted):
            before = prerequisite_pieces(one.workload)
            if not all(runs(key) for key in before):
                continue
            after = {*one.after, *(name for key in before if key in admitted for name in admitted[key].after)}
            one = msgspec.structs.replace(one, after=tuple(sorted(after)))
        kept.append(one)
    return kept


def unqueued_sort_key(piece: Workload) -> tuple[bool, int, bool, bool, int, bool, str]:
    """The order of what is in no queue: extra members last, then by priority and age; before its equals comes for whom
    others went, then whose gang has begun; among those of one age gangs go before lone pods (as `queueing.queue_sort`
    has it), and then it goes by name."""
    first = not piece.nominated, not piece.gang_running
    return (
        is_above_minimum(piece.key),
        -piece.priority,
        *first,
        queue_order_timestamp(piece),
        is_single_pod(piece),
        piece.key,
    )


def admitted_choices(piece: Workload) -> tuple[PodSetChoice, ...]:
    """What was admitted of each set."""
    held = piece.admission.assignments if piece.admission is not None else ()
    choices = []
    for one in piece.pod_sets:
        parts = [part for part in held if part.name == one.name]
        flavors = dict(parts[0].flavors) if parts else {}
        choices.append(PodSetChoice(one.name, sum(part.count for part in parts), flavors))
    return tuple(choices)


def is_single_pod(workload: Workload) -> bool:
    """A pod that is in no queue and no group."""
    return workload.kind == "Pod" and not workload.queue_name and not workload.hold


def pieces_to_decide(
    system: QueueSystem, workloads: Iterable[Workload], cache: DecisionCache | None = None
) -> list[Workload]:
    """The workloads in the pieces that are decided for themselves, with the topology that their queue implies."""
    implied = _topology_queues(system)
    known = (cache or DecisionCache()).pieces

    def pieces(workload: Workload) -> tuple[Workload, ...]:
        found = split_workload(workload)
        local = system.local_queues.get(f"{workload.namespace}/{workload.queue_name}") if implied else None
        if local is None or local.cluster_queue not in implied:
            return tuple(found)
        return tuple(map(_with_implied_topology, found))

    found: list[Workload] = []
    for workload in workloads:
        if workload.kind == "Pod" and workload.admission is not None:
            found.append(workload)  # it is in one piece, and has its place
        else:
            found += known.get_or_make(workload, pieces)
    return found


def _topology_queues(system: QueueSystem) -> set[str]:
    """ClusterQueues all of whose flavors have a topology: whatever is in them is placed by it."""
    found = set()
    for name, queue in system.queues.items():
        flavors = [one.flavor for group in queue.resource_groups for one in group.flavors]
        known = [system.flavors[flavor] for flavor in flavors if flavor in system.flavors]
        if known and all(flavor.topology for flavor in known):
            found.add(name)
    return found


def _with_implied_topology(piece: Workload) -> Workload:
    """In a queue that knows nothing but topologies, a set without a request of its own may go anywhere in one."""
    if all(one.topology is not None for one in piece.pod_sets):
        return piece
    sets = tuple(
        one if one.topology is not None else msgspec.structs.replace(one, topology=UNCONSTRAINED_TOPOLOGY)
        for one in piece.pod_sets
    )
    return msgspec.structs.replace(piece, pod_sets=sets)
