"""One step of a world: decide, check the plan, carry it out, check the world."""

from __future__ import annotations

import copy
from random import Random

from tests.invariants.draws import GRACE
from tests.invariants.judge import Excess, grown, ill_gpus, mig_profile, overcommitted
from tests.invariants.objects import GROUP, NAMESPACE, OWNER, PODSET
from tests.invariants.world import World

from windlass.engine import decide
from windlass.model.plan import Plan

NOBODYS = ("ClusterQueueStopped", "LocalQueueStopped", "GangBelowMinimum")
"""Reasons of evictions that have no preemptor."""
MANY_ROUNDS = 40


def same(plan: Plan) -> tuple[object, ...]:
    """What is compared of two plans."""
    held = sorted((hold.workload, hold.verdict.code, hold.verdict.detail) for hold in plan.holds)
    return list(plan.evicts), list(plan.admits), list(plan.binds), held


def step(world: World, rng: Random, again: bool = True) -> bool:
    """Whether the plan changed anything."""
    plan = world.plan()
    if again:
        other = decide(world.store.snapshot(world.now), world.config, world.now)
        assert same(other) == same(plan), "the same without a memo"
    if again and not world.has_had_mig:
        other = decide(world.afresh(rng), world.config, world.now)
        assert same(other) == same(plan), "the same objects in another order"
    check_evictions(world, plan)
    check_devices(world, plan)
    check_minimum(world, plan)
    broken = {key for key in world.groups if world.is_broken(key)}
    excess = overcommitted(world.nodes, world.pods.values())
    before = world.usage()
    changed = world.carry_out(plan)
    assert world.books.pushed_over(before, world.usage()) == []
    check_world(world, broken, excess)
    return changed


def check_evictions(world: World, plan: Plan) -> None:
    admits = {admit.workload: admit for admit in plan.admits}
    binds = {bind.pod: bind for bind in plan.binds}
    for evict in plan.evicts:
        assert set(evict.pods) <= world.pods.keys()
        assert all(world.pods[key]["spec"].get("nodeName") for key in evict.pods)
        if evict.reason in NOBODYS:
            assert evict.for_workload == ""
            continue
        comes = admits.get(evict.for_workload) or binds.get(evict.for_workload)
        assert comes is not None, f"{evict.workload} goes for nobody"
        waits = comes.after
        assert evict.workload in waits, f"{evict.for_workload} doesn't wait for {evict.workload}"
    leaving = {evict.workload for evict in plan.evicts}
    for admit in plan.admits:
        assert admit.workload not in leaving, f"{admit.workload} comes and goes"
    assert len(binds) == len(plan.binds), "a pod is bound twice"
    assert len(admits) == len(plan.admits)
    said = [hold.workload for hold in plan.holds]
    assert len(said) == len(set(said))


def check_minimum(world: World, plan: Plan) -> None:
    """Every gang that the plan starts is whole, all of it, at once."""
    bound = {bind.pod for bind in plan.binds}
    for admit in plan.admits:
        if admit.workload in world.groups:
            coming = {f"{NAMESPACE}/{one['metadata']['name']}" for one in world.members(admit.workload)} & bound
            there = world.running(admit.workload) + len(coming)
            assert there >= world.groups[admit.workload]["spec"]["minMember"], admit
        elif admit.workload in world.workloads:
            sets = {pod_set["name"]: pod_set for pod_set in world.workloads[admit.workload]["spec"]["podSets"]}
            assert {pod_set.name for pod_set in admit.pod_sets} == sets.keys()
            for one in admit.pod_sets:
                least = sets[one.name].get("minCount", sets[one.name]["count"])
                assert least <= one.count <= sets[one.name]["count"]
                assert sum(one.nodes.values()) == one.count


def check_devices(world: World, plan: Plan) -> None:
    """No GPU that is ill gets new work, and a MIG instance is made on one GPU."""
    for bind in plan.binds:
        given = [device.index for device in bind.devices]
        assert not ill_gpus(world.nodes[bind.node]) & set(given), f"{bind.pod} on a GPU that is ill"
        if mig_profile(world.pods[bind.pod]):
            assert len(given) == 1


def check_world(world: World, broken: set[str], excess: Excess) -> None:
    """`broken`: gangs that were below their minimum before; `excess`: what was given too often already."""
    assert grown(excess, overcommitted(world.nodes, world.pods.values())) == []
    for key in world.groups:
        assert not world.is_broken(key) or key in broken, f"{key} starts below its minimum"
        if world.is_settled:
            late = world.now - world.below_since.get(key, world.now)
            assert late <= GRACE, f"{key} is below its minimum for {late} s"
    for key, tree in world.workloads.items():
        for part in tree["status"].get("admission", {}).get("podSetAssignments", ()):
            members = [
                pod for pod in world.members_of_workload(key) if pod["metadata"]["labels"][PODSET] == part["name"]
            ]
            assert len(members) <= part["count"]


def check_nothing_is_forgotten(world: World) -> None:
    """At rest, whatever has no node is said to wait."""
    plan = world.plan()
    said = {hold.workload for hold in plan.holds}
    for key, tree in world.pods.items():
        if not tree["spec"].get("nodeName"):
            meta = tree["metadata"]
            owner = meta["labels"].get(GROUP) or meta["annotations"].get(OWNER)
            assert (f"{NAMESPACE}/{owner}" if owner else key) in said, f"nothing is said about {key}"


def come_to_rest(world: World, rng: Random) -> int:
    """Nothing is submitted and nothing ends; the number of rounds that it takes until nothing changes."""
    trail = []
    for turn in range(MANY_ROUNDS):
        world.pass_time(10)
        before = copy.deepcopy(world.pods)
        for key in sorted(world.workloads):
            world.make_pods(key)
        changed = step(world, rng, again=False)
        trail.append((changed, len(before)))
        if not changed and world.is_settled:
            check_nothing_is_forgotten(world)
            return turn
    raise AssertionError(f"evictions go round in circles: {trail}")
