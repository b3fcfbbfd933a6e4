"""MIG requests in random worlds against a search that tries every placement on the empty nodes: a workload is called
infeasible only if it never fits, and always if one of its pods is larger than any node."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GROUP, MIG

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

STARTS = {
    "1g.10gb": (1, range(7)),
    "2g.20gb": (2, (0, 2, 4)),
    "3g.40gb": (4, (0, 4)),
    "4g.40gb": (4, (0,)),
    "7g.80gb": (8, (0,)),
}
"""Profile of an H100 → memory slices of an instance, and where it may start."""
PROFILES = tuple(STARTS)
MOST_CREATED = 8
"""Instances that are created for one pod."""
Node = tuple[int, tuple[int, ...]]
"""(GPUs that create instances, 0 for a node with fixed ones; its instances by profile)."""
Pod = tuple[str, int]
"""Profile and number of instances."""


@cache
def holds(gpus: tuple[int, ...], wanted: tuple[str, ...]) -> bool:
    """Whether GPUs with these used slices can create all the instances."""
    if not wanted:
        return True
    size, starts = STARTS[wanted[0]]
    for index, used in enumerate(gpus):
        for start in starts:
            mask = ((1 << size) - 1) << start
            if not used & mask:
                changed = tuple(sorted((*gpus[:index], used | mask, *gpus[index + 1 :])))
                if holds(changed, wanted[1:]):
                    return True
    return False


def node_takes(node: Node, pods: tuple[Pod, ...]) -> bool:
    created, fixed = node
    if not created:
        return all(
            sum(count for profile, count in pods if profile == name) <= has
            for name, has in zip(PROFILES, fixed, strict=True)
        )
    if any(count > MOST_CREATED for _, count in pods):
        return False
    wanted = sorted((profile for profile, count in pods for _ in range(count)), key=lambda name: -STARTS[name][0])
    if sum(STARTS[name][0] for name in wanted) > 8 * created:
        return False
    return holds((0,) * created, tuple(wanted))


def fits(nodes: list[Node], pods: list[Pod], placed: tuple[tuple[Pod, ...], ...] | None = None) -> bool:
    """Whether the empty nodes take all pods, each whole on one node."""
    placed = placed or ((),) * len(nodes)
    if not pods:
        return True
    for index, node in enumerate(nodes):
        more = (*placed[index], pods[0])
        if node_takes(node, more) and fits(nodes, pods[1:], (*placed[:index], more, *placed[index + 1 :])):
            return True
    return False


def draw_node(rng: Random) -> Node:
    if rng.random() < 0.6:
        return rng.randint(1, 2), ()
    return 0, tuple(rng.choice((0, 0, 1, 2, 4)) for _ in PROFILES)


def draw_pods(rng: Random) -> list[Pod]:
    profiles = rng.sample(PROFILES, rng.choice((1, 1, 2, 3)))
    return [(rng.choice(profiles), rng.choice((1, 1, 1, 2, 2, 3, 4, 7, 9))) for _ in range(rng.randint(1, 4))]


def node_tree(name: str, node: Node) -> Unstructured:
    created, fixed = node
    if created:
        return make.mig_node(name, 64, created, "a", "r1")
    tree = make.node(name, 64, 0, "a", "r1")
    labels = {"nvidia.com/gpu.product": make.H100, "nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "1"}
    tree["metadata"]["labels"] |= labels
    for amounts in (tree["status"]["capacity"], tree["status"]["allocatable"]):
        amounts |= {MIG + profile: str(has) for profile, has in zip(PROFILES, fixed, strict=True) if has}
    return tree


def pod_tree(name: str, pod: Pod, **more: object) -> Unstructured:
    devices = {MIG + pod[0]: str(pod[1])}
    resources = {"requests": {"cpu": "1", **devices}, "limits": devices}
    return make.pod(name, {"containers": [{"name": "main", "resources": resources}]}, created=EPOCH, **more)


def plan_of(nodes: list[Node], pods: list[Pod], before: list[Pod]) -> Plan:
    """`before`: single pods of higher priority, which are placed first."""
    trees = [node_tree(f"n{number}", node) for number, node in enumerate(nodes)]
    trees.append(make.pod_group("g", len(pods), EPOCH))
    trees += [pod_tree(f"g{number}", pod, labels={GROUP: "g"}) for number, pod in enumerate(pods)]
    for number, pod in enumerate(before):
        tree = pod_tree(f"b{number}", pod)
        tree["spec"]["priority"] = 10
        trees.append(tree)
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in trees])
    return decide(store.snapshot(EPOCH), EngineConfig(max_explained_holds=8), EPOCH)


@pytest.mark.parametrize("seed", range(150))
def test_infeasible_is_said_of_what_never_fits_and_of_nothing_else(seed: int) -> None:
    rng = Random(seed)
    nodes, pods = [draw_node(rng) for _ in range(rng.randint(1, 3))], draw_pods(rng)
    before = draw_pods(rng)[:2] if rng.random() < 0.5 else []
    plan = plan_of(nodes, pods, before)
    hold = next((hold for hold in plan.holds if hold.workload.endswith("/g")), None)
    feasible = fits(nodes, pods)
    if hold is None:
        assert feasible
        return
    world = f"{nodes} {pods} {before}: {hold.verdict.code} {hold.verdict.message}"
    assert not (feasible and hold.verdict.is_infeasible), world
    if any(not any(node_takes(node, (pod,)) for node in nodes) for pod in pods):
        assert hold.verdict.is_infeasible, world
