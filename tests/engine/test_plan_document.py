"""What `windlass plan schedule -o json` prints holds the whole plan: written, and read back, it is the same value.

Plans of all scenarios, of worlds that live through many steps, and of the command itself. A document also survives
YAML, and its decisions stand in an order in which they can be carried out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from tests.engine.plain_objects import node, pod
from tests.invariants import draws
from tests.invariants.crowds import NOW, crowd
from tests.invariants.world import World

from windlass.cli.main import cli
from windlass.cli.plan_document import plan_document
from windlass.engine import decide
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Admit, AdmittedPodSet, Bind, DeviceGrant, Evict, Hold, Reserve
from windlass.model.decision_document import decision_document, parse_decision, parse_plan
from windlass.model.errors import InputError
from windlass.model.obstacle import Obstacle
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.model.verdict import (
    Change,
    Limit,
    MoveOffer,
    NearMiss,
    ReasonCount,
    Relief,
    Verdict,
)
from windlass.planner import plan_objects
from windlass.simulate import driver
from windlass.simulate.scenario import load_scenarios, play

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "docs" / "scenarios").glob("*.yaml"))
ORDER = ("withdrawAsk", "ask", "evict", "admit", "bind", "reserve", "hold")


def round_trip(plan: Plan) -> Plan:
    return parse_plan(json.loads(json.dumps(plan_document(plan, NOW))))


def check(plan: Plan) -> None:
    assert round_trip(plan) == plan
    kinds = [decision["decision"] for decision in plan_document(plan, NOW)["decisions"]]
    assert kinds == sorted(kinds, key=ORDER.index)


def test_plans_of_all_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def noting(*arguments: Any) -> Plan:
        plans.append(decide(*arguments))
        return plans[-1]

    monkeypatch.setattr(driver, "decide", noting)
    for file in SCENARIOS:
        for scenario in load_scenarios(file):
            play(scenario)
    for plan in plans:
        check(plan)
    met = {type(decision).__name__ for plan in plans for decision in plan.decisions}
    assert met == {"Admit", "Ask", "Bind", "Evict", "Hold", "Reserve", "WithdrawAsk"}, "every kind was put to the test"


def worlds() -> Iterator[World]:
    """Some tens of steps in the life of small clusters."""
    for seed in range(8):
        rng = Random(seed)
        world = draws.make_world(rng)
        for _ in range(30):
            draws.happen(world, rng)
            yield world


def test_plans_of_living_worlds() -> None:
    for world in worlds():
        plan = world.plan()
        check(plan)
        world.carry_out(plan)


@pytest.mark.parametrize("seed", range(20))
def test_plans_of_crowds(seed: int) -> None:
    plan, _ = plan_objects([decode_object(obj) for obj in crowd(Random(seed))], Settings(), NOW)
    check(plan)


FULL = Verdict(
    code="GPU_FULL",
    nodes=4,
    counts=(ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 3),),
    nearest=(NearMiss("n-0", ("Insufficient cpu",), {"cpu": "2"}, {"cpu": "1"}),),
    detail="one of its claims waits",
    planned_start=1_800_000_000,
    ahead=3,
    outlook="planned to start when a ends",
    is_infeasible=True,
    limits=(Limit("quota", "over quota", "q", "f", "rack", "cpu", "2", "1", 3, "default/a"),),
    relief=Relief(2, {"q": 2}, ("default/a", "default/b"), 1_800_000_060, "declared limits"),
    changes=(Change("gpus", "with 4 GPUs", "main", "8", "4", 500, "with fewer GPUs"),),
    moves=(MoveOffer("default/c", "n-0", "n-1", 42),),
    remedy="add nodes",
    is_explained=True,
    obstacles=(Obstacle("stuck", "pod ns/p on node n1", "a pod", ("ns/p",), "n1", 1_767_225_600),),
    refusals=(Refusal("eviction", "ns/p", 1_800_000_060, "u", "n-0", "ns/w", "ns/budget", "not now"),),
)


@pytest.mark.parametrize(
    "decision",
    [
        Hold("default/a", FULL),
        Hold("default/a", Verdict(code="SCHEDULING_GATED")),
        Admit("default/a", "Job", "q", (AdmittedPodSet("main", 2, {"cpu": "f"}, {"n": 2}, 4),), ("default/b",)),
        Bind("default/a", "n", (DeviceGrant(3, 250), DeviceGrant(1, 1000, "1g.10gb", 4)), ("default/b",)),
        Evict("default/a", ("default/a-0",), "default/b", "Priority", 7200, 3600),
        Reserve("reservation/launch", "rack=r1", 1_800_000_000, 1_800_003_600, {"n": 2}),
        Reserve("default/a", "", 1_800_000_000, None, {}),
    ],
    ids=lambda decision: type(decision).__name__,
)
def test_every_field_of_a_decision_is_in_its_document(
    decision: Admit | Bind | Evict | Hold | Reserve,
) -> None:
    assert parse_decision(json.loads(json.dumps(decision_document(decision)))) == decision


def test_the_full_verdict_above_leaves_no_field_at_its_default() -> None:
    """So that a field which is added to a verdict is added to the document, or is missed here."""
    parts = (
        FULL,
        FULL.counts[0],
        FULL.nearest[0],
        FULL.limits[0],
        FULL.relief,
        FULL.changes[0],
        FULL.moves[0],
        FULL.refusals[0],
        FULL.obstacles[0],
    )
    for part in parts:
        assert part is not None
        for field in msgspec.structs.fields(part):
            assert getattr(part, field.name) != field.default, f"{type(part).__name__}.{field.name}"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_the_command_prints_is_the_plan(tmp_path: Path, form: str) -> None:
    objects = [node("n-0", 2), pod("a", gpus=1), pod("b", gpus=8)]
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    done = CliRunner().invoke(cli, ["plan", "schedule", "--from", str(file), "-o", form], catch_exceptions=False)
    document = yaml.safe_load(done.stdout)
    expected, _ = plan_objects([decode_object(obj) for obj in objects], Settings(), 0)
    found = parse_plan(document)
    assert found.binds == expected.binds
    assert [(hold.workload, hold.verdict.code) for hold in found.holds] == [
        (hold.workload, hold.verdict.code) for hold in expected.holds
    ]
    assert found.holds[0].verdict.message == document["decisions"][-1]["message"], "made of the rest"


def test_what_is_no_decision_is_refused() -> None:
    with pytest.raises(InputError, match="'guess' is not a decision"):
        parse_decision({"decision": "guess"})
