"""Rules between pods hold inside a gang with a topology: members placed earlier count for the later ones.

Random gangs with required anti-affinity and hard spread over nodes, racks and blocks, under required, preferred and no
level. Whatever starts obeys its rules, checked by counting; whatever is held has no legal placement at all, checked by
trying every one.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from random import Random
from typing import NamedTuple

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, HOSTNAME, QUEUE, RACK
from tests.peers.test_own_cases import GROUP_NAME, GROUP_SIZE, by_dump, queues

from windlass.model.unstructured import Unstructured

BLOCK = "example.com/block"
KEYS = (BLOCK, RACK, HOSTNAME)
REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{mode}-topology" for mode in ("required", "preferred", "unconstrained")
)


class Gang(NamedTuple):
    nodes: list[Unstructured]
    pods: list[Unstructured]
    free: dict[str, int]
    """Node → members that it has room for."""
    apart: str
    """Topology key of the anti-affinity; "" without one."""
    spread: tuple[str, int] | None
    """Topology key and maxSkew."""
    level: str
    """The required level; "" where none is."""

    @property
    def objects(self) -> list[Unstructured]:
        return [*self.nodes, *queues("q", gpus=1000, levels=KEYS), *self.pods]


def draw_gang(random: Random) -> Gang:
    nodes, free = [], {}
    per_pod = random.choice((1, 2, 4))
    for number in range(random.randint(2, 6)):
        gpus = random.choice((per_pod, 2 * per_pod, 8))
        rack = random.randrange(3)
        node = make.node(f"n{number}", 64, gpus, "a", f"r{rack}")
        node["metadata"]["labels"][BLOCK] = f"b{rack % 2}"
        nodes.append(node)
        free[f"n{number}"] = gpus // per_pod
    apart = random.choice(("", "", *KEYS))
    spread = random.choice((None, None, *((key, skew) for key in KEYS for skew in (1, 2))))
    mode, level = random.choice(
        (
            (REQUIRED, BLOCK),
            (REQUIRED, RACK),
            (PREFERRED, RACK),
            (PREFERRED, HOSTNAME),
            (UNCONSTRAINED, "true"),
        )
    )
    size = random.randint(2, 4)
    chosen = {"matchLabels": {GROUP_NAME: "ring"}}
    spec = make.pod_spec(1, per_pod)
    if apart:
        term = {"labelSelector": chosen, "topologyKey": apart}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if spread:
        key, skew = spread
        rule = {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": chosen,
        }
        spec["topologySpreadConstraints"] = [rule]
    pods = [
        make.pod(
            f"ring-{number}",
            spec,
            created=EPOCH,
            labels={GROUP_NAME: "ring", QUEUE: "q"},
            annotations={GROUP_SIZE: str(size), mode: level},
        )
        for number in range(size)
    ]
    return Gang(nodes, pods, free, apart, spread, level if mode == REQUIRED else "")


def is_legal(gang: Gang, places: tuple[str, ...]) -> bool:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in gang.nodes}
    if any(count > gang.free[name] for name, count in Counter(places).items()):
        return False
    if gang.level and len({labels[name][gang.level] for name in places}) > 1:
        return False
    if gang.apart and max(Counter(labels[name][gang.apart] for name in places).values()) > 1:
        return False
    if gang.spread:
        key, skew = gang.spread
        counts = Counter(labels[name][key] for name in places)
        everywhere = [counts[labels[name][key]] for name in labels]
        return max(everywhere) - min(everywhere) <= skew
    return True


@pytest.mark.parametrize("seed", range(150))
def test_what_starts_obeys_and_what_waits_has_to(seed: int) -> None:
    gang = draw_gang(Random(seed))
    plan = by_dump(gang.objects)
    places = tuple(bind.node for bind in plan.binds)
    if places:
        assert len(places) == len(gang.pods)
        assert is_legal(gang, places), places
        return
    legal = [choice for choice in combinations_with_replacement(gang.free, len(gang.pods)) if is_legal(gang, choice)]
    assert legal == [], plan.holds
