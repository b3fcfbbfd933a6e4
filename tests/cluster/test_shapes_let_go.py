"""Shapes that no pod has any more are let go, and neither older snapshots nor the expected mix notice."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from reference.park import bound, gpu_node, pod
from windlass.cluster import pod_mix_history
from windlass.cluster import store as store_module
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.placement.workload_mix import WorkloadMix, mix_of


def mix(store: Store) -> WorkloadMix:
    snapshot = store.snapshot()
    return mix_of((snapshot.shapes[number], count) for number, count in enumerate(snapshot.decided_by_shape.tolist()))


@pytest.fixture
def few() -> Iterator[Store]:
    """A store that lets shapes go as soon as most of them have no pod."""
    kept, store_module.MIN_SHAPES = store_module.MIN_SHAPES, 4
    yield Store()
    store_module.MIN_SHAPES = kept


def test_ten_thousand_pods_of_their_own_shape_one_after_the_other(few: Store) -> None:
    few.apply([Put(gpu_node("n", 8)), Put(bound(pod("stays", 1), "n"))])
    for number in range(0, 2000, 20):
        names = [f"p{number + i}" for i in range(20)]
        few.apply(Put(pod(name, 1, cpu=f"{number + i + 1}m")) for i, name in enumerate(names))
        few.snapshot()
        few.apply(Deleted("Pod", f"default/{name}") for name in names)
    assert len(few.snapshot().shapes) <= 50


def test_an_older_snapshot_keeps_its_shapes(few: Store) -> None:
    few.apply([Put(gpu_node("n", 8)), *(Put(pod(f"p{i}", 1, cpu=f"{i + 1}m")) for i in range(20))])
    older = few.snapshot()
    shapes = [older.shapes[number].requests for number in older.pods.shape.tolist()]
    few.apply(Deleted("Pod", f"default/p{i}") for i in range(18))
    few._most_shapes = 0
    newer = few.snapshot()
    assert len(newer.shapes) == 2
    assert [older.shapes[number].requests for number in older.pods.shape.tolist()] == shapes
    alive = newer.pods.alive == 1
    assert [newer.shapes[number].requests for number in newer.pods.shape[alive].tolist()] == shapes[18:]


@pytest.mark.parametrize("seed", range(20))
def test_plans_and_the_expected_mix_are_those_of_a_store_that_keeps_all(few: Store, seed: int) -> None:
    rng, plain, caches = Random(seed), Store(), (EngineCache(), EngineCache())
    plain._most_shapes = 10**9
    for store in (few, plain):
        store.apply([Put(gpu_node(f"n{i}", 8)) for i in range(3)])
    alive: list[str] = []
    for number in range(120):
        deltas: list[Put | Deleted] = []
        if alive and rng.random() < 0.6:
            deltas.append(Deleted("Pod", f"default/{alive.pop(rng.randrange(len(alive)))}"))
        share = rng.choice(["", "0.25", "0.5"])
        memory = {"memory": f"{number + 1}Mi"}
        asked = pod(f"p{number}", share=share) if share else pod(f"p{number}", rng.randint(1, 4), asks=memory)
        if rng.random() < 0.3:
            asked = pod(f"p{number}", rng.randint(1, 4))
        alive.append(f"p{number}")
        plans = []
        for store, cache in zip((few, plain), caches, strict=True):
            store.apply([*deltas, Put(asked)])
            snapshot = store.snapshot()
            plans.append(decide(snapshot, EngineConfig(), 0, cache))
            store.mark_decided(snapshot.pods.pending())
        assert plans[0] == plans[1]
    assert mix(few) == mix(plain)
    assert len(few.snapshot().shapes) < len(plain.snapshot().shapes)


def test_of_very_many_classes_the_rarest_are_forgotten(few: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_mix_history, "MAX_PAST_CLASSES", 3)
    few.apply([Put(gpu_node("n", 8))])
    for number in range(40):
        same = number if number >= 20 else number % 2
        few.apply([Put(pod(f"p{number}", 1, cpu=f"{same + 1}m"))])
        few.mark_decided(few.snapshot().pods.pending())
        few.apply([Deleted("Pod", f"default/p{number}")])
    few._most_shapes = 0
    few.snapshot()
    assert len(few.snapshot().shapes) <= 4
    assert {pod_class.cpu for pod_class in mix(few).all_classes} >= {1, 2}
