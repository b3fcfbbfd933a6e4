"""A fleet change, played to its end on a world with a virtual clock."""

from __future__ import annotations

import pytest
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.world import START, SimNode, World

from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.model.times import format_timestamp
from windlass.operator.observed import GateReading


def started(world: World, **change: object) -> Play:
    play = Play(world).run(lambda: is_up(world))
    assert is_up(world)
    world.add("FleetChange", "r590", CHANGE | change)
    return play


def versions(world: World) -> set[str]:
    return {node.loaded for node in world.nodes.values()}


def test_nodes_come_up_with_the_driver_of_the_stack() -> None:
    world = fleet(3)
    Play(world).run(lambda: is_up(world), 3600)
    assert versions(world) == {"580.95.05"}
    assert all(node.condition == "True" for node in world.nodes.values())


def test_a_good_change_reaches_every_node() -> None:
    world = fleet()
    play = started(world)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "Succeeded"
    assert versions(world) == {"590.44.01"}
    assert world.stack("h100").status.current.driver == "590.44.01"
    play.run(seconds=3600)
    assert len(world.daemon_sets) == 1  # the old one is gone
    assert not any(node.taints for node in world.nodes.values())


def test_a_change_that_brings_xids_on_the_canary_goes_back() -> None:
    world = fleet()
    play = started(world)

    def xid(world: World, node: SimNode) -> None:
        if node.loaded == "590.44.01":
            world.later(120, lambda: world.fail_gpu(node.name, 0, "Xid 119"))
        else:
            world.heal(node.name)

    world.on_loaded = xid
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "RolledBack"
    status = world.change("r590").status
    assert "Xid 119 on 2 of 2 changed, 0 of 10 control nodes" in status.message
    assert "2 nodes are back on 580.95.05" in status.message
    assert versions(world) == {"580.95.05"}
    assert {node.labels[DRIVER_REVISION_LABEL] for node in world.nodes.values()} == {"580.95.05"}
    assert not world.objects["GPURepair"]


def test_a_node_that_does_not_come_up_in_the_canary_ends_the_change() -> None:
    world = fleet()
    for node in world.nodes.values():
        node.bad_versions = frozenset({"590.44.01"})
    play = started(world)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "RolledBack"
    assert versions(world) == {"580.95.05"}
    assert world.change("r590").status.failed


def test_a_gate_without_data_holds_the_change_and_lets_it_go_on_when_data_comes() -> None:
    world = fleet()
    play = started(world, gates=[{"name": "p99", "query": "p99", "maxRatio": 1.2}])
    assert play.until_phase("r590", "Held", "RolledBack") == "Held"
    assert world.change("r590").status.reason == "GateNoData"
    world.readings = lambda world, change, gate: GateReading(world.now, dict.fromkeys(world.nodes, 1.0))
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "Succeeded"


def test_a_slower_canary_goes_back() -> None:
    world = fleet()
    play = started(world, gates=[{"name": "p99", "family": "slo", "query": "p99", "maxRatio": 1.2}])

    def reading(world: World, change: str, gate: str) -> GateReading:
        values = {name: 1.5 if node.loaded == "590.44.01" else 1.0 for name, node in world.nodes.items()}
        return GateReading(world.now, values)

    world.readings = reading
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "RolledBack"
    assert (
        "gate p99: 1.5 on 2 changed, 1 on 10 control nodes: the ratio 1.5 is above 1.2"
        in world.change("r590").status.message
    )


def test_hold_waits_for_a_person_who_promotes_or_rolls_back() -> None:
    world = fleet()
    play = started(world, onFailure="Hold")
    world.on_loaded = lambda world, node: node.loaded == "590.44.01" and world.fail_gpu(node.name, 0, "Xid 119")  # type: ignore[assignment, return-value, func-returns-value]
    assert play.until_phase("r590", "Held", "RolledBack") == "Held"
    play.run(seconds=48 * 3600)
    assert world.change("r590").status.phase == "Held"
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Rollback", "by": "ada"})
    world.on_loaded = lambda world, node: world.heal(node.name)
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "RolledBack"
    assert versions(world) == {"580.95.05"}


@pytest.mark.parametrize("phase", ["Progressing", "Baking"])
def test_an_abort_leaves_what_is_done_and_brings_back_what_is_under_way(phase: str) -> None:
    world = fleet()
    play = started(world)
    play.run(lambda: world.change("r590").status.phase == phase and world.change("r590").status.wave == 1)
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Abort"})
    assert play.until_phase("r590", "Aborted", "Succeeded", seconds=7200) == "Aborted"
    play.run(seconds=600)
    done = [node for node in world.nodes.values() if node.loaded == "590.44.01"]
    assert len(done) == world.change("r590").status.changed >= 2
    assert is_up(world)
    assert world.stack("h100").status.current.driver == "580.95.05"


def test_a_change_that_is_deleted_half_way_leaves_no_node_behind() -> None:
    world = fleet()
    play = started(world)
    play.run(lambda: any(node.taints for node in world.nodes.values()))
    del world.objects["FleetChange"]["r590"]
    play.run(seconds=7200)
    assert is_up(world)
    assert versions(world) == {"580.95.05"}


def test_a_pause_stops_new_nodes_and_windows_hold_them_back() -> None:
    world = fleet()
    opens = START + 6 * 3600
    clock = format_timestamp(opens)[11:16]
    window = {"start": clock, "end": format_timestamp(opens + 12 * 3600)[11:16]}
    play = started(world, windows=[window], paused=True)
    play.run(seconds=3600)
    assert world.change("r590").status.reason == "Paused"
    world.put_spec("FleetChange", "r590", paused=False)
    play.run(seconds=3600)
    assert world.change("r590").status.reason == "OutsideWindow"
    assert versions(world) == {"580.95.05"}
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    assert world.now > opens


def test_a_second_change_is_refused_and_may_be_retried_later() -> None:
    world = fleet()
    play = started(world)
    play.settle()
    world.add("FleetChange", "second", CHANGE | {"driver": {"version": "600.1"}})
    play.settle()
    assert world.change("second").status.reason == "ChangeRunning"
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    assert world.change("second").status.phase == "Refused"
    world.put_spec("FleetChange", "second", command={"id": "1", "verb": "Retry"})
    assert play.until_phase("second", "Succeeded") == "Succeeded"
    assert versions(world) == {"600.1"}


def test_a_mig_layout_is_changed_and_only_the_last_change_can_be_undone() -> None:
    world = fleet(mig={"config": "all-disabled"})
    play = started(world)
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    mig = {"stack": "h100", "mig": {"config": "all-1g.10gb"}, "waves": [{"nodes": "100%", "bake": "1m"}]}
    world.add("FleetChange", "mig", mig)
    assert play.until_phase("mig", "Succeeded", "Refused") == "Succeeded"
    assert {node.labels["nvidia.com/mig.config"] for node in world.nodes.values()} == {"all-1g.10gb"}
    for name in ("r590", "mig"):
        world.put_spec("FleetChange", name, command={"id": "1", "verb": "Rollback"})
    assert play.until_phase("mig", "RolledBack") == "RolledBack"
    assert {node.labels["nvidia.com/mig.config"] for node in world.nodes.values()} == {"all-disabled"}
    # Its nodes have the records of another change by now.
    assert world.change("r590").status.phase == "Succeeded"
    assert "Rollback is not possible" in world.change("r590").status.message
    assert versions(world) == {"590.44.01"}


def test_a_budget_that_refuses_an_eviction_is_named_and_the_node_is_given_back() -> None:
    world = fleet(4)
    play = started(world, waves=[{"nodes": "100%", "bake": "1m"}], drain={"timeout": "10m"})
    for number in range(4):
        world.add_pod(f"team/g{number}", f"gpu-00{number}", {0, 1}, "team/gang" if number < 2 else "")
    world.protected = {"team/g3"}
    world.reschedules = False
    play.run(lambda: world.gpu_node("gpu-003").status.change is not None, 7200)
    assert "team/g0" not in world.pods
    assert "team/g1" not in world.pods
    play.run(lambda: world.change("r590").is_final, 7200)
    record = world.gpu_node("gpu-003").status.change
    assert record is not None
    assert (record.result, "disruption budget" in record.message) == ("Blocked", True)
    assert world.change("r590").status.stragglers == ("gpu-003",)
    assert world.pods["team/g3"].node == "gpu-003"
    assert world.nodes["gpu-003"].loaded == "580.95.05"


def test_a_gang_is_evicted_as_a_whole_also_from_nodes_that_are_not_taken() -> None:
    world = fleet(4, maxUnavailable=1)
    play = started(world, waves=[{"nodes": 1, "bake": "1m"}, {"nodes": "100%", "bake": "1m"}])
    for number in range(4):
        world.add_pod(f"team/g{number}", f"gpu-00{number}", {0, 1}, "team/gang" if number in (0, 3) else "")
    world.reschedules = False
    play.run(lambda: world.nodes["gpu-000"].loaded != "580.95.05", 3600)
    assert set(world.pods) == {"team/g1", "team/g2"}
    assert world.gpu_node("gpu-003").status.change is None


def test_nodes_that_others_cordoned_are_left_alone() -> None:
    world = fleet()
    play = started(world)
    world.nodes["gpu-005"].unschedulable = True
    world.nodes["gpu-005"].version += 1
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    assert world.nodes["gpu-005"].loaded == "580.95.05"
    assert world.nodes["gpu-005"].unschedulable
    assert world.change("r590").status.stragglers == ("gpu-005",)
