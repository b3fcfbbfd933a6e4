"""Where the pods of an admitted Workload run, in the words that Kueue counts: hosts alone, or all levels above them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apply.admissions import PENDING, TRAIN, begin
from tests.apply.objects import custom, node, queues
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time

from windlass.apply.topology_assignment import topology_assignment
from windlass.model.decision import Admit, AdmittedPodSet
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import KUEUE_API_VERSION
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.unstructured import Unstructured

NODES = {"n1": 1, "n2": 2, "n3": 4}
LABELS = {
    "n1": {"block": "b1", "rack": "r1", HOSTNAME_LABEL: "host-1"},
    "n2": {"block": "b2", "rack": "r1", HOSTNAME_LABEL: "host-2"},
    "n3": {"block": "b1", "rack": "r1"},
}
HOSTS = [(("host-1",), 1), (("host-2",), 2), (("n3",), 4)]


def read(assignment: Unstructured) -> tuple[list[str], list[tuple[tuple[str, ...], int]]]:
    """Levels, and the domains of either version."""
    if "domains" in assignment:
        return assignment["levels"], [(tuple(one["values"]), one["count"]) for one in assignment["domains"]]
    (part,) = assignment["slices"]
    columns = [level["individual"]["roots"] for level in part["valuesPerLevel"]]
    assert [len(column) for column in columns] == [part["domainCount"]] * len(assignment["levels"])
    return assignment["levels"], list(zip(zip(*columns, strict=True), part["podCounts"]["individual"], strict=True))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(
    ("levels", "written", "domains"),
    [
        pytest.param((), [HOSTNAME_LABEL], HOSTS, id="no topology"),
        pytest.param(("block", HOSTNAME_LABEL), [HOSTNAME_LABEL], HOSTS, id="hosts"),
        pytest.param(("block", "rack"), ["block", "rack"], [(("b1", "r1"), 5), (("b2", "r1"), 2)], id="racks"),
        pytest.param(("block",), ["block"], [(("b1",), 5), (("b2",), 2)], id="blocks"),
        pytest.param(("block", "shelf"), [HOSTNAME_LABEL], HOSTS, id="nodes outside the topology"),
    ],
)
def test_what_is_written(version: str, levels: tuple[str, ...], written: list[str], domains: Any) -> None:
    assert read(topology_assignment(NODES, levels, LABELS, version)) == (written, domains)


def test_a_node_that_is_gone_has_its_own_name() -> None:
    assert read(topology_assignment({"gone": 1}, ("block",), {}, "v1beta2")) == ([HOSTNAME_LABEL], [(("gone",), 1)])


@pytest.mark.parametrize("levels", [["block"], ["block", HOSTNAME_LABEL], []])
@in_virtual_time
async def test_the_levels_are_those_of_the_topology_of_its_flavor(levels: list[str]) -> None:
    nodes, cluster_wide = {"n1": 1, "n3": 1}, {"namespace": ""}
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    topology = [custom(KUEUE_API_VERSION, "Topology", "racks", metadata=cluster_wide, spec=spec)] if levels else []
    flavor_spec = {"topologyName": "racks"}
    flavor = custom(KUEUE_API_VERSION, "ResourceFlavor", "racked", metadata=cluster_wide, spec=flavor_spec)
    named = [node(name, labels=LABELS[name]) for name in nodes]
    scene = Scene(*queues(), *named, flavor, *topology, TRAIN, PENDING)
    begin(scene, Admit("team/w", "Workload", "cluster", (AdmittedPodSet("main", 2, {GPU_RESOURCE: "racked"}, nodes),)))
    await scene.executor.admissions.drain()
    (part,) = scene.get("workloads", "w")["status"]["admission"]["podSetAssignments"]
    hosts = [(("host-1",), 1), (("n3",), 1)]
    domains = [(("b1",), 2)] if levels == ["block"] else hosts
    assert read(part["topologyAssignment"]) == (["block"] if levels == ["block"] else [HOSTNAME_LABEL], domains)
