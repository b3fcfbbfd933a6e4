"""A change of the node agent: nobody is evicted, nothing is bound meanwhile, and the installed one is the way back."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.play import Play, fleet, is_up
from tests.operator.world import INSTALLED_AGENT, SimNode, World

from windlass.model.affinity import matches_required_node_affinity
from windlass.model.convert import convert
from windlass.model.pod import Pod
from windlass.operator.decide.agent_daemon_set import agent_daemon_set, retagged
from windlass.operator.observed import AgentTemplate

CHANGE = {
    "stack": "h100",
    "agent": {"version": "1.4.0"},
    "waves": [{"nodes": 1, "bake": "5m"}, {"nodes": "100%", "bake": "5m"}],
}
TEMPLATE = AgentTemplate(INSTALLED_AGENT["metadata"]["labels"], INSTALLED_AGENT["spec"])


def started() -> tuple[World, Play]:
    world = fleet(4)
    play = Play(world).run(lambda: is_up(world))
    for number in range(4):
        world.add_pod(f"team/p{number}", f"gpu-00{number}", {0, 1})
    world.add("FleetChange", "agent", CHANGE)
    return world, play


def agents(world: World) -> set[str]:
    return {node.agent for node in world.nodes.values()}


def test_every_node_gets_the_agent_and_no_pod_notices() -> None:
    world, play = started()
    before = {key: pod.uid for key, pod in world.pods.items()}
    seen: set[bool] = set()
    world.on_agent = lambda world, node: seen.add(any(taint.key == "windlass.dev/change" for taint in node.taints))
    assert play.until_phase("agent", "Succeeded", "RolledBack", "Refused") == "Succeeded"
    assert seen == {True}  # while it is exchanged, nothing is bound there
    assert agents(world) == {"1.4.0"}
    assert {key: pod.uid for key, pod in world.pods.items()} == before
    world.add_node("gpu-new", labels={"pool": "h100"})
    play.run(lambda: is_up(world), 3600)
    assert agents(world) == {"1.4.0"}
    world.put_spec("FleetChange", "agent", command={"id": "1", "verb": "Rollback"})
    assert play.until_phase("agent", "RolledBack") == "RolledBack"
    assert agents(world) == {""}
    play.run(seconds=600)
    assert len(world.daemon_sets) == 1  # the driver's


def test_faults_that_the_new_agent_brings_take_it_back() -> None:
    world, play = started()

    def ill(world: World, node: SimNode) -> None:
        if node.agent:
            world.fail_gpu(node.name, 7, "Xid 119")
        else:
            world.heal(node.name)

    world.on_agent = ill
    assert play.until_phase("agent", "Succeeded", "RolledBack", "Refused") == "RolledBack"
    assert "Xid 119 on 1 of 1 changed, 0 of 3 control nodes" in world.change("agent").status.message
    assert agents(world) == {""}


def test_it_is_refused_where_two_agents_would_run_on_one_node() -> None:
    world, play = started()
    world.agent = msgspec.structs.replace(world.agent, pod={**world.agent.pod, "affinity": {}})
    play.settle()
    assert world.change("agent").status.phase == "Refused"
    assert "apply `windlass install node` again" in world.change("agent").status.message


def test_each_node_matches_exactly_one_of_the_daemon_sets() -> None:
    made = agent_daemon_set("h100", "1.4.0", TEMPLATE, "windlass-node")["spec"]["template"]["spec"]
    for revision, expected in (("", (True, False)), ("1.4.0", (False, True)), ("9", (False, False))):
        labels = {"nvidia.com/gpu.present": "true"} | ({"windlass.dev/agent-revision": revision} if revision else {})
        found = []
        for spec in (TEMPLATE.pod, made):
            pod = convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
            selected = all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
            found.append(selected and matches_required_node_affinity(pod, labels, "n"))
        assert tuple(found) == expected
    assert made["containers"][0]["image"].endswith(":1.4.0")
    assert made["containers"][0]["args"] == TEMPLATE.pod["containers"][0]["args"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("windlass:1.0", "windlass:2"),
        ("registry:5000/a/windlass", "registry:5000/a/windlass:2"),
        ("registry:5000/windlass:1@sha256:00", "registry:5000/windlass:2"),
    ],
)
def test_the_tag_alone_is_replaced(image: str, expected: str) -> None:
    assert retagged(image, "2") == expected
