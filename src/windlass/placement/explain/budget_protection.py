"""PodDisruptionBudgets that protect running pods from preemption by a waiting workload.

`advisor` asks when it explains a hold. The search for victims respects budgets, so the API server never sees, and never
refuses, such an eviction; without this, the hold would not name the budget.
"""

from __future__ import annotations

import numpy as np

from windlass.model.refusal import EVICTION, Refusal
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.explain.preemption_obstacles import quota_victims
from windlass.placement.preemption.candidates import CandidateFinder, Preemptor, permit_all
from windlass.placement.preemption.context import Preemption, preemption_policy

MAX_BUDGETS = 3
MESSAGE = "it allows no more disruptions now"


def make_preemption(state: PostDecisionState) -> Preemption | None:
    """For the state after the decision; None where there are no budgets."""
    if not state.overlay.snapshot.budgets:
        return None
    preemption = Preemption(state.overlay, state.queues, state.now)
    preemption.record_decisions((), ())
    return preemption


def protecting_budgets(held: HeldWorkload, preemption: Preemption | None) -> tuple[Refusal, ...]:
    """One refusal for each budget without which some node, or its quota, would have room; empty where budgets aren't
    the cause."""
    if preemption is None:
        return ()
    if held.lacks_quota:
        return _budgets_of_quota_victims(held, preemption)
    priority = preemption.priority_of(held.piece)
    classes = held.state.overlay.snapshot.queue_system.non_preempting_classes
    found: dict[str, Refusal] = {}
    for pod_set in held.pod_sets:
        if not preemption.may_preempt(priority, preemption_policy(pod_set.pod, classes)):
            continue
        row = held.state.overlay.table.row(pod_set.shape, held.state.overlay.snapshot, pod_set.pod)
        preemptor = Preemptor(pod_set.pod, pod_set.shape, row, priority)
        for pod, budget in _protected_pods(preemption, preemptor):
            found.setdefault(budget, Refusal(EVICTION, pod, until=0, budget=budget, message=MESSAGE))
    return tuple(found.values())[:MAX_BUDGETS]


def _budgets_of_quota_victims(held: HeldWorkload, preemption: Preemption) -> tuple[Refusal, ...]:
    found: dict[str, Refusal] = {}
    for workload in quota_victims(held):
        pods = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        if pods and (budget := preemption.budgets.budget_against(pods)):
            found.setdefault(budget, Refusal(EVICTION, pods[0], until=0, budget=budget, message=MESSAGE))
    return tuple(found.values())[:MAX_BUDGETS]


def _protected_pods(preemption: Preemption, preemptor: Preemptor) -> list[tuple[str, str]]:
    """(pod, budget) where evicting the pod would make room, and evicting unprotected pods would not."""
    if preemption.candidate_finder.may_help(preemptor):
        return []
    freed = preemption.freed_resources
    potential = CandidateFinder(preemption.overlay, freed, permit_all).potential_nodes(preemptor)
    entries = potential.entries & potential.feasible[freed.entry_node]
    units = [freed.units[number] for number in np.unique(freed.entry_unit[entries]).tolist()]
    return [(unit.pods[0], name) for unit in units if (name := preemption.budgets.budget_against(unit.pods))]
