"""Takes repairs out again, one at a time, to see whether worlds find the faults. Called by `make worlds-unrepaired`.

Each entry changes the production code in this process; a world that has a problem which it doesn't have with the repair
has found the fault. Prints how many worlds that took.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import re
import sys
import time
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

from tests.worlds.play import play_virtually
from tests.worlds.themes import seeds_of
from tests.worlds.workers import in_order, world_pool

from windlass.apply.assumed_status import AssumedStatuses
from windlass.apply.owner_starts import OwnerStarter
from windlass.apply.owner_workloads import OwnerWorkloadReconciler
from windlass.apply.workload_sizes import WorkloadSizeWriter
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.inter_pod import InterPodRules
from windlass.placement.stop_conditions import StopConditions
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.start_planner import StartPlanner
from windlass.queueing.flavor_assigner import _FlavorSearch
from windlass.queueing.outcome import MAXIMUM_EXECUTION_TIME_EXCEEDED
from windlass.queueing.placement_interface import PlacementResult
from windlass.scheduler.cache import SchedulerCache

Patch = contextlib.AbstractContextManager[object]


def sent_admissions_are_not_counted() -> Patch:
    """Until the watch shows them, so that what they hold is given away again."""

    def assume_status(self: SchedulerCache, known, assumed, *, is_admission):  # type: ignore[no-untyped-def]
        return AssumedStatuses().assume(known, assumed, is_admission=is_admission)

    return mock.patch.multiple(
        SchedulerCache,
        assume_status=assume_status,
        finish_status=lambda self, sent, version: None,
        forget_status=lambda self, sent: None,
        is_unconfirmed=lambda self, sent: False,
    )


def every_plan_holds_everything() -> Patch:
    """That overlaps with it in time, wherever it is, and whether it delays it or not."""
    plan = StartPlanner.plan

    def plan_and_guard(self: StartPlanner, outcomes):  # type: ignore[no-untyped-def]
        return plan(self, outcomes) or (bool(self._plans) and not self._guarded)

    stack = contextlib.ExitStack()
    refused = PlacementResult(ok=False)
    stack.enter_context(mock.patch.object(Occupancy, "place_without_conflict", return_value=refused))
    stack.enter_context(mock.patch.object(StartPlanner, "plan", plan_and_guard))
    return stack


def members_of_one_decision_do_not_count() -> Patch:
    """Rules between pods are asked only of pods that are bound."""
    change = InterPodRules._change

    def change_if_bound(self: InterPodRules, pod, row, by):  # type: ignore[no-untyped-def]
        if pod.spec.node_name:
            change(self, pod, row, by)

    return mock.patch.object(InterPodRules, "_change", change_if_bound)


def victims_are_not_chosen_by_place() -> Patch:
    """But in the order of candidates, until it fits."""
    stack = contextlib.ExitStack()
    module = "windlass.queueing.classical_preemption"
    stack.enter_context(mock.patch(f"{module}._find_cheapest", lambda request, candidates, modes, targets: targets))
    stack.enter_context(mock.patch(f"{module}.find_sparing", return_value=[]))
    return stack


def workloads_are_created_again() -> Patch:
    """As long as the watch doesn't show them."""
    create = OwnerWorkloadReconciler._create

    async def create_and_forget(self: OwnerWorkloadReconciler, key, obj):  # type: ignore[no-untyped-def]
        await create(self, key, obj)
        self._created_at.clear()

    return mock.patch.object(OwnerWorkloadReconciler, "_create", create_and_forget)


def a_lost_member_does_not_preempt() -> Patch:
    """Neither by priority nor by the rules of its queue, which allow what is in no queue, too."""
    module = "windlass.placement.late_pods"
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch(f"{module}.preempt_by_priority", return_value=None))
    stack.enter_context(mock.patch(f"{module}.preempt_by_queue_rules", return_value=None))
    return stack


def a_lost_member_preempts_nothing_queued() -> Patch:
    """Only what is in no queue."""
    return mock.patch("windlass.placement.late_pods.preempt_by_queue_rules", return_value=None)


def annotations_of_owners_vanish() -> Patch:
    """Beside a Workload, only pods are asked whether they may be preempted."""
    return mock.patch("windlass.cluster.workloads.build_workload.is_evictable", return_value=True)


def unlabelled_nodes_have_sixteen_gpus_at_most() -> Patch:
    return mock.patch("windlass.model.device._advertised", return_value=0)


def execution_times_are_not_enforced() -> Patch:
    reason = StopConditions.kueue_reason

    def other_reason(self: StopConditions, workload: Workload) -> str:
        found = reason(self, workload)
        return "" if found == MAXIMUM_EXECUTION_TIME_EXCEEDED else found

    return mock.patch.object(StopConditions, "kueue_reason", other_reason)


def pods_need_not_be_ready() -> Patch:
    """`waitForPodsReady` is read and ignored."""
    reason = StopConditions.kueue_reason

    def other_reason(self: StopConditions, workload: Workload) -> str:
        found = reason(self, workload)
        return found if found == MAXIMUM_EXECUTION_TIME_EXCEEDED else ""

    return mock.patch.object(StopConditions, "kueue_reason", other_reason)


def declared_durations_do_not_end() -> Patch:
    return mock.patch.object(StopConditions, "duration_exceeded_reason", return_value="")


def larger_jobs_run_without_quota() -> Patch:
    return mock.patch("windlass.placement.stop_conditions.outgrown_reason", return_value="")


def smaller_jobs_keep_their_quota() -> Patch:
    return mock.patch.object(WorkloadSizeWriter, "execute", return_value=None)


def partial_admission_changes_no_size() -> Patch:
    return mock.patch("windlass.apply.owner_templates._set_parallelism")


def a_job_that_lost_its_gpu_idles() -> Patch:
    return mock.patch.object(StopConditions, "below_minimum_reason", return_value="")


def lost_gpus_are_not_named() -> Patch:
    return mock.patch("windlass.placement.late_pods.find_unhealthy_gpus", return_value=())


def stuck_victims_are_waited_for() -> Patch:
    """For as long as they are Terminating."""
    stack = contextlib.ExitStack()
    for kind in (Pod, Workload):
        stack.enter_context(mock.patch.object(kind, "is_stuck", return_value=False))
    return stack


def large_gangs_of_two_shapes_are_placed_greedily() -> Patch:
    return mock.patch("windlass.placement.combination_search._place_by_patterns", return_value=None)


def flavors_change_no_pods() -> Patch:
    """Neither their node labels nor their tolerations are added."""
    return mock.patch.object(OwnerStarter, "flavor_specs", return_value=[])


def flavors_may_contradict() -> Patch:
    """A workload gets flavors of which no node has the labels of all."""
    return mock.patch.object(_FlavorSearch, "_contradiction", return_value="")


class Repair(NamedTuple):
    item: str
    """Which fault it mended: the number in the list of faults, and what it is about."""
    take_out: Callable[[], Patch]
    theme: str
    """Of the worlds that are played without it."""
    sign: str
    """What judges say of the fault, as a pattern: other problems don't count."""

    @property
    def name(self) -> str:
        return self.take_out.__name__


REPAIRS = (
    Repair("1", sent_admissions_are_not_counted, "overload", "pushes quota over|has no room|not free"),
    Repair("2", every_plan_holds_everything, "starts", "although it fits"),
    Repair("3", members_of_one_decision_do_not_count, "rules", "rules forbid"),
    Repair("4", victims_are_not_chosen_by_place, "owners", "borrowers on"),
    Repair("5", workloads_are_created_again, "arrivals", "were created again"),
    Repair("6", a_lost_member_does_not_preempt, "lost members", "in place of a lost pod|member that was lost"),
    Repair("6", a_lost_member_preempts_nothing_queued, "losses", "member that was lost"),
    Repair("7", annotations_of_owners_vanish, "borrowers", "must not be preempted"),
    Repair("8", execution_times_are_not_enforced, "limits", "maximum execution time"),
    Repair("8", pods_need_not_be_ready, "stuck", "pods to be ready"),
    Repair("8", declared_durations_do_not_end, "limits", "declared duration"),
    Repair("9", unlabelled_nodes_have_sixteen_gpus_at_most, "replicas", "fits on|rejects|has no"),
    Repair("9", large_gangs_of_two_shapes_are_placed_greedily, "gangs", "although it fits"),
    Repair("9", stuck_victims_are_waited_for, "stuck", "should have ended"),
    Repair("9", flavors_may_contradict, "flavors", "which is another's|runs partly|although"),
    Repair("9", flavors_change_no_pods, "flavors", "without the node labels"),
    Repair("10", larger_jobs_run_without_quota, "sizes", "with quota for"),
    Repair("10", smaller_jobs_keep_their_quota, "sizes", "holds quota for"),
    Repair("10", partial_admission_changes_no_size, "sizes", "with quota for"),
    Repair("10", a_job_that_lost_its_gpu_idles, "lost members", "runs partly"),
    Repair("10", lost_gpus_are_not_named, "lost members", "are not named"),
)


def find_fault(number: int, seed: int) -> str:
    """What is wrong in this world without the repair, and right with it; empty if nothing is."""
    sign = REPAIRS[number].sign
    with REPAIRS[number].take_out():
        problems = [found for found in play_virtually(seed, sought=sign).problems if re.search(sign, found)]
    if not problems:
        return ""
    known = {_kind(problem) for problem in play_virtually(seed).problems}
    new = [problem for problem in problems if _kind(problem) not in known]
    return f"seed {seed}: {new[0]}" if new else ""


def worlds_until_found(number: int, first: int, most: int, jobs: int) -> tuple[int, str]:
    """How many worlds it took, and the problem; (most, "") if none of so many has one."""
    seeds = [*itertools.islice(seeds_of(REPAIRS[number].theme, first), most)]
    with world_pool(jobs) as pool:
        for count, found in enumerate(in_order(pool, functools.partial(find_fault, number), seeds), 1):
            print(".", end="", file=sys.stderr, flush=True)
            if found:
                return count, found
    return most, ""


def _kind(problem: str) -> str:
    """The problem without its time, names and numbers."""
    return "".join(letter for letter in problem.partition(": ")[2] if not letter.isdigit())[:60]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make worlds-unrepaired", description=__doc__)
    parser.add_argument("--most", type=int, default=60, help="worlds for one fault")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds side by side")
    parser.add_argument("names", nargs="*", help="repairs to take out; all by default")
    arguments = parser.parse_args()
    print("| item | without the repair | worlds | what is wrong then |\n| ---: | --- | ---: | --- |")
    missed = 0
    for number, repair in enumerate(REPAIRS):
        if not arguments.names or repair.name in arguments.names:
            worlds, found = worlds_until_found(number, arguments.seed, arguments.most, arguments.jobs)
            missed += not found
            words = repair.name.replace("_", " ")
            print(f"| {repair.item} | {words} | {worlds} | {found[:160] or 'not found'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
