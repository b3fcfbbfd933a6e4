"""The best that could be done on small instances, found by CP-SAT: is there a place for a gang, and which victims
cost the least?

A second, declarative account of what fits: CPUs on nodes, whole GPUs on free devices, shares on devices with room,
pods of a set in one rack where that is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ortools.sat.python import cp_model


class Node(NamedTuple):
    name: str
    rack: str
    cpus: int
    free: tuple[int, ...]


"""With its free CPUs, and the free thousandths of each of its GPUs."""


class Shape(NamedTuple):
    cpus: int
    gpus: int
    milli: int


"""`gpus` devices, `milli` thousandths of each."""


class Victim(NamedTuple):
    """A running workload that may be evicted."""

    key: str
    cost: int
    cpus: Mapping[str, int]
    """Node → CPUs that come free."""
    devices: Mapping[tuple[str, int], int]
    """Node and GPU → thousandths that come free."""


def cheapest(
    nodes: Sequence[Node], sets: Sequence[tuple[Shape, int, str]], victims: Sequence[Victim] = ()
) -> int | None:
    """The least cost of victims with which all sets (shape, pods, topology) find a place; None where there is none.

    Topology: "" anywhere, "rack" all pods of the set in one rack, "host" all on one node.
    """
    model = cp_model.CpModel()
    gone = {victim.key: model.new_bool_var(victim.key) for victim in victims}
    cpus: dict[str, list[cp_model.LinearExprT]] = {node.name: [] for node in nodes}
    devices: dict[tuple[str, int], list[cp_model.LinearExprT]] = {
        (node.name, index): [] for node in nodes for index in range(len(node.free))
    }
    for number, (shape, count, topology) in enumerate(sets):
        chosen = {}
        if topology:
            domains = sorted({_domain(node, topology) for node in nodes})
            chosen = {domain: model.new_bool_var(f"{number}-{domain}") for domain in domains}
            model.add_exactly_one(chosen.values())
        for member in range(count):
            here = {node.name: model.new_bool_var(f"{number}-{member}-{node.name}") for node in nodes}
            model.add_exactly_one(here.values())
            for node in nodes:
                if topology:
                    model.add_implication(here[node.name], chosen[_domain(node, topology)])
                cpus[node.name].append(here[node.name] * shape.cpus)
                used = [model.new_bool_var("") for _ in node.free]
                model.add(sum(used) == here[node.name] * shape.gpus)
                for index, one in enumerate(used):
                    devices[node.name, index].append(one * shape.milli)
    for node in nodes:
        back = [gone[victim.key] * victim.cpus.get(node.name, 0) for victim in victims]
        model.add(sum(cpus[node.name]) <= node.cpus + sum(back))
        for index, free in enumerate(node.free):
            more = [gone[victim.key] * victim.devices.get((node.name, index), 0) for victim in victims]
            model.add(sum(devices[node.name, index]) <= free + sum(more))
    model.minimize(sum(gone[victim.key] * victim.cost for victim in victims))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return round(solver.objective_value)


def _domain(node: Node, topology: str) -> str:
    return node.rack if topology == "rack" else node.name
