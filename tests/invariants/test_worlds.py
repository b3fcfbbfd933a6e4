"""Whatever happens to a cluster, no decision breaks a promise: worlds that live through thousands of steps.

Every step checks: nothing is given twice or over-committed, no gang starts below its minimum and none stays below it
longer than its grace, no queue or cohort is pushed over its quota, every eviction is for somebody who comes in its
place, and the same objects in another order give the same plan without a memo. Worlds that are left alone come to rest.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.invariants import draws
from tests.invariants.steps import come_to_rest, step
from tests.invariants.world import World

CHANCE = st.randoms(use_true_random=False)
THOROUGH = settings.default is not None and settings.default.max_examples > 100
WORLDS, STEPS = (200, 100) if THOROUGH else (32, 60)


class LivingWorld(RuleBasedStateMachine):
    """Each rule is something that happens; after each of them the engine decides."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.rng = Random(0)

    @initialize(rng=CHANCE)
    def begin(self, rng: Random) -> None:
        self.world = draws.make_world(rng)

    @property
    def alive(self) -> World:
        assert self.world is not None
        return self.world

    @precondition(lambda self: len(self.alive.everything()) < draws.MOST_AT_ONCE)
    @rule(event=st.sampled_from([draws.submit_pod, draws.submit_gang, draws.submit_workload]), rng=CHANCE)
    def submit(self, event: draws.Event, rng: Random) -> None:
        event(self.alive, rng)

    @rule(
        event=st.sampled_from([event for _, event in draws.EVENTS if not event.__name__.startswith("submit")]),
        rng=CHANCE,
    )
    def happen(self, event: draws.Event, rng: Random) -> None:
        event(self.alive, rng)

    @invariant()
    def decide(self) -> None:
        if self.world is not None:
            step(self.world, self.rng)

    def teardown(self) -> None:
        if self.world is not None:
            come_to_rest(self.world, self.rng)


TestLivingWorld = LivingWorld.TestCase
TestLivingWorld.settings = settings(max_examples=500 if THOROUGH else 15, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_long_lives(seed: int) -> None:
    rng = Random(seed)
    world = draws.make_world(rng)
    for turn in range(STEPS):
        draws.happen(world, rng)
        step(world, rng, again=turn % 3 == 0)
    come_to_rest(world, rng)
