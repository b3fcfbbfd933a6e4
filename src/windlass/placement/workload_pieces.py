"""Pieces of workloads: what is decided on its own. The minimum of an elastic workload is placed whole; every member
above it is a piece of one pod; what a running gang lacks of its minimum is a piece too.

`placement.decision_context` makes the pieces of a decision; `placement.decisions` joins them into workloads again. A
piece is a `Workload` like any other, so that quota, order and eviction need no rules of their own for it: members above
the minimum queue behind everything of their priority and, being the newest, are evicted first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from windlass.model.piece_keys import PIECE_SEPARATOR
from windlass.model.piece_keys import is_above_minimum as is_above_minimum
from windlass.model.piece_keys import workload_key as workload_key
from windlass.model.queue import QueueSystem
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.decision_cache import DecisionCache
from windlass.queueing.outcome import Admitted, Evicted, Outcome
from windlass.queueing.placement_interface import PodSetChoice
from windlass.queueing.quota_node import queue_order_timestamp

MISSING_PIECE = "missing"
"""Suffix of the piece that a running gang lacks of its minimum, for instance after a node was lost."""
UNCONSTRAINED_TOPOLOGY = TopologyRequest("unconstrained")


def missing_piece_key(workload: str) -> str:
    return f"{workload}{PIECE_SEPARATOR}{MISSING_PIECE}"


def prerequisite_pieces(piece: str) -> list[str]:
    """The pieces of the same workload that have to run for this one to run."""
    minimum = workload_key(piece)
    if is_above_minimum(piece):
        return [minimum, missing_piece_key(minimum)]
    return [minimum] if piece == missing_piece_key(minimum) else []


def is_extra_member(piece: Workload) -> bool:
    """Whether it is above the minimum of a gang, so that it comes after everything else and makes no room for itself.

    Not a pod that the controller of an owner that is no gang has yet to create: it will be a single pod.
    """
    is_independent = not piece.all_or_nothing and not any(pod_set.pod_keys for pod_set in piece.pod_sets)
    return is_above_minimum(piece.key) and not is_independent


def is_single_pod(workload: Workload) -> bool:
    """Whether it is a pod in no gang and no queue."""
    return workload.kind == "Pod" and not workload.queue_name and not workload.hold


def pieces_to_decide(
    system: QueueSystem, workloads: Iterable[Workload], cache: DecisionCache | None = None
) -> list[Workload]:
    """The pieces of the workloads, with the topology request that their queue implies."""
    topology_queues = _topology_queues(system)
    cached = (cache or DecisionCache()).pieces

    def make_pieces(workload: Workload) -> tuple[Workload, ...]:
        pieces = split_workload(workload)
        local_queue = system.local_queue(workload.namespace, workload.queue_name) if topology_queues else None
        if local_queue is None or local_queue.cluster_queue not in topology_queues:
            return tuple(pieces)
        return tuple(map(_with_implied_topology, pieces))

    found: list[Workload] = []
    for workload in workloads:
        if workload.kind == "Pod" and workload.admission is not None:
            found.append(workload)  # a running pod is one piece, and most workloads are such
        else:
            found += cached.get_or_make(workload, make_pieces)
    return found


def _topology_queues(system: QueueSystem) -> set[str]:
    """ClusterQueues all of whose flavors have a topology: as in Kueue, their workloads are placed by it."""
    found = set()
    for name, queue in system.queues.items():
        names = [quotas.flavor for group in queue.resource_groups for quotas in group.flavors]
        flavors = [system.flavors[flavor] for flavor in names if flavor in system.flavors]
        if flavors and all(flavor.topology for flavor in flavors):
            found.add(name)
    return found


def _with_implied_topology(piece: Workload) -> Workload:
    """Pod sets without a topology request get the unconstrained one: anywhere in the flavor's topology."""
    if all(pod_set.topology is not None for pod_set in piece.pod_sets):
        return piece
    pod_sets = tuple(
        replace(pod_set, topology=pod_set.topology or UNCONSTRAINED_TOPOLOGY) for pod_set in piece.pod_sets
    )
    return replace(piece, pod_sets=pod_sets)


def split_workload(workload: Workload) -> list[Workload]:
    """The workload itself where it is not elastic; else its minimum (as far as it runs, and what is missing of it) and
    each member above the minimum."""
    # What is being evicted waits whole: its pods that still run are no gang that lacks members.
    if workload.evicting or _is_one_pod(workload):
        return [workload]
    total = sum(pod_set.count for pod_set in workload.pod_sets)
    minimum = total if workload.min_pods is None else min(workload.min_pods, total)
    held = _HeldQuota(workload.admission)
    admitted = {pod_set.name: held.count(pod_set.name) for pod_set in workload.pod_sets}
    minimums = _minimum_counts(workload, max(1, minimum), admitted)
    pairs = zip(workload.pod_sets, minimums, strict=True)
    running = [min(count, admitted.get(pod_set.name, 0)) for pod_set, count in pairs]
    if workload.admission is None or running == minimums:
        running = minimums
    # Without a minimum nothing is elastic: a workload that was admitted with fewer pods runs with those.
    is_inelastic = workload.min_pods is None and running == minimums
    if is_inelastic or running == [pod_set.count for pod_set in workload.pod_sets]:
        return [workload]
    pieces = [_piece(workload, workload.key, _members(workload, [0] * len(minimums), running), held)]
    missing = _members(workload, running, minimums)
    if missing:
        missing_piece = _piece(workload, missing_piece_key(workload.key), missing, held)
        pieces.append(replace(missing_piece, gang_running=True))
    for pod_set, count in zip(workload.pod_sets, minimums, strict=True):
        for i in range(count, pod_set.count):
            extra = replace(pod_set, count=1, pod_keys=pod_set.pod_keys[i : i + 1], min_count=None)
            number = len(pieces)
            pieces.append(_piece(workload, f"{workload.key}{PIECE_SEPARATOR}{number}", (extra,), held, number))
    return [piece for piece in pieces if piece.pod_sets]


def _is_one_pod(workload: Workload) -> bool:
    """Whether it is one pod, so that there is nothing to split. Most workloads are such."""
    first = workload.pod_sets[0] if len(workload.pod_sets) == 1 else None
    if first is None or first.count != 1 or first.min_count is not None:
        return False
    held = workload.admission.assignments if workload.admission is not None else None
    return held is None or (len(held) == 1 and held[0].name == first.name and held[0].count == 1)


def _minimum_counts(workload: Workload, minimum: int, admitted: Mapping[str, int]) -> list[int]:
    """How many members of each pod set belong to the minimum, filled in the order of the sets."""
    counts, left = [], minimum
    for pod_set in workload.pod_sets:
        counts.append(min(left, pod_set.count))
        left -= counts[-1]
        # A set that was admitted with fewer pods (partial admission) lacks none while it has its minCount.
        if pod_set.min_count is not None and admitted[pod_set.name] >= pod_set.min_count:
            counts[-1] = min(counts[-1], admitted[pod_set.name])
    return counts


def _members(workload: Workload, first: list[int], end: list[int]) -> tuple[PodSet, ...]:
    """Members `first` to `end` of each pod set, without the sets that have none."""
    return tuple(
        replace(pod_set, count=stop - start, pod_keys=pod_set.pod_keys[start:stop])
        for pod_set, start, stop in zip(workload.pod_sets, first, end, strict=True)
        if stop > start
    )


class _HeldQuota:
    """The assignments of an admission, handed out to pieces; the pods of a set may be on several flavors."""

    def __init__(self, admission: Admission | None) -> None:
        self._assignments = admission.assignments if admission is not None else ()
        self._left = [assignment.count for assignment in self._assignments]

    def count(self, name: str) -> int:
        """Members of the set that hold quota which was not handed out yet."""
        pairs = zip(self._assignments, self._left, strict=True)
        return sum(left for assignment, left in pairs if assignment.name == name)

    def take(self, name: str, count: int) -> list[PodSetAssignment]:
        """The quota of `count` members of the set; equal pods hold equal parts."""
        taken = []
        for i, assignment in enumerate(self._assignments):
            pods = min(self._left[i], count) if assignment.name == name else 0
            if pods:
                usage = {resource: amount * pods // assignment.count for resource, amount in assignment.usage.items()}
                # Which pod is on which of the nodes is not known here, so every part lists all of them.
                taken.append(PodSetAssignment(name, pods, assignment.flavors, usage, assignment.nodes))
                self._left[i] -= pods
                count -= pods
        return taken


def _piece(workload: Workload, key: str, pod_sets: tuple[PodSet, ...], held: _HeldQuota, later: int = 0) -> Workload:
    """A piece with its part of the quota; `later` seconds younger, which orders pieces within the workload."""
    admission = None
    if workload.admission is not None:
        assignments = [part for pod_set in pod_sets for part in held.take(pod_set.name, pod_set.count)]
        if assignments:
            reserved = workload.admission.reserved_at + later
            admission = Admission(workload.admission.cluster_queue, tuple(assignments), reserved)
    is_unreadable = admission is None and bool(workload.unreadable)
    return replace(
        workload,
        key=key,
        hold=workload.unreadable if is_unreadable else workload.hold,
        hold_code="INVALID_OBJECT" if is_unreadable else workload.hold_code,
        uid=f"{workload.uid}{key.removeprefix(workload.key)}",
        pod_sets=pod_sets,
        min_pods=None,
        admission=admission,
        created=workload.created,
        queued_at=workload.queued_at + later,
    )


def unqueued_sort_key(piece: Workload) -> tuple[bool, int, bool, bool, int, bool, str]:
    """The order of pieces in no queue.

    Members above the minimum last; then by priority; pieces for which victims were evicted first, then pieces of
    running gangs; by age; gangs before single pods (as in `queueing.queue_sort`); by key.
    """
    return (
        is_extra_member(piece),
        -piece.priority,
        not piece.nominated,
        not piece.gang_running,
        queue_order_timestamp(piece),
        is_single_pod(piece),
        piece.key,
    )


def eviction_priority(piece: Workload) -> int:
    """What preempts it has to have a higher priority than the workload and all of its pods."""
    return max(piece.priority, *(pod_set.template.spec.priority for pod_set in piece.pod_sets))


def admitted_choices(piece: Workload) -> tuple[PodSetChoice, ...]:
    """The admitted count and flavors of each pod set."""
    admitted = piece.admission.assignments if piece.admission is not None else ()
    choices = []
    for pod_set in piece.pod_sets:
        own = [assignment for assignment in admitted if assignment.name == pod_set.name]
        flavors = dict(own[0].flavors) if own else {}
        choices.append(PodSetChoice(pod_set.name, sum(assignment.count for assignment in own), flavors))
    return tuple(choices)


def drop_without_prerequisites(outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> list[Outcome]:
    """The outcomes without admissions of a gang whose minimum was evicted later in the same decision.

    An admission also waits for the victims that its gang's minimum waits for.
    """
    evicted = {outcome.workload for outcome in outcomes if isinstance(outcome, Evicted)}
    admitted = {outcome.workload: outcome for outcome in outcomes if isinstance(outcome, Admitted)}

    def runs(key: str) -> bool:
        if key not in pieces or key in admitted:
            return True
        return pieces[key].admission is not None and key not in evicted

    kept: list[Outcome] = []
    for outcome in outcomes:
        if not isinstance(outcome, Admitted):
            kept.append(outcome)
            continue
        needed = prerequisite_pieces(outcome.workload)
        if all(runs(key) for key in needed):
            after = {
                *outcome.after,
                *(key for piece in needed if piece in admitted for key in admitted[piece].after),
            }
            kept.append(replace(outcome, after=tuple(sorted(after))))
    return kept
