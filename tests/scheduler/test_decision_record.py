"""A record plays again; a line that is cut off, or no record at all, is said so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.asking import Cluster
from tests.engine.asking import node as asked_node
from tests.engine.asking import pod as asked_pod

from windlass.cluster.delta import Assume, Deleted, Forget, Nominated, Put, Refused
from windlass.engine import EngineCache, decide
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.decision_record import RECORD_FILE, RecordWriter, ReplayResult, replay
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


def test_asks_play_again(tmp_path: Path) -> None:
    """Asked, answered, evicted: the annotations are in the record, as pods that have changed."""
    record, cluster = RecordWriter(tmp_path, Settings()), Cluster(asked_node("n"))
    cluster.put(asked_pod("low", "n", on_preemption="ask"), asked_pod("urgent", priority=5))
    kinds = []
    for answers in (False, True):
        if answers:
            cluster.answer("a/low")
        before = [asked_node("n"), *cluster.pods.values()]
        plan = cluster.step()
        record.on_cycle(cluster.now, [Put(obj) for obj in before], plan)
        kinds.append({type(decision).__name__ for decision in plan.decisions})
    record.close()
    assert kinds == [{"Ask", "Bind"}, {"Evict", "Bind"}]
    outcome = replay(tmp_path)
    assert (outcome.decisions, outcome.difference) == (2, "")


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


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / RECORD_FILE).read_text().splitlines()]


def test_a_record_begins_with_the_version_and_the_settings(tmp_path: Path) -> None:
    RecordWriter(tmp_path / "new" / "folder", Settings(seed=3)).close()
    (header,) = lines_of(tmp_path / "new" / "folder")
    assert (header["apiVersion"], header["kind"]) == ("windlass.dev/v2", "SchedulerRecord")
    assert header["settings"]["seed"] == 3


def test_every_kind_of_change_is_written_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    record = RecordWriter(tmp_path, Settings())
    refusal = Refusal("bind", "a/p", 1_030, "p", node="n1", message="no")
    odd = Unreadable(InputError("is odd", path="spec.x"), "Pod", "a", "odd")
    deltas = [
        Put(odd),
        Deleted("Pod", "a/p"),
        Assume("a/q", "n1"),
        Forget("a/q"),
        Refused(refusal),
        Nominated(frozenset({"a/w"})),
    ]
    record.on_cycle(1_000, deltas, None)
    record.close()
    _, line = lines_of(tmp_path)
    assert line.keys() == {"now", "changes"}
    odd_change, *others = line["changes"]
    assert odd_change.keys() == {"odd"}
    assert "is odd" in odd_change["odd"].pop("error")
    assert odd_change["odd"] == {"kind": "Pod", "namespace": "a", "name": "odd"}
    assert others == [
        {"gone": {"kind": "Pod", "key": "a/p", "group": ""}},
        {"assume": {"pod": "a/q", "node": "n1", "devices": []}},
        {"forget": "a/q"},
        {"refused": msgspec.to_builtins(refusal)},
        {"nominated": ["a/w"]},
    ]


def test_a_cycle_without_changes_and_without_a_plan_is_not_written(tmp_path: Path) -> None:
    record = RecordWriter(tmp_path, Settings())
    record.on_cycle(1_000, [], None)
    record.on_assume(1_000, [])
    assert len(lines_of(tmp_path)) == 1
    record.on_cycle(1_001, [], Plan())
    record.on_cycle(1_002, [Deleted("Pod", "a/p")], None)
    record.on_assume(1_003, [Assume("a/p", "n1")])
    record.close()
    assert [line["now"] for line in lines_of(tmp_path)[1:]] == [1_001, 1_002, 1_003]
    assert [line.get("decisions") for line in lines_of(tmp_path)[1:]] == [[], None, None]


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    """A scheduler that is killed leaves everything but the line that it was writing."""
    record = RecordWriter(tmp_path, Settings())
    record.on_cycle(1_000, [Put(node("n1"))], None)
    assert len(lines_of(tmp_path)) == 2
    record.close()


def test_after_a_write_error_nothing_more_is_written_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / RECORD_FILE).symlink_to("/dev/full")
    record = RecordWriter(tmp_path, Settings())
    for now in range(3):
        record.on_cycle(now, [Put(node("n1"))], None)
    record.close()
    assert len(caplog.records) == 1
    assert "recording has stopped" in caplog.text


def test_an_empty_record_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / RECORD_FILE).write_bytes(b"")
    RecordWriter(tmp_path, Settings()).close()
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


def test_an_earlier_record_is_kept_under_the_time_of_its_last_line(tmp_path: Path) -> None:
    RecordWriter(tmp_path, Settings(seed=1)).close()
    os.utime(tmp_path / RECORD_FILE, (1_767_225_600, 1_767_225_600))
    RecordWriter(tmp_path, Settings(seed=2)).close()
    assert lines_of(tmp_path / "until-2026-01-01T000000Z")[0]["settings"]["seed"] == 1
    assert lines_of(tmp_path)[0]["settings"]["seed"] == 2
    os.utime(tmp_path / RECORD_FILE, (1_767_225_600, 1_767_225_600))
    RecordWriter(tmp_path, Settings(seed=3)).close()
    assert lines_of(tmp_path)[0]["settings"]["seed"] == 3, "two that ended in one second are no trouble"


def test_a_record_of_nothing_is_one_line_without_decisions(tmp_path: Path) -> None:
    RecordWriter(tmp_path, Settings()).close()
    assert replay(tmp_path) == ReplayResult(1, 0)


@pytest.mark.asyncio
async def test_a_replay_counts_lines_and_decisions(tmp_path: Path) -> None:
    recorded(tmp_path)
    outcome = replay(tmp_path)
    assert outcome == ReplayResult(len(lines_of(tmp_path)), 3)


@pytest.mark.asyncio
async def test_a_replay_stops_at_the_first_difference_and_names_its_line(tmp_path: Path) -> None:
    recorded(tmp_path)
    path = tmp_path / RECORD_FILE
    lines = path.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if '"decisions"' in line)
    tree = json.loads(lines[first])
    tree["decisions"].append({"decision": "bind", "pod": "a/none", "node": "n1"})
    lines[first] = json.dumps(tree)
    path.write_text("\n".join(lines) + "\n")
    outcome = replay(tmp_path)
    assert (outcome.lines, outcome.decisions) == (first + 1, 1)
    count = len(tree["decisions"])
    assert outcome.difference == f"{path}:{first + 1}: recorded {count} decisions, replayed {count - 1}"


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("", rf"{RECORD_FILE}:1: can't be read"),
        ('{"settings": {}, "kind": "Other"}', "holds a Other and no SchedulerRecord"),
        ('{"settings": {}, "kind": ""}', "holds a file and no SchedulerRecord"),
        (
            '{"settings": {}, "apiVersion": "windlass.dev/v1"}',
            "is a record of windlass.dev/v1, not windlass.dev/v2.*replay it with the release that wrote it",
        ),
    ],
)
def test_what_is_no_record_of_this_version_is_said_so(tmp_path: Path, header: str, problem: str) -> None:
    (tmp_path / RECORD_FILE).write_text(header)
    with pytest.raises(InputError, match=problem):
        replay(tmp_path)


@pytest.mark.asyncio
async def test_long_decisions_are_cut_in_a_difference(tmp_path: Path) -> None:
    recorded(tmp_path)
    path = tmp_path / RECORD_FILE
    lines = path.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if '"decisions"' in line)
    changed = json.loads(lines[first])
    decision = changed["decisions"][0]
    changed["decisions"][0] = long = {"decision": "x" * 1_000}
    lines[first] = json.dumps(changed)
    path.write_text("\n".join(lines) + "\n")
    assert replay(tmp_path).difference == (
        f"{path}:{first + 1}: recorded {msgspec.json.encode(long).decode()[:300]}, "
        f"replayed {msgspec.json.encode(decision).decode()[:300]}"
    )


@pytest.mark.asyncio
async def test_of_a_queue_the_names_of_unread_fields_survive_the_record(tmp_path: Path) -> None:
    recorded(tmp_path)
    assert "somethingNew" in (tmp_path / RECORD_FILE).read_text()
    assert replay(tmp_path).difference == "", "so the replay knows that the queue is inactive"
