"""One case of Kueue's topology tests, put to the search in process.

The scorer's own reading of the objects (usable nodes, free resources, requests) feeds the search, so that what is
scored is the search alone; quota never binds in these cases.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from windlass.model.workload import TopologyRequest
from windlass.placement.topology import (
    DomainTree,
    MatrixCapacity,
    TopologyFailure,
    TopologyPodSetRequest,
    plan_topology,
)

Json = dict[str, Any]


def load_scorer(cases_dir: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kueue_score", cases_dir / "engine" / "kueue" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    scorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer


def scored_cases(cases_dir: Path, suite: str) -> Iterator[tuple[str, Json, Json]]:
    """(name, objects, expectation) of the cases that count."""
    for folder in sorted((cases_dir / "engine" / "kueue" / suite).iterdir()):
        expect = msgspec.json.decode((folder / "expect.json").read_bytes())
        if expect["score"] == "exact":
            yield folder.name, msgspec.json.decode((folder / "objects.json").read_bytes()), expect


def topology_request(pod_set: Json) -> TopologyRequest | None:
    raw = pod_set.get("topologyRequest")
    if not raw:
        return None
    layers = [(c["topology"], c["size"]) for c in raw.get("podsetSliceRequiredTopologyConstraints") or []]
    if not layers and raw.get("podSetSliceRequiredTopology"):
        layers = [(raw["podSetSliceRequiredTopology"], raw.get("podSetSliceSize") or 0)]
    mode = next((mode for mode in ("required", "preferred") if raw.get(mode)), "unconstrained")
    return TopologyRequest(
        mode=mode,
        level=raw.get(mode) or "" if mode != "unconstrained" else "",
        slice_level=layers[0][0] if layers else "",
        slice_size=layers[0][1] if layers else 0,
        inner_slices=tuple(layers[1:]),
        group=raw.get("podSetGroupName") or "",
    )


class Case:
    """The objects of a case and what the search answers. What it places is gone from then on."""

    def __init__(self, scorer: ModuleType, objects: Json) -> None:
        self.scorer = scorer
        self.world = scorer.World(objects)
        self.free = self._free()

    def pending(self) -> list[str]:
        reserved = self.scorer.cond_true
        return [key for key, o in self.world.workloads.items() if not reserved(o, "QuotaReserved")]

    def pod_sets(self, key: str) -> list[Json]:
        sets: list[Json] = self.world.workloads[key]["spec"]["podSets"]
        return sets

    def flavor_with_topology(self) -> str:
        return next(name for name, o in self.world.flavors.items() if o["spec"].get("topologyName"))

    def place(self, flavor: str, pod_sets: list[Json]) -> dict[str, dict[str, int]] | TopologyFailure:
        """Node → pods of every pod set."""
        levels = self.world.levels(flavor)
        names = [name for name in sorted(self.world.nodes) if self._in_flavor(name, flavor)]
        tree = DomainTree.build(levels, [self.world.domain(name, levels) for name in names], names)
        asks = [TopologyPodSetRequest(p.get("name", "main"), p["count"], topology_request(p)) for p in pod_sets]
        topology = self.world.flavors[flavor]["spec"]["topologyName"]
        answer = plan_topology(tree, asks, self._room(names, flavor, pod_sets), topology)
        if isinstance(answer, TopologyFailure):
            return answer
        placed = {placement.name: placement.by_node(names) for placement in answer.placements}
        for pod_set in pod_sets:
            self._take(pod_set, placed[pod_set.get("name", "main")])
        return placed

    def admission(self, key: str, flavor: str, pod_sets: list[Json]) -> Json:
        """The answer for one workload as a decision of a plan document, which the scorer reads."""
        answer = self.place(flavor, pod_sets)
        if isinstance(answer, TopologyFailure):
            return {"decision": "hold", "workload": key, "message": answer.message}
        placed = [
            {
                "name": pod_set.get("name", "main"),
                "count": pod_set["count"],
                "flavors": dict.fromkeys(self.scorer.pod_requests(pod_set["template"]["spec"]), flavor),
                "nodes": answer[pod_set.get("name", "main")],
            }
            for pod_set in pod_sets
        ]
        return {"decision": "admit", "workload": key, "podSets": placed}

    def judge(self, expect: Json, decisions: list[Json]) -> tuple[list[str], Json]:
        options = SimpleNamespace(loose=False, strict_held=True)
        differences, info = self.scorer.judge(expect, self.world, {"decisions": decisions}, options)
        return differences, info

    def _in_flavor(self, node: str, flavor: str) -> bool:
        anyone = {"tolerations": [{"operator": "Exists"}]}
        return self.world.node_problem(node, flavor, anyone) is None

    def _room(self, names: list[str], flavor: str, pod_sets: list[Json]) -> MatrixCapacity:
        specs = [p["template"]["spec"] for p in pod_sets]
        requests = [self.scorer.pod_requests(spec) for spec in specs]
        resources = sorted({resource for request in requests for resource in request})
        usable = [[self.world.node_problem(name, flavor, spec) is None for name in names] for spec in specs]
        free = [[_base(self.free[name].get(resource, 0)) for resource in resources] for name in names]
        return MatrixCapacity(
            resources,
            np.array(free, dtype=np.int64).reshape(-1, len(resources)),
            np.array([[_base(request.get(resource, 0)) for resource in resources] for request in requests]),
            caps=[np.where(mask, 10**9, 0) for mask in usable],
        )

    def _take(self, pod_set: Json, nodes: dict[str, int]) -> None:
        for resource, amount in self.scorer.pod_requests(pod_set["template"]["spec"]).items():
            for node, pods in nodes.items():
                self.free[node][resource] = self.free[node].get(resource, Fraction(0)) - amount * pods

    def _free(self) -> dict[str, dict[str, Fraction]]:
        """What is known only by domain is laid on the nodes of that domain, fullest first."""
        free, by_domain = self.world.free()
        for levels, values, usage in by_domain:
            inside = [n for n in self.world.nodes if self.world.domain(n, levels) == tuple(values)]
            for resource, amount in usage.items():
                for node in sorted(inside, key=lambda n: free[n].get(resource, 0)):
                    part = min(amount, max(free[node].get(resource, Fraction(0)), Fraction(0)))
                    free[node][resource] = free[node].get(resource, Fraction(0)) - part
                    amount -= part
        return dict(free)


def _base(quantity: Fraction | int) -> int:
    """Thousandths, so that milli-CPU are whole numbers."""
    return int(quantity * 1000)
