"""A record plays again; a line that is cut off, or no record at all, is said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass.cluster.delta import Assume, Deleted, Forget, Put
from windlass.engine import EngineCache, decide
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.decision_record import RECORD_FILE, RecordWriter, replay
from windlass.scheduler.options import SchedulerOptions


def node(name: str) -> Any:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return decode_object(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}
    )


def pod(name: str, gpus: int) -> Any:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return decode_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "a",
                "uid": name,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"schedulerName": "windlass", "containers": [container]},
        }
    )


def queue() -> Any:
    """With a field that Windlass doesn't know, which makes the queue inactive."""
    return decode_object(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": {"namespaceSelector": {}, "somethingNew": 1},
        }
    )


def recorded(folder: Path) -> None:
    """Three decisions with everything in between that can be told to a store."""
    world, memo = SchedulerCache(SchedulerOptions()), EngineCache()
    record = world.assume_observer = RecordWriter(folder, Settings(seed=3))
    odd = Unreadable(InputError("is odd", path="spec.x"), "Pod", "a", "odd", "n2")
    for now, deltas in (
        (1_000, [Put(node("n1")), Put(node("n2")), Put(queue()), Put(pod("p1", 4)), Put(odd)]),
        (1_010, [Put(pod("p2", 8)), Forget("a/p1")]),
        (1_020, [Deleted("Pod", "a/odd"), Put(pod("p3", 2))]),
    ):
        world.push(deltas)
        settled = world.flush(now)
        snapshot = world.store.snapshot(now)
        plan = decide(snapshot, engine_config(Settings(seed=3)), now, memo)
        world.store.mark_decided(snapshot.pods.pending())
        record.on_cycle(now, settled.applied, plan)
        world.assume([Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds])
    record.close()


@pytest.mark.asyncio
async def test_a_record_plays_again(tmp_path: Path) -> None:
    recorded(tmp_path)
    outcome = replay(tmp_path)
    assert (outcome.decisions, outcome.difference) == (3, "")


@pytest.mark.asyncio
async def test_the_record_of_an_earlier_run_is_kept_and_plays(tmp_path: Path) -> None:
    recorded(tmp_path)
    recorded(tmp_path)
    (aside,) = [one for one in tmp_path.iterdir() if one.is_dir()]
    assert (replay(aside).decisions, replay(aside).difference) == (3, "")
    assert replay(tmp_path).difference == ""


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="the record can't be written"):
        RecordWriter(tmp_path / "file", Settings())


def test_a_full_disk_ends_the_record_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / RECORD_FILE).symlink_to("/dev/full")  # a device that never has room
    record = RecordWriter(tmp_path, Settings())
    record.on_cycle(1_000, [Put(node("n1"))], None)
    record.close()


@pytest.mark.asyncio
async def test_a_difference_is_shown(tmp_path: Path) -> None:
    recorded(tmp_path)
    path = tmp_path / RECORD_FILE
    text = path.read_text()
    assert '"pod":"a/p3","node":"' in text
    path.write_text(text.replace('"decision":"bind","pod":"a/p3"', '"decision":"bind","pod":"a/p9"'))
    assert "a/p9" in replay(tmp_path).difference


@pytest.mark.asyncio
async def test_a_line_that_was_cut_off_is_named(tmp_path: Path) -> None:
    recorded(tmp_path)
    path = tmp_path / RECORD_FILE
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"{RECORD_FILE}:\d+: can't be read.*delete it"):
        replay(tmp_path)
