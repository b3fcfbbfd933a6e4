"""The repair ladder, device first, played on a world."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.world import World

from windlass.model.names.windlass import HELD_DEVICES_ANNOTATION, REPAIR_TAINT


def started(count: int = 12, **stack: object) -> tuple[World, Play]:
    world = fleet(count, **stack)
    play = Play(world).run(lambda: is_up(world))
    assert is_up(world)
    return world, play


def phase(world: World, repair: str) -> str:
    return world.repair(repair).status.phase if repair in world.objects["GPURepair"] else ""


def ended(world: World, repair: str) -> bool:
    return phase(world, repair) in ("Returned", "Ticket", "Held")


def test_one_gpu_is_reset_and_the_pods_of_the_others_never_notice() -> None:
    world, play = started()
    for device in range(8):
        world.add_pod(f"team/p{device}", "gpu-000", {device})
    before = {key: pod.uid for key, pod in world.pods.items()}
    world.reschedules = False
    world.fail_gpu("gpu-000", 3)
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    repair = world.repair("gpu-000-3-1").status
    assert repair.phase == "Returned"
    assert [(attempt.rung, attempt.result) for attempt in repair.attempts] == [("reset", "Done"), ("validate", "Done")]
    assert {key: pod.uid for key, pod in world.pods.items()} == {k: u for k, u in before.items() if k != "team/p3"}
    play.run(seconds=600)
    assert HELD_DEVICES_ANNOTATION not in world.nodes["gpu-000"].annotations
    assert world.nodes["gpu-000"].boot == 1


def test_a_reset_that_does_not_help_is_followed_by_a_reboot_and_a_ticket() -> None:
    world, play = started(repair={"ticket": {"url": "https://tickets.example.com/new"}})
    world.add_pod("team/other", "gpu-000", {5})
    world.fail_gpu("gpu-000", 3, heals_by="nothing")
    play.run(lambda: phase(world, "gpu-000-3-1") == "Ticket", 7200)
    play.run(seconds=600)
    status = world.repair("gpu-000-3-1").status
    rungs = [(attempt.rung, attempt.result) for attempt in status.attempts]
    assert rungs == [("reset", "Done"), ("validate", "Failed"), ("reboot", "Done"), ("validate", "Failed")]
    assert world.nodes["gpu-000"].boot == 2
    assert world.tickets == [world.repair("gpu-000-3-1").metadata.uid]
    # The other seven are in service again, the ill one is not.
    node = world.nodes["gpu-000"]
    assert not node.taints
    assert node.annotations[HELD_DEVICES_ANNOTATION] == "3"
    assert node.allocatable == 7


def test_a_fault_that_ends_by_itself_is_not_treated() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3)
    play.settle()
    world.later(10, lambda: world.heal("gpu-000"))
    play.run(lambda: ended(world, "gpu-000-3-1"), 600)
    assert world.repair("gpu-000-3-1").status.reason == "FaultGone"
    assert world.repair("gpu-000-3-1").status.attempts == ()


def test_faults_that_came_and_went_while_the_operator_was_down_change_nothing() -> None:
    world, play = started()
    play.is_down = True
    world.fail_gpu("gpu-000", 3)
    world.later(60, lambda: world.heal("gpu-000"))
    play.run(seconds=600)
    play.is_down = False
    play.run(seconds=600)
    assert not world.objects["GPURepair"]
    assert is_up(world)


def test_the_breaker_stops_repairs_when_30_percent_are_ill_and_closes_by_itself() -> None:
    world, play = started(count=10)
    for number in range(3):
        world.fail_gpu(f"gpu-00{number}", 0)
    play.run(seconds=1800)
    assert {repair.status.reason for repair in world.objects["GPURepair"].values()} == {"BreakerOpen"}
    assert "3 of 10 nodes are ill" in world.stack("h100").status.breaker
    assert {node.allocatable for node in world.nodes.values()} == {8, 7}  # contained all the same
    world.heal("gpu-000")
    play.run(lambda: all(ended(world, name) for name in world.objects["GPURepair"]), 3600)
    assert {repair.status.phase for repair in world.objects["GPURepair"].values()} == {"Returned"}
    play.run(seconds=60)
    assert world.stack("h100").status.breaker == ""


def test_the_same_fault_on_three_nodes_of_a_rack_is_one_cause() -> None:
    world, play = started(count=30)
    for number in range(3):
        world.nodes[f"gpu-00{number}"].labels["windlass.dev/rack"] = "r1"
        world.fail_gpu(f"gpu-00{number}", 0, "Xid 74", "ticket")
    play.run(seconds=300)
    assert world.stack("h100").status.breaker == "Xid 74 on 3 nodes of rack r1 within 10 minutes"
    assert {repair.status.phase for repair in world.objects["GPURepair"].values()} == {"Contained"}


def test_reboots_wait_for_the_budget_of_repairs() -> None:
    world, play = started(count=30, maxUnavailable=5)
    for number in range(3):
        world.fail_gpu(f"gpu-00{number}", 0, "Xid 79", "reboot", "reboot")
    play.run(lambda: any(node.boot == 2 for node in world.nodes.values()), 3600)
    tainted = [name for name, node in world.nodes.items() if any(taint.key == REPAIR_TAINT for taint in node.taints)]
    assert len(tainted) <= 1
    play.run(lambda: all(ended(world, name) for name in world.objects["GPURepair"]), 7200)
    assert {repair.status.phase for repair in world.objects["GPURepair"].values()} == {"Returned"}
    assert sorted(node.boot for node in world.nodes.values())[-3:] == [2, 2, 2]


def test_the_third_fault_of_a_gpu_in_two_weeks_is_a_ticket() -> None:
    world, play = started()
    for number in (1, 2):
        world.fail_gpu("gpu-000", 3)
        play.run(lambda number=number: phase(world, f"gpu-000-3-{number}") == "Returned", 3600)
        play.run(seconds=24 * 3600)
    world.fail_gpu("gpu-000", 3)
    play.run(lambda: phase(world, "gpu-000-3-3") == "Ticket", 3600)
    assert "repair 3 of this GPU within 336h" in world.repair("gpu-000-3-3").status.message
    assert world.repair("gpu-000-3-3").status.attempts == ()


def test_a_person_takes_a_gpu_out_and_returns_it() -> None:
    world, play = started()
    world.add("GPURepair", "hand", {"node": "gpu-001", "device": 2, "fault": "smells", "requestedBy": "ada"})
    world.add_pod("team/p", "gpu-001", {2})
    world.add_pod("team/q", "gpu-001", {3})
    play.run(lambda: phase(world, "hand") == "Held", 600)
    assert world.nodes["gpu-001"].annotations[HELD_DEVICES_ANNOTATION] == "2"
    assert world.pods["team/q"].node == "gpu-001"
    assert "team/p" not in world.pods or 2 not in world.pods["team/p"].devices or world.pods["team/p"].node != "gpu-001"
    world.put_spec("GPURepair", "hand", command={"id": "1", "verb": "Return", "by": "ada"})
    play.run(lambda: phase(world, "hand") == "Returned", 600)
    play.run(seconds=60)
    assert world.nodes["gpu-001"].allocatable == 8


def test_a_held_repair_does_nothing_until_it_is_retried() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3)
    play.settle()
    world.put_spec("GPURepair", "gpu-000-3-1", command={"id": "1", "verb": "Hold"})
    play.run(seconds=7200)
    assert phase(world, "gpu-000-3-1") == "Held"
    assert world.nodes["gpu-000"].allocatable == 7
    world.put_spec("GPURepair", "gpu-000-3-1", command={"id": "2", "verb": "Retry"})
    play.run(lambda: phase(world, "gpu-000-3-1") == "Returned", 3600)
    assert phase(world, "gpu-000-3-1") == "Returned"


def test_a_replaced_node_ends_its_repairs() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3, action="ticket", heals_by="nothing")
    play.run(lambda: phase(world, "gpu-000-3-1") == "Ticket", 600)
    world.nodes["gpu-000"].uid = "another"
    world.heal("gpu-000")
    play.run(seconds=600)
    assert world.repair("gpu-000-3-1").status.reason == "NodeReplaced"


@pytest.mark.parametrize("policy", ["ContainOnly", "Off"])
def test_the_policy_of_the_stack_decides_how_far_a_repair_goes(policy: str) -> None:
    world, play = started(repair={"policy": policy})
    world.fail_gpu("gpu-000", 3)
    play.run(seconds=3600)
    if policy == "Off":
        assert not world.objects["GPURepair"]
    else:
        assert world.repair("gpu-000-3-1").status.reason == "RepairsOff"
        assert world.nodes["gpu-000"].annotations[HELD_DEVICES_ANNOTATION] == "3"


def test_a_fault_on_a_node_under_change_opens_a_repair_only_when_the_change_is_over() -> None:
    world, play = started()
    world.add("FleetChange", "r590", CHANGE | {"maxFaults": 1, "onFailure": "Hold"})
    play.until_phase("r590", "Baking")
    canary = next(name for name in world.nodes if world.gpu_node(name).status.change)
    world.fail_gpu(canary, 0)
    play.run(seconds=300)
    assert not world.objects["GPURepair"]
    assert world.gpu_node(canary).status.change.faults == ("Xid 79",)  # type: ignore[union-attr]
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    play.run(lambda: ended(world, f"{canary}-0-1"), 3600)
    assert phase(world, f"{canary}-0-1") == "Returned"


def test_a_repair_that_is_over_is_never_written_again() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3)
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    play.run(seconds=600)
    before = world.repair("gpu-000-3-1").status
    world.nodes["gpu-000"].uid = "another"
    world.nodes["gpu-000"].version += 1
    world.put_spec("GPURepair", "gpu-000-3-1", command={"id": "1", "verb": "Hold"})
    play.run(seconds=3600)
    assert world.repair("gpu-000-3-1").status == before


def test_a_new_repair_finds_a_free_name_after_old_ones_were_deleted() -> None:
    world, play = started(repair={"repeats": 100})
    for number in (1, 2):
        world.fail_gpu("gpu-000", 3)
        play.run(lambda number=number: ended(world, f"gpu-000-3-{number}"), 3600)  # type: ignore[misc]
    del world.objects["GPURepair"]["gpu-000-3-1"]
    world.fail_gpu("gpu-000", 3)
    play.run(seconds=3600)
    assert phase(world, "gpu-000-3-3") == "Returned"


def test_a_gpu_is_not_reset_under_a_pod_of_which_nobody_says_what_it_holds() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3)
    world.add_pod("team/p", "gpu-000", {1})
    silent = world.pods["team/p"] = msgspec.structs.replace(world.pods["team/p"], devices=frozenset())
    play.run(lambda: ended(world, "gpu-000-3-1"), 1200)
    status = world.repair("gpu-000-3-1").status
    assert (status.phase, status.reason) == ("Draining", "DrainBlocked")
    assert "team/p" in status.message
    assert world.pods["team/p"] is silent  # and it is not evicted: it may hold another GPU
    world.pods["team/p"] = msgspec.structs.replace(silent, devices=frozenset({1}))
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    assert phase(world, "gpu-000-3-1") == "Returned"
