"""What was evicted for a workload is its own: it waits for what is leaving, and lower priorities don't go before it."""

from __future__ import annotations

import pytest
from tests.queueing.builders import admitted, cell, decide, queue, running, system, waiting

from windlass.model.queue import PreemptionPolicy
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Evicted, Held, Outcome

RECLAIM = PreemptionPolicy(reclaim_within_cohort="Any", within_cluster_queue="LowerPriority")
BORROW = PreemptionPolicy(
    reclaim_within_cohort="Any", within_cluster_queue="LowerPriority", borrow_within_cohort="LowerPriority"
)
NONE = PreemptionPolicy()


def evicted(outcomes: list[Outcome]) -> dict[str, str]:
    return {found.workload: found.preemptor for found in outcomes if isinstance(found, Evicted)}


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("leaving", ["own", "other"])
@pytest.mark.parametrize("more", [{}, {"preemption_policy": "Never"}], ids=["", "preempts nothing"])
def test_it_waits_for_what_is_leaving_whatever_that_is(fair_sharing: bool, leaving: str, more: dict[str, str]) -> None:
    """Neither the priority nor the policy of a queue matters any more: it is going in any case."""
    queues = system([queue("own", cell(4), cohort="all"), queue("other", cell(4), cohort="all")])
    going = running("going", leaving, 4, priority=1000, evicting=True)
    stays = running("stays", "own" if leaving == "other" else "other", 4, priority=1000)
    claimant = waiting("claimant", "own", 4, nominated=True, **more)
    config = QueueConfig(fair_sharing=fair_sharing)
    outcomes = decide(queues, [going, stays, claimant], config)
    assert admitted(outcomes)["claimant"].after == ("team/going",)
    assert evicted(outcomes) == {}
    newcomer = waiting("newcomer", "own", 4)
    assert "newcomer" not in admitted(decide(queues, [going, stays, newcomer], config)), "nothing was evicted for it"


def test_it_does_not_wait_for_what_is_stuck_or_of_another_tree() -> None:
    queues = system([queue("own", cell(4), cohort="all"), queue("else", cell(4))])
    stuck = running("stuck", "own", 4, evicting=True, ends_by=1)
    other = running("other", "else", 4, evicting=True)
    assert admitted(decide(queues, [stuck, other, waiting("claimant", "own", 4, nominated=True)])) == {}


def test_what_leaves_for_one_is_not_taken_by_an_owner_that_waits_for_another() -> None:
    """`borrower` waits for `high`, an equal in its own queue, while what was evicted for it is taken by the owner's."""
    queues = system(
        [
            queue("owner", cell(4), cohort="all", preemption=BORROW),
            queue("pool", cell(6), cohort="all"),
            queue("borrower", cell(0), cohort="all", preemption=BORROW),
        ]
    )
    work = [
        running("base", "owner", 3, priority=100),
        running("pooled", "pool", 2, priority=100),
        running("high", "borrower", 2, priority=1000, evicting=True),
        waiting("owned", "owner", 1, priority=100, nominated=True),
        waiting("claimant", "borrower", 3, priority=1000, nominated=True),
    ]
    found = admitted(decide(queues, work))
    assert found["owned"].after == ()
    assert found["claimant"].after == ("team/high",)


def test_the_first_of_a_queue_takes_what_an_eviction_by_others_leaves_within_its_quota() -> None:
    """The victim's queue is back within its quota, so that its head may reclaim what it could only borrow before."""
    queues = system(
        [
            queue("owner", cell(4), cohort="all", preemption=BORROW),
            queue("borrower", cell(0), cohort="all", preemption=BORROW),
            queue("pool", cell(3), cohort="all"),
        ]
    )
    work = [
        running("base", "owner", 3, priority=100),
        running("extra", "owner", 3, priority=100),
        running("lent", "borrower", 1, priority=1000),
        waiting("head", "owner", 1, priority=90, created=1),
        waiting("low", "owner", 1, priority=0, created=2),
        waiting("claimant", "borrower", 3, priority=1000),
    ]
    outcomes = decide(queues, work)
    assert "team/claimant" in {evicted(outcomes).get(name) for name in ("team/base", "team/extra")}
    held = {found.workload for found in outcomes if isinstance(found, Held)}
    assert "head" in admitted(outcomes)
    assert "team/low" in held
