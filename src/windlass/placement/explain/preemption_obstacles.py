"""Why nothing is preempted for a held workload: policies, priorities, run times, annotations, or no gain.

`advisor` asks when it explains a hold. The search for victims is asked again with one of its rules lifted after the
other: the rule without which it would find enough room is the obstacle. Budgets are told by `budget_protection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from windlass.cluster.node_columns import Bools
from windlass.cluster.workloads.workload_attributes import PREEMPTABLE, is_evictable
from windlass.model.obstacle import MIN_RUN_TIME, NO_GAIN, POLICY, PRIORITY, PROTECTED, Obstacle
from windlass.model.queue_names import describe_queue, is_shared_queue
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.pod_set_feasibility import nodes_limited_by_capacity
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.explain.relief import quota_cells
from windlass.placement.preemption.candidates import CandidateFinder, Preemptor, permit_all
from windlass.placement.preemption.context import NEVER, Preemption, preemption_policy
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.queueing.quota_node import QuotaNode

MAX_NAMED = 3


class PreemptionRules:
    """The search for victims, with some of its rules lifted, on the state after the decision. Made when needed."""

    def __init__(self, state: PostDecisionState) -> None:
        self._state = state
        self._made: dict[tuple[bool, bool], Preemption] = {}

    def lifted(self, *, run_time: bool = False, annotations: bool = False) -> Preemption:
        key = (run_time, annotations)
        if key not in self._made:
            config = replace(self._state.queues, min_run_seconds=0) if run_time else self._state.queues
            made = Preemption(self._state.overlay, config, self._state.now, ignores_annotations=annotations)
            made.record_decisions((), ())
            self._made[key] = made
        return self._made[key]


def find_obstacles(held: HeldWorkload, rules: PreemptionRules) -> tuple[Obstacle, ...]:
    """At most one of each kind; empty where preemption is not in question, or where a budget is the cause."""
    if held.lacks_quota:
        return tuple(_quota_obstacles(held))
    lifted = rules.lifted(run_time=True, annotations=True)
    priority = lifted.priority_of(held.piece)
    units = _units_in_reach(held, lifted, priority)
    if not units:
        return _equal_priorities(held, priority)
    if _never_preempts(held):
        return (_policy("its preemptionPolicy is Never"),)
    if held.piece.queue_name:
        # Queued work is preempted by the rules of its queue, which compare quota, not places.
        units = [unit for unit in units if not unit.is_queued]
    if not units:
        return ()
    if not _helps(held, lifted, priority):
        text = f"preempting all work of lower priority than {priority} would not make enough room"
        return (Obstacle(NO_GAIN, text, text),)
    if _helps(held, rules.lifted(), priority):
        return ()
    without_run_time = _helps(held, rules.lifted(run_time=True), priority)
    without_annotations = _helps(held, rules.lifted(annotations=True), priority)
    # Each where lifting it is enough, or where lifting the other one is not.
    return tuple(
        _protections(
            held,
            units,
            by_time=without_run_time or not without_annotations,
            by_annotation=without_annotations or not without_run_time,
        )
    )


def _never_preempts(held: HeldWorkload) -> bool:
    classes = held.state.overlay.snapshot.queue_system.non_preempting_classes
    policies = [preemption_policy(pod_set.pod, classes) for pod_set in held.pod_sets]
    return NEVER in (held.piece.preemption_policy, *policies)


def _policy(why: str) -> Obstacle:
    text = f"it preempts nothing: {why}"
    return Obstacle(POLICY, text, text)


def _equal_priorities(held: HeldWorkload, priority: int) -> tuple[Obstacle, ...]:
    """Not told where nobody uses priorities: then nobody expects a preemption."""
    pods = held.state.overlay.snapshot.pods
    bound = (pods.alive == 1) & (pods.node >= 0)
    bound[bound] = _nodes_in_reach(held)[pods.node[bound]]
    # Pods of lower priority that are no units: of a DaemonSet, or about to end.
    if priority <= 0 or not bound.any() or int(pods.priority[bound].min()) < priority:
        return ()
    text = f"it can preempt nothing: all pods on nodes that suit it have priority {priority} or higher"
    return (Obstacle(PRIORITY, text, text),)


def _units_in_reach(held: HeldWorkload, preemption: Preemption, priority: int) -> list[VictimUnit]:
    """Units of lower priority on nodes that only capacity keeps from taking its pods."""
    overlay, inside = held.state.overlay, _nodes_in_reach(held)
    nodes, removed = overlay.snapshot.pods.node, overlay.removed_rows()
    lowest = preemption.freed_resources.units if preemption.may_preempt(priority, "") else []
    return [
        unit
        for unit in lowest
        if unit.priority < priority
        and not unit.is_terminating
        and not removed.intersection(unit.rows)
        and any(inside[int(nodes[row])] for row in unit.rows)
    ]


def _nodes_in_reach(held: HeldWorkload) -> Bools:
    overlay = held.state.overlay
    inside = np.zeros(overlay.snapshot.nodes.size, dtype=np.bool_)
    for pod_set in held.pod_sets:
        inside |= nodes_limited_by_capacity(overlay, overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod))
    return inside


def _helps(held: HeldWorkload, preemption: Preemption, priority: int) -> bool:
    """Whether all pods would have room, by resources alone, if all units were evicted; budgets aside."""
    overlay = held.state.overlay
    freed = preemption.freed_resources
    before = freed.present.copy()
    if held.piece.queue_name:
        freed.present[:] = before & np.array([not unit.is_queued for unit in freed.units], dtype=np.bool_)
    finder = CandidateFinder(overlay, freed, permit_all)
    lacks = 0
    for pod_set in held.pod_sets:
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        potential = finder.potential_nodes(Preemptor(pod_set.pod, pod_set.shape, row, priority, pod_set.count))
        lacks += max(0, pod_set.count - int(potential.fits[potential.feasible].sum()))
    freed.present[:] = before
    return not lacks


def _protections(
    held: HeldWorkload, units: list[VictimUnit], *, by_time: bool, by_annotation: bool
) -> Iterator[Obstacle]:
    minimum, now = held.state.queues.min_run_seconds, held.state.now
    young = [unit for unit in units if now - unit.started_at < minimum]
    if by_time and young:
        yield _run_time_obstacle(minimum, [(unit.workload_key, unit.started_at) for unit in young])
    excluded = [unit for unit in units if not _is_evictable(held, unit)]
    if by_annotation and excluded:
        yield _excluded(unit.workload_key for unit in excluded)


def _is_evictable(held: HeldWorkload, unit: VictimUnit) -> bool:
    if unit.workload is not None:
        return unit.workload.evictable
    pods = [held.state.overlay.snapshot.pods.objects[row] for row in unit.rows]
    return is_evictable(pod.metadata for pod in pods)


def _run_time_obstacle(minimum: int, young: list[tuple[str, int]]) -> Obstacle:
    names = tuple(dict.fromkeys(name for name, _ in young))
    until = min(started for _, started in young) + minimum
    ends = f"the first until {format_timestamp(until)}" if len(names) > 1 else f"until {format_timestamp(until)}"
    count = f"{len(names)} running workload{'s' if len(names) > 1 else ''}"
    public = f"minRunTime protects {count} from preemption, {ends}"
    return Obstacle(MIN_RUN_TIME, f"{public}: {_listed(names)}", public, names, at=until)


def _excluded(names: Iterable[str]) -> Obstacle:
    found = tuple(dict.fromkeys(names))
    count = f"{len(found)} running workload{'s' if len(found) > 1 else ''}"
    verb = "are" if len(found) > 1 else "is"
    public = f"{count} that could be preempted for it {verb} marked {PREEMPTABLE}: false"
    return Obstacle(PROTECTED, f"{public}: {_listed(found)}", public, found)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


# Quota


def _quota_obstacles(held: HeldWorkload) -> Iterator[Obstacle]:
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None:
        return
    if held.piece.preemption_policy == NEVER:
        yield _policy("its preemptionPolicy is Never")
        return
    own, borrowers = _users_of_quota(held, node)
    policy = node.spec.preemption
    within, reclaim = policy.within_cluster_queue, policy.reclaim_within_cohort
    if (own and within == NEVER and (not borrowers or reclaim == NEVER)) or (
        borrowers and not own and reclaim == NEVER
    ):
        yield _policy(_queue_policy(node.name, within, reclaim))
        return
    victims = quota_victims(held)
    if not victims and own and held.piece.priority > 0:
        rank = f"priority {held.piece.priority} or higher"
        text = f"it can preempt nothing: all work that uses the quota of its queue has {rank}"
        yield Obstacle(PRIORITY, text, text)
    minimum, now = held.state.queues.min_run_seconds, held.state.now
    young = [(workload.key, workload.started_at) for workload in victims if now - workload.started_at < minimum]
    if young:
        yield _run_time_obstacle(minimum, young)
    excluded = [workload.key for workload in victims if not workload.evictable]
    if excluded:
        yield _excluded(excluded)


def _queue_policy(queue: str, within: str, reclaim: str) -> str:
    if is_shared_queue(queue):
        return f"work that uses the quota of {describe_queue(queue)} may not be preempted for it"
    return f"ClusterQueue {queue} has withinClusterQueue {within} and reclaimWithinCohort {reclaim}"


def quota_victims(held: HeldWorkload) -> list[Workload]:
    """Workloads that the policies of its queue would let it preempt, were they not protected."""
    node = held.state.occupancy.cluster_queue_of(held.piece)
    if node is None or held.piece.preemption_policy == NEVER:
        return []
    own, borrowers = _users_of_quota(held, node)
    policy = node.spec.preemption
    found = own if policy.within_cluster_queue != NEVER else []
    found = [workload for workload in found if workload.priority < held.piece.priority]
    if policy.reclaim_within_cohort != NEVER:
        found += [
            workload
            for workload in borrowers
            if policy.reclaim_within_cohort == "Any" or workload.priority < held.piece.priority
        ]
    return found


def _users_of_quota(held: HeldWorkload, node: QuotaNode) -> tuple[list[Workload], list[Workload]]:
    """Workloads in its queue, and in other queues of its cohort tree that borrow."""
    cells = quota_cells(held, node)
    held.state.occupancy.set_quota_at(held.state.now, ())
    own: list[Workload] = []
    borrowers: list[Workload] = []
    for occupant in held.state.running():
        if occupant.queue_usage is None or occupant.workload.evicting or occupant.workload.admission is None:
            continue
        queue = held.state.occupancy.quota.active_queue(occupant.queue_usage[0])
        if queue is None or queue.root is not node.root:
            continue
        if queue.name == node.name:
            own.append(occupant.workload)
        elif not queue.within_nominal(cells):
            borrowers.append(occupant.workload)
    return own, borrowers
