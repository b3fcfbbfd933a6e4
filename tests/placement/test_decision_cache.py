"""Values kept between decisions are valid for the same objects, and dropped otherwise."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from reference.overlays import snapshot_of
from reference.park import node, pod
from windlass.cluster.pod_table import PodRows
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.decision_cache import DecisionCache, PodIndex, WorkloadCache


def rows_of(keys: list[str], alive: list[int], objects: list[Pod] | None = None) -> PodRows:
    marks = np.zeros((len(alive), 3), dtype=np.int64)
    marks[:, 1] = alive
    return PodRows(objects if objects is not None else [], keys, [], marks, marks)


def test_a_workload_has_its_value_until_the_object_changes() -> None:
    cache: WorkloadCache[int] = WorkloadCache()
    asked: list[Workload] = []

    def count(workload: Workload) -> int:
        asked.append(workload)
        return len(asked)

    first, equal = Workload("d/w", "Job", ()), Workload("d/w", "Job", ())
    assert [cache.get_or_make(first, count) for _ in range(2)] == [1, 1]
    assert cache.get_or_make(equal, count) == 2
    assert asked == [first, equal]


def test_the_index_follows_a_table_that_grows_and_in_which_rows_die() -> None:
    for seed in range(60):
        random, index, objects = Random(seed), PodIndex(), []
        keys: list[str] = []
        alive: list[int] = []
        for _ in range(8):
            for row in range(len(alive)):
                alive[row] &= int(random.random() < 0.8)
            taken = {keys[row] for row in range(len(keys)) if alive[row]}
            for _ in range(random.randrange(3)):
                key = f"p{random.randrange(4)}"
                if key not in taken:  # a pod that is created again has a new row
                    taken.add(key)
                    keys.append(key)
                    alive.append(int(random.random() < 0.9))
            if random.random() < 0.1:  # the table is made anew
                kept = [row for row in range(len(keys)) if alive[row]]
                keys, alive, objects = [keys[row] for row in kept], [1] * len(kept), []
            found = index.update(rows_of(keys, list(alive), objects))
            assert found == {key: row for row, key in enumerate(keys) if alive[row]}


def test_a_row_that_lives_again_is_of_another_table() -> None:
    objects: list[Pod] = []
    index = PodIndex()
    assert index.update(rows_of(["a", "b"], [1, 0], objects)) == {"a": 0}
    assert index.update(rows_of(["c", "d"], [1, 1], objects)) == {"c": 0, "d": 1}
    assert index.update(rows_of(["e"], [1], objects)) == {"e": 0}, "so is one with fewer rows"
    assert index.update(rows_of(["f"], [1], [])) == {"f": 0}


def test_the_index_keeps_its_own_copy_of_what_lives() -> None:
    objects: list[Pod] = []
    index, rows = PodIndex(), rows_of(["a", "b"], [1, 1], [])
    rows = rows._replace(objects=objects)
    index.update(rows)
    rows.alive[0] = 0
    assert index.update(rows) == {"b": 1}


def test_everything_goes_with_other_nodes_or_pods_and_stays_with_the_same() -> None:
    snapshot = snapshot_of(node("n"), pod("p"))
    cache = DecisionCache()
    cache.start_decision(snapshot)
    workload = Workload("d/w", "Job", ())
    cache.pieces.get_or_make(workload, lambda _: ())
    pieces = cache.pieces
    cache.start_decision(snapshot)
    assert cache.pieces is pieces
    cache.start_decision(snapshot_of(node("n"), pod("p")))
    assert cache.pieces is not pieces
    assert cache.pieces.entries == {}


@pytest.mark.parametrize("changed", ["nodes", "queue_system", "pods"])
def test_each_input_counts(changed: str) -> None:
    snapshot, other = snapshot_of(node("n")), snapshot_of(node("n"))
    cache = DecisionCache()
    cache.start_decision(snapshot)
    cache.domain_trees["t", "f"] = None  # type: ignore[assignment]
    cache.start_decision(msgspec.structs.replace(snapshot, **{changed: getattr(other, changed)}))
    assert cache.domain_trees == {}


@pytest.mark.parametrize("kept", ["pieces", "workload_pods", "flavored_pods", "template_requests"])
@pytest.mark.parametrize("workloads", [0, 3])
def test_too_many_stale_entries_are_dropped(kept: str, workloads: int) -> None:
    snapshot = snapshot_of(node("n"))
    snapshot = msgspec.structs.replace(snapshot, workloads=(Workload("d/w", "Job", ()),) * workloads)
    cache = DecisionCache()
    cache.start_decision(snapshot)
    entries = getattr(cache, kept)
    entries = getattr(entries, "entries", entries)
    for i in range(2 * workloads + 1024):
        entries[i] = None
    cache.start_decision(snapshot)
    assert len(entries) == 2 * workloads + 1024
    current = getattr(cache, kept)
    assert getattr(current, "entries", current) is entries, "so many may stay"
    entries["one more"] = None
    cache.start_decision(snapshot)
    current = getattr(cache, kept)
    assert getattr(current, "entries", current) == {}


def test_requests_against_quota_are_kept_for_the_same_rules() -> None:
    cache = DecisionCache()
    requests = cache.quota_requests_under(ResourceRules())
    requests[1] = (pod("p"), {})
    cache.counted.pending_by_id[1] = None  # type: ignore[assignment]
    assert cache.quota_requests_under(ResourceRules()) is requests
    assert len(requests) == 1
    others = ResourceRules(exclude_resource_prefixes=("example.com/",))
    assert cache.quota_requests_under(others) == {}
    assert cache.counted.pending_by_id == {}, "pending workloads were counted with them"


def test_rows_by_key_are_those_of_the_snapshot() -> None:
    snapshot = snapshot_of(node("n"), pod("a"), pod("b"))
    assert DecisionCache().pod_rows(snapshot.pods) == {"default/a": 0, "default/b": 1}
