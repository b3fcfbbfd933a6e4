"""What is charged to a flavor runs on its nodes: random worlds whose flavors and pods contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.invariants.objects import (
    EPOCH,
    GROUP,
    POOL,
    QUEUE,
    RACK,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_set,
    workload,
)

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.model.affinity import matches_required_node_affinity
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Admit, AdmittedPodSet
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.pod import Pod, PodSpec
from windlass.model.taints import find_untolerated_taint
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GPU = "nvidia.com/gpu"
KEYS = {"pool": ("a", "b"), "zone": ("x", "y"), "tier": ("spot",)}
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "spot", "operator": "Exists"}


class World:
    """A cluster, its queue, and work that waits there."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.nodes = [self._node(f"n{number}") for number in range(self.rng.randint(1, 4))]
        self.flavors = {name: self._flavor(name) for name in ("gpu-1", "gpu-2", "cpu-1", "cpu-2")}
        self.queue = self._queue()
        self.work = [tree for number in range(self.rng.randint(1, 4)) for tree in self._work(f"w{number}")]

    def objects(self) -> list[Unstructured]:
        return [*self.nodes, *self.flavors.values(), self.queue, local_queue("q", "q"), *self.work]

    def _labels(self, chance: float) -> dict[str, str]:
        return {key: self.rng.choice(values) for key, values in KEYS.items() if self.rng.random() < chance}

    def _node(self, name: str) -> Unstructured:
        tree = node(name, 16, self.rng.choice((2, 4)), "", "")
        tree["metadata"]["labels"] |= self._labels(0.8)
        if self.rng.random() < 0.3:
            tree["spec"]["taints"] = [TAINT]
        return tree

    def _flavor(self, name: str) -> Unstructured:
        tree = flavor(name, self._labels(0.5))
        if self.rng.random() < 0.4:
            tree["spec"]["tolerations"] = [TOLERATION]
        return tree

    def _queue(self) -> Unstructured:
        def group(resource: str, names: tuple[str, ...], most: int) -> Unstructured:
            cells = [
                {"name": name, "resources": [{"name": resource, "nominalQuota": self.rng.randint(1, most)}]}
                for name in names[: self.rng.randint(1, 2)]
            ]
            return {"coveredResources": [resource], "flavors": cells}

        groups = [group(GPU, ("gpu-1", "gpu-2"), 6), group("cpu", ("cpu-1", "cpu-2"), 12)]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": spec,
        }

    def _pod_spec(self) -> Unstructured:
        amounts = {"cpu": "1", GPU: "1"}
        spec: Unstructured = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
        spec["nodeSelector"] = self._labels(0.15)
        if self.rng.random() < 0.4:
            terms = [{"matchExpressions": [self._expression()]} for _ in range(self.rng.randint(1, 2))]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec["affinity"] = {"nodeAffinity": required}
        if self.rng.random() < 0.2:
            spec["tolerations"] = [TOLERATION]
        return spec

    def _expression(self) -> Unstructured:
        key = self.rng.choice([*KEYS])
        operator = self.rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = [self.rng.choice(KEYS[key])] if operator in ("In", "NotIn") else []
        return {"key": key, "operator": operator, **({"values": values} if values else {})}

    def _work(self, name: str) -> Iterator[Unstructured]:
        created = EPOCH + self.rng.randint(0, 60)
        if self.rng.random() < 0.5:
            sets = [
                pod_set(f"s{index}", self.rng.randint(1, 3), self._pod_spec())
                for index in range(self.rng.randint(1, 2))
            ]
            yield workload(name, "q", sets, priority=0, created=created)
            return
        size, spec = self.rng.randint(1, 4), self._pod_spec()
        yield pod_group(name, self.rng.randint(1, size), created, "q")
        for number in range(size):
            labels = {GROUP: name, QUEUE: "q"}
            yield pod(f"{name}-{number}", spec, created=created, labels=labels)

    def plan(self) -> Plan:
        return plan_objects([decode_object(tree) for tree in self.objects()], Settings(), EPOCH + 100)[0]

    def spec_of(self, admit: Admit, pod_set: AdmittedPodSet) -> PodSpec:
        for tree in self.work:
            if tree["kind"] == "Workload" and f"team/{tree['metadata']['name']}" == admit.workload:
                (found,) = [part for part in tree["spec"]["podSets"] if part["name"] == pod_set.name]
                return decode(pod("x", found["template"]["spec"], created=EPOCH)).spec
            if tree["kind"] == "Pod" and f"team/{tree['metadata']['labels'][GROUP]}" == admit.workload:
                return decode(tree).spec
        raise AssertionError(admit.workload)


def decode(tree: Unstructured) -> Pod:
    found = decode_object(tree)
    assert isinstance(found, Pod)
    return found


def problems(world: World, plan: Plan) -> Iterator[str]:
    nodes = {tree["metadata"]["name"]: tree for tree in world.nodes}
    for admit in plan.admits:
        for part in admit.pod_sets:
            spec = world.spec_of(admit, part)
            chosen = [decode_flavor(world.flavors[name]) for name in dict.fromkeys(part.flavors.values())]
            assert sum(part.nodes.values()) == part.count
            for name in part.nodes:
                found = decode_object(nodes[name])
                assert isinstance(found, Node)
                yield from _problems_on(found, spec, chosen, f"{admit.workload}/{part.name} on {name}")


def decode_flavor(tree: Unstructured) -> tuple[str, dict[str, str], PodSpec]:
    """Its name, its labels, and a pod with its tolerations."""
    spec = tree["spec"]
    tolerant = decode(pod("x", {"containers": [], "tolerations": spec.get("tolerations", [])}, created=EPOCH)).spec
    return tree["metadata"]["name"], spec.get("nodeLabels", {}), tolerant


def _problems_on(
    found: Node, spec: PodSpec, chosen: list[tuple[str, dict[str, str], PodSpec]], where: str
) -> Iterator[str]:
    for name, labels, _ in chosen:
        if not labels.items() <= found.labels.items():
            yield f"{where} is charged to {name} with {labels}, the node has {found.labels}"
    if not matches_required_node_affinity(Pod(spec=spec), found.labels, found.name):
        yield f"{where}: the pod's own rules"
    tolerations = [*spec.tolerations, *(item for _, _, tolerant in chosen for item in tolerant.tolerations)]
    if find_untolerated_taint(found.spec.taints, tuple(tolerations)) is not None:
        yield f"{where}: a taint"


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_every_pod_runs_on_a_node_of_each_flavor_that_it_is_charged_to(first: int) -> None:
    admitted = 0
    for seed in range(first, first + 100):
        world = World(seed)
        plan = world.plan()
        admitted += len(plan.admits)
        assert [*problems(world, plan)] == [], f"world {seed}"
    assert admitted > 30


def flavored(*nodes: Unstructured, first: dict[str, str], second: dict[str, str], quota: int) -> list[Unstructured]:
    """Nodes, and a queue with two flavors of that quota each."""
    cells = {name: {GPU: {"nominalQuota": quota}} for name in ("first", "second")}
    queue = cluster_queue("q", cells)
    return [*nodes, flavor("first", first), flavor("second", second), queue, local_queue("q", "q")]


def group(size: int, minimum: int, **spec: object) -> list[Unstructured]:
    made = {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}], **spec}
    labels = {GROUP: "g", QUEUE: "q"}
    pods = [pod(f"g-{number}", made, created=EPOCH, labels=labels) for number in range(size)]
    return [pod_group("g", minimum, EPOCH, "q"), *pods]


def test_members_of_an_elastic_gang_in_two_flavors_are_listed_by_flavor() -> None:
    nodes = [node(f"n-{pool}", 16, 1, pool, "") for pool in ("a", "b")]
    objects = flavored(*nodes, first={POOL: "a"}, second={POOL: "b"}, quota=1)
    trees = [*objects, *group(2, 1)]
    (admit,) = plan_objects([decode_object(tree) for tree in trees], Settings(), EPOCH + 100)[0].admits
    assert [(part.name, part.count, part.flavors, part.nodes) for part in admit.pod_sets] == [
        ("main", 1, {GPU: "first"}, {"n-a": 1}),
        ("main", 1, {GPU: "second"}, {"n-b": 1}),
    ]


def test_a_pod_on_a_node_of_two_flavors_is_charged_to_the_one_that_it_selects() -> None:
    """Admission has added the labels of its flavor to it."""
    tree = node("n", 16, 4, "a", "r")
    objects = flavored(tree, first={POOL: "a"}, second={RACK: "r"}, quota=1)
    running = pod("p", {"containers": [], "nodeName": "n"}, created=EPOCH, labels={QUEUE: "q"})
    running["spec"] |= {"nodeSelector": {RACK: "r"}, "containers": group(1, 1)[1]["spec"]["containers"]}
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in (*objects, running)])
    (found,) = store.snapshot(EPOCH + 100).workloads
    assert found.admission is not None
    assert [part.flavors for part in found.admission.assignments] == [{GPU: "second"}]


def test_flavors_of_two_resources_that_contradict_each_other_are_not_combined() -> None:
    """The first GPU flavor goes together with no flavor for CPUs: the second one is taken, though it comes later."""
    world = World(0)
    world.nodes = [node(f"n-{pool}", 16, 4, pool, "") for pool in ("a", "b")]
    world.flavors = {
        "gpu-1": flavor("gpu-1", {POOL: "a"}),
        "gpu-2": flavor("gpu-2", {POOL: "b"}),
        "cpu-1": flavor("cpu-1", {POOL: "b"}),
    }
    cells = {"gpu-1": {GPU: {"nominalQuota": 4}}, "gpu-2": {GPU: {"nominalQuota": 4}}}
    world.queue = cluster_queue("q", cells)
    cpus = {"name": "cpu-1", "resources": [{"name": "cpu", "nominalQuota": 8}]}
    world.queue["spec"]["resourceGroups"].append({"coveredResources": ["cpu"], "flavors": [cpus]})
    amounts = {"cpu": "1", GPU: "1"}
    spec: Unstructured = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
    world.work = [workload("w", "q", [pod_set("main", 1, spec)], priority=0, created=EPOCH)]
    (admit,) = world.plan().admits
    assert (admit.pod_sets[0].flavors, admit.pod_sets[0].nodes) == ({"cpu": "cpu-1", GPU: "gpu-2"}, {"n-b": 1})
    del world.queue["spec"]["resourceGroups"][0]["flavors"][1]
    (hold,) = world.plan().holds
    assert hold.verdict.code == "KUEUE_FLAVOR_MISMATCH"
    assert "flavor gpu-1 has example.com/pool=a, and flavor cpu-1 has example.com/pool=b" in hold.verdict.detail
