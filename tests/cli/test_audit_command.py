"""`windlass audit`: which records it shows, from which sources."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from windlass.apply.audit import AuditRecord, PlanId
from windlass.cli.audit import audit
from windlass.cli.errors import run_command
from windlass.scheduler.audit_log import AuditLog, AuditLogOptions

EVICTED = AuditRecord("evicted", "team/low", PlanId("first", 3), reason="Priority", gainer="team/high", pods=("a", "b"))
ADMITTED = AuditRecord("admitted", "team/high", PlanId("first", 3), queue="research", gainer="team/high")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = AuditLog(AuditLogOptions(str(tmp_path)))
    log.write(EVICTED)
    log.write(ADMITTED)
    log.close()
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run_command(audit, [*arguments, "-o", "json"], "windlass audit") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "AuditReport"
    return [f"{record['action']} {record['workload']}" for record in document["records"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["evicted team/low", "admitted team/high"]),
        (["--action", "evicted"], ["evicted team/low"]),
        (["--queue", "research"], ["admitted team/high"]),
        (["--workload", "team/low"], ["evicted team/low"]),
        (["--workload", "team/high"], ["evicted team/low", "admitted team/high"]),
        (["--since", "1h"], ["evicted team/low", "admitted team/high"]),
        (["--since", "2999-01-01T00:00:00Z"], []),
    ],
)
def test_filters(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[str]) -> None:
    assert shown(capsys, str(folder), *options) == expected
    (file,) = folder.iterdir()
    assert shown(capsys, str(file), *options) == expected


def test_files_of_a_folder_are_read_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, workload in (
        ("audit-2026-01-02.jsonl", "c"),
        ("audit-2026-01-01.10.jsonl", "b2"),
        ("audit-2026-01-01.jsonl", "a"),
        ("audit-2026-01-01.2.jsonl", "b1"),
    ):
        line = {"kind": "Audit", "action": "evicted", "workload": workload, "plan": {}, "time": "2026-01-01T00:00:00Z"}
        (tmp_path / name).write_text(json.dumps(line) + "\n")
    assert shown(capsys, str(tmp_path)) == ["evicted a", "evicted b1", "evicted b2", "evicted c"]


def test_the_table_says_who_lost_to_whom(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(audit, [str(folder)], "windlass audit") == 0
    first = capsys.readouterr().out.splitlines()[1].split()
    assert first[1:] == ["evicted", "team/low", "-", "2", "Priority", "team/high", "first#3", "done"]
    assert first[0] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "error: /nowhere: there is no such file or folder"),
        (["."], "has no audit-*.jsonl"),
        (
            [".", "--since", "yesterday"],
            "'yesterday' is neither a duration such as 24h or 30d nor a time such as 2026-01-31T12:00:00Z",
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(audit, arguments, "windlass audit") == 2
    assert message in capsys.readouterr().err
