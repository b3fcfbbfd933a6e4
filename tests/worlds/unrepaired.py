"""Takes repairs out again, one at a time, to see whether worlds find the faults. Called by `make worlds-unrepaired`.

Each entry changes the production code in this process; a world that has a problem which it doesn't have with the repair
has found the fault. Prints how many worlds that took.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from unittest import mock

from tests.worlds.draw_world import draw_world
from tests.worlds.play import play_virtually

from windlass.apply.assumed_status import AssumedStatuses
from windlass.apply.owner_workloads import OwnerWorkloadReconciler
from windlass.placement.inter_pod import InterPodRules
from windlass.placement.timeplan.guard import PlannedStartGuard
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
    """Planned starts hold what is before them in order, too."""

    def plans_to_respect(self: PlannedStartGuard, workload, choices):  # type: ignore[no-untyped-def]
        return [planned for planned in self._planned_starts if not planned.is_for(workload)]

    return mock.patch.object(PlannedStartGuard, "_plans_to_respect", plans_to_respect)


def members_of_one_decision_do_not_count() -> Patch:
    """Rules between pods are asked only of pods that are bound."""
    change = InterPodRules._change

    def change_if_bound(self: InterPodRules, pod, row, by):  # type: ignore[no-untyped-def]
        if pod.spec.node_name:
            change(self, pod, row, by)

    return mock.patch.object(InterPodRules, "_change", change_if_bound)


def victims_are_not_chosen_by_place() -> Patch:
    return mock.patch(
        "windlass.queueing.classical_preemption._find_cheapest", lambda request, candidates, modes, targets: targets
    )


def workloads_are_created_again() -> Patch:
    """As long as the watch doesn't show them."""
    create = OwnerWorkloadReconciler._create

    async def create_and_forget(self: OwnerWorkloadReconciler, key, obj):  # type: ignore[no-untyped-def]
        await create(self, key, obj)
        self._created_at.clear()

    return mock.patch.object(OwnerWorkloadReconciler, "_create", create_and_forget)


def a_lost_member_does_not_preempt() -> Patch:
    return mock.patch("windlass.placement.late_pods.preempt_by_priority", return_value=None)


def annotations_of_owners_vanish() -> Patch:
    """Beside a Workload, only pods are asked whether they may be preempted."""
    return mock.patch("windlass.cluster.workloads.build_workload.is_evictable", return_value=True)


def unlabelled_nodes_have_sixteen_gpus_at_most() -> Patch:
    return mock.patch("windlass.model.device._advertised", return_value=0)


REPAIRS: dict[str, Callable[[], Patch]] = {
    each.__name__: each
    for each in (
        sent_admissions_are_not_counted,
        every_plan_holds_everything,
        members_of_one_decision_do_not_count,
        victims_are_not_chosen_by_place,
        workloads_are_created_again,
        a_lost_member_does_not_preempt,
        annotations_of_owners_vanish,
        unlabelled_nodes_have_sixteen_gpus_at_most,
    )
}


THEMES = {
    "sent_admissions_are_not_counted": "slow",
    "members_of_one_decision_do_not_count": "rules",
    "victims_are_not_chosen_by_place": "borrowers",
    "workloads_are_created_again": "slow",
    "a_lost_member_does_not_preempt": "losses",
    "annotations_of_owners_vanish": "borrowers",
}
"""The theme of the worlds that are played without a repair; any theme for the others."""


def seeds_of(name: str, first: int) -> Iterator[int]:
    return (seed for seed in range(first, 1 << 62) if draw_world(seed).theme.name == THEMES.get(name, "anything"))


def worlds_until_found(name: str, seeds: Iterator[int], most: int) -> tuple[int, str]:
    """How many worlds it took, and the problem; (most, "") if none of so many has one."""
    for number in range(1, most + 1):
        seed = next(seeds)
        with REPAIRS[name]():
            problems = play_virtually(seed).problems
        print(".", end="", file=sys.stderr, flush=True)
        if problems:
            known = {_kind(problem) for problem in play_virtually(seed).problems}
            new = [problem for problem in problems if _kind(problem) not in known]
            if new:
                return number, f"seed {seed}: {new[0]}"
    return most, ""


def _kind(problem: str) -> str:
    """The problem without its time, names and numbers."""
    return "".join(letter for letter in problem.partition(": ")[2] if not letter.isdigit())[:60]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make worlds-unrepaired", description=__doc__)
    parser.add_argument("--most", type=int, default=200, help="worlds for one fault")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("names", nargs="*", default=[*REPAIRS])
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| without the repair | worlds | what is wrong then |\n| --- | ---: | --- |")
    missed = 0
    for name in arguments.names:
        worlds, found = worlds_until_found(name, seeds_of(name, arguments.seed), arguments.most)
        missed += not found
        print(f"| {name.replace('_', ' ')} | {worlds} | {found[:160] or 'not found'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
