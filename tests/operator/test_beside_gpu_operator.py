"""Beside NVIDIA's operator: parts of nodes are taken over and given back with pods running, and a FleetChange drives
its drivers by canary, with a way back.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.gpu_operator_world import DEPLOY, OLD, PLUGIN, GpuOperatorWorld
from tests.operator.play import CHANGE, Play, is_up
from tests.operator.test_operator_invariants import ONCE, SEEDS
from tests.operator.world import SimNode, World

from windlass.model.names.windlass import TAKEN_OVER_ANNOTATION
from windlass.model.node import Taint
from windlass.operator.decide import decide
from windlass.operator.forecast import forecast
from windlass.operator.kinds.taken_over import taken_over
from windlass.operator.observed import NvidiaDriver
from windlass.operator.writes import PatchNode, Write

PARTS = ["plugin", "labels", "exporter", "mig"]
NEW = "590.44.01"
FOREIGN = Taint(key="example.com/other", effect="PreferNoSchedule", value="x")
WAVES = {"waves": [{"nodes": 2, "bake": "10m"}, {"nodes": "100%", "bake": "10m"}]}


def state(world: World) -> Any:
    return {
        name: (dict(node.labels), dict(node.annotations), node.taints, node.unschedulable)
        for name, node in world.nodes.items()
    }


def brought_up(**stack: Any) -> Play:
    world = GpuOperatorWorld(**stack)
    for node in world.nodes.values():
        node.taints = (FOREIGN,)
    play = Play(world).run(lambda: is_ready(world), 3600)
    assert is_ready(world)
    return play


def is_ready(world: World) -> bool:
    return all(
        name in world.objects["GPUNode"] and world.gpu_node(name).status.phase == "Ready" and node.taints == (FOREIGN,)
        for name, node in world.nodes.items()
    )


def is_taken(world: World) -> bool:
    return is_ready(world) and {node.labels[PLUGIN] for node in world.nodes.values()} == {"windlass"}


def is_given_back(world: World) -> bool:
    return is_ready(world) and not any(TAKEN_OVER_ANNOTATION in node.annotations for node in world.nodes.values())


def test_a_stack_beside_gpu_operator_touches_nothing() -> None:
    world = GpuOperatorWorld()
    before = state(world)
    Play(world).run(seconds=3600)
    assert is_up(world)
    assert state(world) == before
    owners = {step.name: step.owner for step in world.gpu_node("gpu-000").status.steps}
    assert owners["driver"] == owners["runtime"] == owners["plugin"] == owners["labels"] == "gpu-operator"


def test_parts_are_taken_over_and_given_back_byte_for_byte_while_pods_run() -> None:
    play = brought_up()
    world = play.world
    assert isinstance(world, GpuOperatorWorld)
    world.add_pod("team/train", "gpu-001", set(range(8)))
    before = state(world)
    world.put_spec("GPUStack", "h100", takeOver=PARTS)
    play.run(lambda: any(world.gpu_node(name).status.reason == "TakingOver" for name in world.nodes), 600)
    play.run(lambda: is_taken(world), 3600)
    assert is_taken(world)
    labels = world.nodes["gpu-001"].labels
    assert {key for key in DEPLOY if labels[key] == "windlass"} == {
        f"nvidia.com/gpu.deploy.{operand}"
        for operand in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "mig-manager")
    }
    owners = {step.name: step.owner for step in world.gpu_node("gpu-001").status.steps}
    assert (owners["plugin"], owners["driver"]) == ("windlass", "gpu-operator")
    assert not world.plugin_pods
    assert not world.swapped_open
    assert play.judge.most_unavailable == 2
    world.put_spec("GPUStack", "h100", takeOver=[])
    play.run(lambda: is_given_back(world), 3600)
    assert state(world) == before
    assert world.plugin_pods == set(world.nodes)
    assert world.pods["team/train"].node == "gpu-001"


def test_one_part_is_given_back_and_the_others_stay() -> None:
    play = brought_up(takeOver=PARTS)
    world = play.world
    play.run(lambda: is_taken(world), 3600)
    world.put_spec("GPUStack", "h100", takeOver=["plugin"])
    play.run(seconds=3600)
    record = taken_over(world.nodes["gpu-000"].annotations)
    assert record is not None
    assert record.labels == {PLUGIN: "true"}
    assert world.nodes["gpu-000"].labels == {**world.nodes["gpu-000"].labels, **DEPLOY, PLUGIN: "windlass"}


@pytest.mark.parametrize("value", ["false", "", "paused-for-driver-upgrade", "windlass_paused-for-driver-upgrade"])
def test_what_others_switched_off_or_paused_is_not_taken(value: str) -> None:
    play = brought_up()
    world = play.world
    world.nodes["gpu-000"].labels[PLUGIN] = value
    world.nodes["gpu-000"].version += 1
    world.put_spec("GPUStack", "h100", takeOver=["plugin"])
    play.run(seconds=3600)
    assert world.nodes["gpu-000"].labels[PLUGIN] == value
    assert TAKEN_OVER_ANNOTATION not in world.nodes["gpu-000"].annotations
    assert world.nodes["gpu-005"].labels[PLUGIN] == "windlass"


def test_nothing_is_taken_over_where_no_agent_runs() -> None:
    world = GpuOperatorWorld(takeOver=PARTS)
    observed = world.observe()
    pods = {name: tuple(pod for pod in pods if "agent" not in pod.key) for name, pods in observed.pods.items()}
    closed = [
        write for write in decide(msgspec.structs.replace(observed, pods=pods), world.now).writes if is_taint(write)
    ]
    assert not closed
    assert [write for write in decide(observed, world.now).writes if is_taint(write)]


def is_taint(write: Write) -> bool:
    return isinstance(write, PatchNode) and write.taints is not None


def test_nothing_is_taken_over_while_a_change_is_unfinished() -> None:
    play = brought_up()
    world = play.world
    world.add("FleetChange", "r590", CHANGE | WAVES)
    play.until_phase("r590", "Baking")
    world.put_spec("GPUStack", "h100", takeOver=PARTS)
    play.run(seconds=300)
    assert world.change("r590").status.phase == "Baking"
    assert not any(TAKEN_OVER_ANNOTATION in node.annotations for node in world.nodes.values())
    assert play.until_phase("r590", "Succeeded") == "Succeeded"
    play.run(lambda: is_taken(world), 3600)
    assert is_taken(world)


@settings(max_examples=10, deadline=None, derandomize=True, phases=ONCE)
@given(SEEDS, st.integers(2, 6))
def test_wherever_the_operator_is_killed_nodes_come_back_as_they_were(seed: int, kill_rate: int) -> None:
    play, chance = brought_up(), Random(seed)
    world = play.world
    before = state(world)
    play.kill = lambda number: not chance.randrange(kill_rate)
    play.order = (lambda writes: writes[::-1]) if seed % 2 else play.order
    world.put_spec("GPUStack", "h100", takeOver=PARTS)
    play.run(lambda: is_taken(world), chance.choice([30, 100, 400, 3600]))
    world.put_spec("GPUStack", "h100", takeOver=[])
    play.run(lambda: is_given_back(world), 7200)
    assert state(world) == before
    assert isinstance(world, GpuOperatorWorld)
    assert not world.swapped_open


@pytest.mark.parametrize("take_over", [[], PARTS])
def test_a_change_drives_gpu_operators_drivers_and_comes_back_as_it_was(take_over: list[str]) -> None:
    play = brought_up(takeOver=take_over)
    world = play.world
    assert isinstance(world, GpuOperatorWorld)
    play.run(seconds=1800)
    world.add_pod("team/train", "gpu-001", {0, 1})
    before, default = state(world), world.drivers["default"]
    world.add("FleetChange", "r590", CHANGE | WAVES)
    play.run(lambda: "belongs to" in world.gpu_node("gpu-000").status.message, 600)
    assert (
        "the node belongs to NVIDIADriver default, not to windlass-590-44-01-"
        in world.gpu_node("gpu-000").status.message
    )
    assert play.until_phase("r590", "Baking", "Refused") == "Baking"
    assert sorted(world.loaded()) == [OLD] * 4 + [NEW] * 2
    made = next(driver for driver in world.drivers.values() if driver.is_ours)
    assert made.spec == {
        "driverType": "gpu",
        "image": "nvcr.io/nvidia/driver",
        "version": NEW,
        "env": [],
        "nodeSelector": {"windlass.dev/driver-revision": NEW},
    }
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "Succeeded"
    assert set(world.loaded()) == {NEW}
    assert world.stack("h100").status.current.driver == NEW
    step = world.gpu_node("gpu-000").status.steps[0]
    assert (step.owner, step.state, step.message) == (
        "gpu-operator",
        "Done",
        f"NVIDIADriver {made.name} has loaded driver {NEW}",
    )
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Rollback"})
    assert play.until_phase("r590", "RolledBack", "Failed") == "RolledBack"
    play.run(seconds=3600)
    assert world.drivers == {"default": default}
    assert set(world.loaded()) == {OLD}
    assert state(world) == before


@settings(max_examples=5, deadline=None, derandomize=True, phases=ONCE)
@given(SEEDS, st.integers(2, 6))
def test_wherever_the_operator_is_killed_a_driven_change_ends_and_can_be_undone(seed: int, kill_rate: int) -> None:
    play, chance = brought_up(takeOver=PARTS if seed % 3 else []), Random(seed)
    world = play.world
    play.run(seconds=1800)
    before = state(world)
    play.kill = lambda number: not chance.randrange(kill_rate)
    play.order = (lambda writes: writes[::-1]) if seed % 2 else play.order
    world.add("FleetChange", "r590", CHANGE | WAVES)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed", "Refused") == "Succeeded"
    world.put_spec("FleetChange", "r590", command={"id": "1", "verb": "Rollback"})
    assert play.until_phase("r590", "RolledBack", "Failed") == "RolledBack"
    play.run(seconds=3600)
    assert state(world) == before
    assert isinstance(world, GpuOperatorWorld)
    assert set(world.drivers) == {"default"}


def test_a_driver_of_gpu_operator_that_brings_xids_goes_back() -> None:
    play = brought_up()
    world = play.world

    def xid(world: World, node: SimNode) -> None:
        if node.loaded == NEW:
            world.later(120, lambda: world.fail_gpu(node.name, 0, "Xid 119"))
        else:
            world.heal(node.name)

    world.on_loaded = xid
    world.add("FleetChange", "r590", CHANGE | WAVES)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "RolledBack"
    message = world.change("r590").status.message
    assert message.startswith("gate gpu-faults: Xid 119 on 2 of 2 changed, 0 of 4 control nodes")
    assert "2 nodes are back on what was installed" in message
    assert isinstance(world, GpuOperatorWorld)
    assert set(world.loaded()) == {OLD}


def test_a_driver_that_never_loads_is_named_and_its_node_goes_back() -> None:
    play = brought_up()
    world = play.world
    for node in world.nodes.values():
        node.bad_versions = frozenset({NEW})
    world.add("FleetChange", "r590", CHANGE | WAVES)
    play.run(lambda: any("paused" in step.message for step in world.gpu_node("gpu-000").status.steps), 3600)
    step = world.gpu_node("gpu-000").status.steps[0]
    assert step.reason == "AwaitsGpuOperator"
    assert "is paused-for-driver-upgrade" in step.message
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "RolledBack"
    assert isinstance(world, GpuOperatorWorld)
    assert set(world.loaded()) == {OLD}


@pytest.mark.parametrize(
    ("drivers", "words"),
    [
        ({}, "beside an NVIDIADriver with `default: true`"),
        ({"pool": {"nodeSelector": {"pool": "h100"}}}, "there are: pool"),
        ({"default": {"default": True, "state": "ignored"}}, "NVIDIADriver default is ignored"),
    ],
)
def test_a_change_that_gpu_operator_would_not_obey_is_refused(drivers: dict[str, Any], words: str) -> None:
    play = brought_up()
    assert isinstance(play.world, GpuOperatorWorld)
    play.world.drivers = {
        name: NvidiaDriver(name, name, spec, str(spec.get("state", "ready"))) for name, spec in drivers.items()
    }
    play.world.add("FleetChange", "r590", CHANGE | WAVES)
    assert play.until_phase("r590", "Refused", "Baking", seconds=60) == "Refused"
    assert words in play.world.change("r590").status.message


def test_nodes_that_nvidia_is_upgrading_itself_are_left_alone() -> None:
    play = brought_up()
    world = play.world
    world.nodes["gpu-003"].labels["nvidia.com/gpu-driver-upgrade-state"] = "drain-required"
    world.nodes["gpu-003"].version += 1
    world.add("FleetChange", "r590", CHANGE | WAVES)
    assert play.until_phase("r590", "Succeeded", "RolledBack") == "Succeeded"
    assert world.nodes["gpu-003"].loaded == OLD
    assert world.change("r590").status.stragglers == ("gpu-003",)


def test_the_change_is_played_ahead_beside_gpu_operator_too() -> None:
    play = brought_up(takeOver=PARTS)
    world = play.world
    play.run(lambda: is_taken(world), 3600)
    world.add_pod("team/train", "gpu-001", {0, 1})
    wanted = world.add("FleetChange", "r590", CHANGE | WAVES)
    found = forecast(world.observe(), wanted, world.now)
    assert (found.phase, len(found.taken), found.most_unavailable) == ("Succeeded", 6, 2)
    assert [taken.evicted for taken in found.taken if taken.evicted] == [("team/train",)]
