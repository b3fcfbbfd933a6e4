"""What is charged to a flavor runs on its nodes: random worlds whose flavors and pods contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.invariants.objects import EPOCH, GROUP, QUEUE, flavor, local_queue, node, pod, pod_group, pod_set, workload

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
    assert admitted > 50
