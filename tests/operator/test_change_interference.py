"""Fleet changes while people, autoscalers and crashes interfere: what was decided before must still hold."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.test_fleet_change import started, versions
from tests.operator.world import SimNode, World

from windlass.model.names.nvidia import MIG_CONFIG_LABEL
from windlass.operator.decide import decide
from windlass.operator.observed import GateReading, Invalid
from windlass.operator.writes import PatchNode, PutStatus

NEW = "590.44.01"


def test_waves_that_are_taken_away_under_a_running_change_do_not_stop_the_operator() -> None:
    world = fleet()
    play = started(world)
    play.run(lambda: world.change("r590").status.wave == 2)
    world.put_spec("FleetChange", "r590", waves=[{"nodes": "100%", "bake": "1m"}])
    assert play.until_phase("r590", "Succeeded", "Failed", "RolledBack") == "Succeeded"


def test_a_node_that_joins_after_a_change_goes_back_with_the_others() -> None:
    world = fleet(4)
    play = started(world)
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    world.add_node("gpu-new", labels={"pool": "h100"})
    play.run(lambda: is_up(world), 3600)
    assert versions(world) == {NEW}
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Rollback"})
    play.run(lambda: world.change("r590").status.phase == "RolledBack", 7200)
    assert world.change("r590").status.phase == "RolledBack", world.change("r590").status.message
    assert versions(world) == {"580.95.05"}


def test_a_way_back_to_no_layout_ends_also_if_the_spec_was_edited_meanwhile() -> None:
    world = fleet(4)
    play = Play(world).run(lambda: is_up(world))
    spec = {"stack": "h100", "mig": {"config": "all-1g.10gb"}, "waves": [{"nodes": "100%", "bake": "1m"}]}
    world.add("FleetChange", "mig", spec)
    assert play.until_phase("mig", "Succeeded") == "Succeeded"
    world.put_spec("GPUStack", "h100", mig={"config": "all-1g.10gb"})
    world.put_spec("FleetChange", "mig", command={"id": "1", "verb": "Rollback"})
    assert play.until_phase("mig", "RolledBack", seconds=7200) == "RolledBack"
    play.run(seconds=600)
    assert not any(MIG_CONFIG_LABEL in node.labels for node in world.nodes.values())


def test_a_layout_that_is_written_into_the_spec_later_changes_no_node() -> None:
    world = fleet(4)
    play = Play(world).run(lambda: is_up(world))
    world.add_pod("team/p", "gpu-000", {0})
    world.put_spec("GPUStack", "h100", mig={"config": "all-1g.10gb"})
    play.run(seconds=600)
    assert not any(MIG_CONFIG_LABEL in node.labels for node in world.nodes.values())
    in_sync = next(known for known in world.stack("h100").status.conditions if known.type == "InSync")
    assert (in_sync.status, "all-1g.10gb" in in_sync.message) == ("False", True)


def test_the_first_driver_of_a_node_waits_for_pods_that_hold_its_gpus() -> None:
    world = fleet(3)
    world.nodes["gpu-001"].loaded = "570.1"  # its host's
    world.add_pod("team/p", "gpu-001", {0})
    play = Play(world).run(seconds=1200)
    assert world.nodes["gpu-001"].loaded == "570.1"
    step = world.gpu_node("gpu-001").status.steps[0]
    assert (step.reason, "team/p" in step.message) == ("DriverInUse", True)
    del world.pods["team/p"]
    play.run(lambda: is_up(world), 7200)
    assert versions(world) == {"580.95.05"}


def test_a_promoted_wave_is_not_judged_again_in_the_next() -> None:
    world = fleet()
    play = started(world, onFailure="Hold")
    ill = {"gpu-000"}

    def xid(world: World, node: SimNode) -> None:
        if node.loaded == NEW and node.name in ill:
            world.fail_gpu(node.name, 0, "Xid 119")

    world.on_loaded = xid
    assert play.until_phase("r590", "Held") == "Held"
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Promote", "by": "ada"})
    assert play.until_phase("r590", "Succeeded", seconds=24 * 3600) == "Succeeded"
    assert versions(world) == {NEW}


@pytest.mark.parametrize("order", [1, -1])
def test_a_retry_forgets_what_failed_whichever_write_arrives_first(order: int) -> None:
    world = fleet(4)
    for node in world.nodes.values():
        node.bad_versions = frozenset({NEW})
    play = started(world, nodeTimeout="5m")
    assert play.until_phase("r590", "RolledBack") == "RolledBack"
    for node in world.nodes.values():
        node.bad_versions = frozenset()
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Retry"})
    # Killed after the first write, in both orders.
    first = list(decide(world.observe(), world.now).writes)[::order][0]
    play.judge.apply(first)
    play.run(lambda: world.change("r590").status.phase == "Progressing", 600)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "Succeeded"


def test_nodes_that_an_aborted_change_left_on_the_new_version_are_compared_too() -> None:
    world = fleet()
    play = started(world)
    play.run(lambda: world.change("r590").status.phase == "Baking")
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Abort"})
    assert play.until_phase("r590", "Aborted") == "Aborted"
    world.add("FleetChange", "again", CHANGE)
    assert play.until_phase("again", "Succeeded", "Held", "RolledBack") == "Succeeded"


def test_a_stack_that_cant_be_read_any_more_stops_the_work_and_loses_no_record() -> None:
    world = fleet(4)
    play = started(world)
    play.run(lambda: any(node.taints for node in world.nodes.values()))
    taken = {name for name, node in world.nodes.items() if node.taints}
    seen = world.observe()
    stack = seen.stacks[0]
    broken = Invalid("GPUStack", "h100", "9", "spec.driver.sauce: unknown field", status=stack.status)
    decision = decide(msgspec.structs.replace(seen, stacks=(), invalid=(broken,)), world.now)
    assert not [write for write in decision.writes if isinstance(write, PatchNode)]
    (write,) = decision.writes
    assert isinstance(write, PutStatus)
    assert (write.kind, write.name) == ("GPUStack", "h100")
    ready = next(known for known in write.status.conditions if known.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "InvalidSpec")
    assert "spec.driver.sauce" in ready.message
    assert taken


def test_a_change_that_has_ended_stays_so_when_it_cant_be_read_any_more() -> None:
    world = fleet(4)
    Play(world).run(lambda: is_up(world))
    seen = world.observe()
    for phase, count in (("Succeeded", 0), ("Refused", 0), ("Pending", 1)):
        broken = Invalid("FleetChange", "old", "9", "spec.colour: unknown field", phase)
        decision = decide(msgspec.structs.replace(seen, invalid=(broken,)), world.now)
        assert len(decision.writes) == count, phase


def test_two_stacks_with_long_names_leave_each_others_driver_alone() -> None:
    world = fleet(2)
    del world.objects["GPUStack"]["h100"]
    for suffix in "ab":
        world.nodes[f"gpu-00{'ab'.index(suffix)}"].labels["pool"] = suffix
        driver = {"source": "container", "image": "registry.example.com/driver", "version": "580.95.05"}
        spec = {"nodes": {"matchLabels": {"pool": suffix}}, "driver": driver}
        world.add("GPUStack", f"{'h' * 40}{suffix}", spec)
    play = Play(world, stack=f"{'h' * 40}a")
    play.run(lambda: is_up(world), 3600)
    assert len(world.daemon_sets) == 2
    assert decide(world.observe(), world.now).writes == ()


RATIO = [{"name": "p99", "query": "p99", "maxRatio": 1.2}]


def loaded_by(world: World, version: str) -> set[str]:
    return {name for name, node in world.nodes.items() if node.loaded == version}


def test_some_nodes_stay_on_the_old_version_until_the_last_gates_have_passed() -> None:
    world = fleet()
    play = started(world, gates=RATIO)
    world.readings = lambda world, change, gate: GateReading(world.now, dict.fromkeys(world.nodes, 1.0))
    play.run(lambda: world.change("r590").status.wave == 2 and world.change("r590").status.phase == "Baking")
    assert len(loaded_by(world, "580.95.05")) == 1
    play.run(seconds=60)
    (gate,) = [gate for gate in world.change("r590").status.gates if gate.name == "p99"]
    assert "1 on 11 changed, 1 on 1 control nodes" in gate.message
    play.run(lambda: world.change("r590").status.wave == 3 and world.change("r590").status.phase == "Baking")
    play.run(seconds=60)
    (gate,) = [gate for gate in world.change("r590").status.gates if gate.name == "p99"]
    assert "1 on 1 changed, 1 on 11 earlier changed nodes" in gate.message
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "Succeeded"
    assert versions(world) == {NEW}


@pytest.mark.parametrize("wave", [2, 3])
def test_a_change_that_gets_slow_in_the_last_waves_still_goes_back(wave: int) -> None:
    world = fleet()
    play = started(world, gates=RATIO)

    def reading(world: World, change: str, gate: str) -> GateReading:
        is_late = world.change("r590").status.wave == wave
        records = {name: node.status.change for name, node in world.objects["GPUNode"].items()}
        slow = {
            name
            for name in loaded_by(world, NEW)
            if is_late and (wave == 2 or ((record := records[name]) is not None and record.wave == wave))
        }
        return GateReading(world.now, {name: 1.5 if name in slow else 1.0 for name in world.nodes})

    world.readings = reading
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "RolledBack"
    assert "the ratio 1.5 is above 1.2" in world.change("r590").status.message
    assert versions(world) == {"580.95.05"}


def test_a_stack_of_one_node_waits_for_a_person_where_a_gate_compares() -> None:
    world = fleet(1)
    play = started(world, gates=RATIO, waves=[{"nodes": "100%", "bake": "1m"}])
    world.readings = lambda world, change, gate: GateReading(world.now, dict.fromkeys(world.nodes, 1.0))
    assert play.until_phase("r590", "Succeeded", "Held") == "Held"
    assert "no node is left to compare with" in world.change("r590").status.message
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Promote"})
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
