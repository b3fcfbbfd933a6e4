"""Takes repairs of the control loop out again, one at a time, to see whether seeds find the faults.

Called by `make loop-unrepaired`. Each entry changes the production code in this process; a seed that has a problem of
the fault's kind which it does not have with the repair has found it. Prints how many seeds that took.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from tests.loop.play import play_seed
from tests.loop.strange_pods import NAMESPACE
from tests.worlds.workers import in_order, world_pool

from windlass.isolation import IsolatedDecision, IsolatingEngine
from windlass.kube.informer import Informer, _ListMeta
from windlass.kube.informers import Informers
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector
from windlass.scheduler.cache import SchedulerCache

Patch = contextlib.AbstractContextManager[object]


def no_change() -> Patch:
    return contextlib.nullcontext()


def writes_outlive_the_lease() -> Patch:
    """A bind that is held in the network lands after the next leader has given the node away."""
    return mock.patch.object(LeaderElector, "seconds_left", math.inf)


def a_leader_leads_for_longer_than_its_lease() -> Patch:
    return mock.patch.object(LeaderElectionConfig, "renew_seconds", 60.0)


def a_malformed_answer_is_an_internal_error() -> Patch:
    def decode(body: bytes, kind: Any, where: str) -> Any:
        return msgspec.json.decode(body, type=kind)

    stack = contextlib.ExitStack()
    for module in ("client", "leader_election"):
        stack.enter_context(mock.patch(f"windlass.kube.{module}.decode_answer", decode))
    return stack


class _LenientPage(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta("1")
    items: list[msgspec.Raw] | None = None


def anything_is_an_empty_list() -> Patch:
    """`{}` in place of a list means that everything was deleted."""
    return mock.patch("windlass.kube.informer._Page", _LenientPage)


def a_new_leader_decides_on_what_it_knew() -> Patch:
    async def relist(self: Informers, *kinds: str) -> None: ...

    return mock.patch.object(Informers, "relist", relist)


def sent_binds_are_not_counted() -> Patch:
    """Until the watch shows them."""
    return mock.patch.object(SchedulerCache, "assume", return_value=None)


def a_watch_that_is_too_old_goes_on() -> Patch:
    """410 is one more failure, after which the same watch is tried again."""
    handle = Informer._handle_event

    def ignore_errors(self: Informer, event: Any) -> None:
        if event.type != "ERROR":
            handle(self, event)

    return mock.patch.object(Informer, "_handle_event", ignore_errors)


def a_bug_in_deciding_on_strange_pods() -> Patch:
    """Planted, so that what isolates it can be taken out."""
    from windlass import isolation

    decide = isolation.decide_without_explanations

    def decide_unless_strange(snapshot: Any, *arguments: Any) -> Any:
        pods = snapshot.pods
        if any(pods.keys[row].startswith(f"{NAMESPACE}/") for row in pods.pending()):
            raise RuntimeError("planted")
        return decide(snapshot, *arguments)

    return mock.patch.object(isolation, "decide_without_explanations", decide_unless_strange)


def a_bug_in_one_pods_decision_is_everybodys() -> Patch:
    """The critical finding: nothing is decided for anybody as long as such a pod exists."""
    stack = contextlib.ExitStack()
    stack.enter_context(a_bug_in_deciding_on_strange_pods())

    def decide(self: IsolatingEngine, snapshot: Any, now: float) -> IsolatedDecision:
        return self._decide(snapshot, now)

    stack.enter_context(mock.patch.object(IsolatingEngine, "decide_without_explanations", decide))
    return stack


class Repair(NamedTuple):
    item: str
    """Which finding it mended."""
    take_out: Callable[[], Patch]
    sign: str
    """What judges say of the fault, as a pattern."""
    beside: Callable[[], Patch] = no_change
    """What is changed in the comparison with the repair, too."""

    @property
    def name(self) -> str:
        return self.take_out.__name__


REPAIRS = (
    Repair(
        "critical",
        a_bug_in_one_pods_decision_is_everybodys,
        "decisions in a row have failed|although it fits|failed_decisions",
        a_bug_in_deciding_on_strange_pods,
    ),
    Repair("medium 10", writes_outlive_the_lease, "has the lease"),
    Repair("medium 10", a_leader_leads_for_longer_than_its_lease, "has the lease"),
    Repair("low", a_malformed_answer_is_an_internal_error, "a bug|ended by itself|not ready"),
    Repair("low", anything_is_an_empty_list, "."),
    Repair("loop", a_new_leader_decides_on_what_it_knew, "pushes quota|has no room|not free|rejects"),
    Repair("loop", sent_binds_are_not_counted, "pushes quota|has no room|not free|rejects"),
    Repair("loop", a_watch_that_is_too_old_goes_on, "."),
)


def find_fault(number: int, seed: int) -> str:
    """What is wrong with this seed without the repair, and right with it; empty if nothing is."""
    repair = REPAIRS[number]
    with repair.take_out():
        problems = [found for found in play_seed(seed).problems if re.search(repair.sign, found)]
    if not problems:
        return ""
    with repair.beside():
        known = {_kind(problem) for problem in play_seed(seed).problems}
    new = [problem for problem in problems if _kind(problem) not in known]
    return f"seed {seed}: {new[0]}" if new else ""


def _kind(problem: str) -> str:
    """The problem without its time, names and numbers."""
    return "".join(letter for letter in problem.partition(": ")[2] if not letter.isdigit())[:60]


def seeds_until_found(number: int, first: int, most: int, jobs: int) -> tuple[int, str]:
    """How many seeds it took, and the problem; (most, "") if none of so many has one."""
    with world_pool(jobs) as pool:
        found = in_order(pool, functools.partial(find_fault, number), range(first, first + most))
        for count, problem in enumerate(found, 1):
            if problem:
                return count, problem
    return most, ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make loop-unrepaired", description=__doc__)
    parser.add_argument("--most", type=int, default=60, help="seeds for one fault")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", help="repairs to take out; all by default")
    arguments = parser.parse_args()
    print("| finding | without the repair | seeds | what is wrong then |\n| --- | --- | ---: | --- |")
    missed = 0
    for number, repair in enumerate(REPAIRS):
        if not arguments.names or repair.name in arguments.names:
            seeds, found = seeds_until_found(number, arguments.seed, arguments.most, arguments.jobs)
            missed += not found
            words = repair.name.replace("_", " ")
            print(f"| {repair.item} | {words} | {seeds} | {found[:160] or 'not found'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
