"""What an hour of useful work costs on nodes that may go: beside a simulation, and as an order of flavors."""

from __future__ import annotations

from random import Random

import pytest

from windlass.model.flavor_offer import MICRO, FlavorOffer, read_offer
from windlass.model.leaving import AskTerms
from windlass.model.queue import FlavorQuotas, ResourceFlavor
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.flavor_costs import Risk, by_expected_cost, cost_note, expected_micro_price, risk_of

HOUR, DAY = 3600, 86_400
SPOT = FlavorOffer(1_300_000, 2 * MICRO, 120)


def simulated_factor(per_day: float, risk: Risk, seed: int = 1, stretches: int = 4000) -> float:
    """Time that the work takes with interruptions at random moments, in terms of its own length."""
    rng, rate, passed = Random(seed), per_day * risk.nodes / DAY, 0.0
    for _ in range(stretches):
        pause = 0.0
        while (until := rng.expovariate(rate)) < pause + risk.segment_seconds:
            passed += until
            pause = float(risk.restart_seconds)
        passed += pause + risk.segment_seconds
    return passed / (stretches * risk.segment_seconds)


@pytest.mark.parametrize("per_day", [0.5, 2.0, 6.0])
@pytest.mark.parametrize(("nodes", "segment", "restart"), [(1, HOUR, 60), (1, 3 * HOUR, 120), (4, HOUR // 2, 60)])
def test_the_expected_price_is_that_of_a_simulation(per_day: float, nodes: int, segment: int, restart: int) -> None:
    risk = Risk(nodes, segment, restart)
    offer = FlavorOffer(MICRO, round(per_day * MICRO))
    expected = expected_micro_price(offer, risk) / MICRO
    assert expected == pytest.approx(simulated_factor(per_day, risk), rel=0.03)


def test_work_that_answers_within_the_notice_does_nothing_again() -> None:
    asked = Risk(1, 48 * HOUR, 120, grace_seconds=90)
    assert expected_micro_price(SPOT, asked) == pytest.approx(1.3 * (1 + 2 * 210 / DAY) * MICRO, abs=1)
    too_slow = Risk(1, 48 * HOUR, 120, grace_seconds=180)
    assert expected_micro_price(SPOT, too_slow) > 3 * expected_micro_price(SPOT, asked)


def test_a_gang_is_interrupted_with_any_of_its_nodes() -> None:
    prices = [expected_micro_price(SPOT, Risk(nodes, HOUR, 60)) for nodes in (1, 2, 8)]
    assert prices == sorted(prices)
    assert prices[-1] - SPOT.micro_price > 7 * (prices[0] - SPOT.micro_price)


@pytest.mark.parametrize(
    ("declared", "segment"),
    [
        ({"checkpoint_seconds": 1800, "max_run_seconds": 9000}, 1800),
        ({"max_run_seconds": 9000}, 9000),
        ({}, 7 * DAY),
    ],
)
def test_what_is_lost_is_what_is_declared(declared: dict[str, int], segment: int) -> None:
    workload = Workload("a/w", "Job", (), restart_seconds=30, ask_terms=AskTerms(20), **declared)
    assert risk_of(workload, QueueConfig()) == Risk(1, segment, 30, 20)


def test_the_cheapest_first_and_what_has_no_price_last() -> None:
    flavors = {
        "reserved": ResourceFlavor("reserved"),
        "on-demand": ResourceFlavor("on-demand", offer=FlavorOffer(3_900_000)),
        "spot": ResourceFlavor("spot", offer=SPOT),
        "other": ResourceFlavor("other"),
    }
    quotas = [FlavorQuotas(name, {}) for name in flavors]
    checkpoints, none = Risk(1, HOUR, 60), Risk(1, 48 * HOUR, 60)
    assert [quota.flavor for quota in by_expected_cost(quotas, flavors, checkpoints)] == [
        *("spot", "on-demand", "reserved", "other")
    ]
    assert next(quota.flavor for quota in by_expected_cost(quotas, flavors, none)) == "on-demand"
    note = "expected price of a GPU-hour of useful work: spot 1.35 (1.30 without interruptions); on-demand 3.90"
    assert cost_note(["spot", "spot"], ["on-demand", "other"], flavors, checkpoints) == note
    assert cost_note(["other"], ["spot"], flavors, checkpoints) == ""


@pytest.mark.parametrize(
    ("annotations", "offer"),
    [
        ({}, None),
        ({"gpu-hour-price": "cheap"}, None),
        ({"gpu-hour-price": "-1"}, None),
        ({"gpu-hour-price": "1.30"}, FlavorOffer(1_300_000)),
        (
            {"gpu-hour-price": "1", "interruptions-per-day": "0.5", "interruption-notice": "2m"},
            FlavorOffer(MICRO, MICRO // 2, 120),
        ),
        ({"gpu-hour-price": "1", "interruptions-per-day": "often", "interruption-notice": "soon"}, FlavorOffer(MICRO)),
    ],
)
def test_what_a_flavor_says_of_itself(annotations: dict[str, str], offer: FlavorOffer | None) -> None:
    assert read_offer({f"windlass.dev/{name}": text for name, text in annotations.items()}) == offer
