"""`windlass plan order`: the place of waiting work in its queue, and what would move it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.plain_objects import NOW, node, pod
from tests.engine.test_queued_kinds import QUEUE, queues

from windlass.cli.errors import run_command
from windlass.cli.plan_order import order
from windlass.model.unstructured import Unstructured


def queued(name: str, priority: int, hour: int) -> Unstructured:
    return pod(name, 2, at=f"2026-01-01T{hour:02}:00:00Z", metadata={"labels": {QUEUE: "main"}}, priority=priority)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    running = pod("running", 2, on="n1", metadata={"labels": {QUEUE: "main"}})
    waiting = [queued("old", 0, 1), queued("new", 0, 2), queued("high", 100, 3)]
    items = [node("n1"), *queues(2), running, *waiting, pod("unqueued", 1)]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(tmp_path / "dump.json")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Unstructured]:
    assert run_command(order, [*arguments, "--now", NOW, "-o", "json"], "windlass plan order") == 0
    entries: list[Unstructured] = json.loads(capsys.readouterr().out)["entries"]
    return entries


def test_by_priority_then_by_age(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    entries = document(capsys, "--from", dump)
    assert [(entry["place"], entry["workload"], entry["priority"]) for entry in entries] == [
        (1, "default/high", 100),
        (2, "default/old", 0),
        (3, "default/new", 0),
    ]
    assert [entry["waitingSeconds"] for entry in entries] == [9 * 3600, 11 * 3600, 10 * 3600]
    assert {entry["code"] for entry in entries} == {"KUEUE_QUOTA_INSUFFICIENT"}
    assert entries[0]["queueGpus"] == {"used": 2, "nominal": 2}
    assert entries[0]["moves"] == ["first of its queue"]
    assert entries[2]["moves"] == [
        "1 before it by priority: above 100 it would be first",
        "1 before it by age: a priority above 0 would put it before them",
    ]


def test_one_workload_as_a_table(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(order, ["default/old", "--from", dump, "--now", NOW], "windlass plan order") == 0
    shown = capsys.readouterr()
    assert "default/old" in shown.out
    assert "default/new" not in shown.out
    assert "1 waiting in 1 queue\n" in shown.err


def test_one_that_waits_in_no_queue(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(order, ["default/unqueued", "--from", dump], "windlass plan order") == 2
    assert "doesn't wait in a queue" in capsys.readouterr().err


def test_one_that_does_not_exist(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(order, ["default/olt", "--from", dump], "windlass plan order") == 2
    assert "there is no default/olt (there are: default/old" in capsys.readouterr().err


def test_no_priority_helps_what_never_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = pod("huge", 16, metadata={"labels": {QUEUE: "main"}})
    items = [node("n1"), *queues(32), queued("old", 0, 1), huge]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    moves = {entry["workload"]: entry["moves"] for entry in document(capsys, "--from", str(tmp_path / "dump.json"))}
    assert moves["default/huge"] == ["it never starts as it is, whatever its place"]
    assert moves["default/old"] != moves["default/huge"]


def test_only_one_queue(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(order, ["--from", dump, "--queue", "other"], "windlass plan order") == 2
    assert "there is no ClusterQueue other (there are: all)" in capsys.readouterr().err
    assert len(document(capsys, "--from", dump, "--queue", "all")) == 3
