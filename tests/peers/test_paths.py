"""The peers' cases through every way in: the scheduler's cache and the virtual cluster give the same plans as a dump.

`test_peer_cases` scores plans of a dump. The live scheduler and the embedded cluster see the same objects by way of the
scheduler's cache, one by one and in any order; scenarios and traces by way of the virtual cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.peers.scorers import Peer

from windlass.cluster.delta import Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.dump.cluster_loader import load_cluster
from windlass.dump.configuration import load_configuration_file
from windlass.engine import decide
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.priority import resolve_priorities
from windlass.planner import engine_config, visible_objects
from windlass.scheduler.cache import SchedulerCache as SchedulerCache
from windlass.scheduler.options import SchedulerOptions
from windlass.simulate.clock import VIRTUAL_EPOCH
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster as VirtualCluster

pytestmark = pytest.mark.cases


def settings_of(case: Path) -> Settings:
    path = case / "config.yaml"
    return load_configuration_file(path).settings if path.exists() else Settings()


def planned(snapshot: Snapshot, settings: Settings, now: int) -> Plan:
    return decide(snapshot, engine_config(settings), now)


def of_dump(objects: list[object], settings: Settings, now: int) -> Snapshot:
    store = Store()
    store.apply(Put(thing) for thing in objects)
    return store.snapshot(now)


def of_cache(objects: list[object], settings: Settings, now: int) -> Snapshot:
    """As the informers would bring them: kind after kind in any order, and a settling in between."""
    cache = SchedulerCache(SchedulerOptions(settings=settings, shadow=True))
    mixed = list(objects)
    Random(len(mixed)).shuffle(mixed)
    half = len(mixed) // 2
    for part in (mixed[:half], mixed[half:]):
        cache.push([Put(thing) for thing in part])
        cache.flush(now)
    cache.flush(now + 60)  # no pod waits any longer for an owner that is not there
    return cache.store.snapshot(now)


def of_virtual_cluster(case: Path, now: int) -> Snapshot:
    cluster = VirtualCluster()
    for tree in trees(json.loads((case / "objects.json").read_text())):
        cluster.update(tree)
    return cluster.snapshot(now - VIRTUAL_EPOCH)


def trees(document: dict[str, object]) -> Iterator[dict[str, object]]:
    items = document.get("items")
    if not isinstance(items, list):
        yield document
        return
    for item in items:
        yield from trees(item)


@pytest.mark.parametrize("name", ["kueue", "kai"])
def test_every_way_in_leads_to_the_same_plan(name: str, cases_dir: Path) -> None:
    peer = Peer(cases_dir, name)
    different: dict[str, str] = {}
    for suite in peer.suites():
        for case in peer.cases(suite):
            loaded, settings = load_cluster(case / "objects.json"), settings_of(case)
            now = loaded.newest_timestamp
            objects = list(resolve_priorities(visible_objects(loaded.objects, settings)))
            expected = planned(of_dump(objects, settings, now), settings, now)
            if planned(of_cache(objects, settings, now), settings, now) != expected:
                different[f"{suite}/{case.name}"] = "the scheduler's cache"
            elif planned(of_virtual_cluster(case, now), settings, now) != expected:
                different[f"{suite}/{case.name}"] = "the virtual cluster"
    assert different == {}
