"""Every admission and eviction leaves a line: which plan, why and for whom; lines are kept for their days."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.apply.objects import gang_pod, job, pod, queues
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import running

from windlass.apply.audit import AuditRecord, PlanId
from windlass.cli.audit import read_records
from windlass.model.errors import InputError
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.scheduler import audit_log
from windlass.scheduler.audit_log import AuditLog, AuditLogOptions

DAY = 86_400.0
RECORD = AuditRecord("evicted", "team/low", PlanId("first", 3), reason="Priority", gainer="team/high")


def records(folder: Path) -> list[AuditRecord]:
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines())
    return list(read_records(lines))


def options(folder: Path) -> AuditLogOptions:
    return AuditLogOptions(str(folder))


@in_virtual_time
async def test_an_admitted_job_and_an_evicted_pod_are_on_record(tmp_path: Path) -> None:
    async with running(*queues(), job("train"), audit=options(tmp_path)) as replica:
        await asyncio.sleep(5)
        replica.api.store("pods", pod("low", gpus=8, on="n1", status={"phase": "Running"}))
        replica.api.store("pods", pod("high", gpus=8, priority=10))
        await asyncio.sleep(5)
    admitted, evicted = records(tmp_path)
    assert (admitted.action, admitted.queue, admitted.reason) == ("admitted", "cluster", "QuotaReserved")
    assert admitted.workload == admitted.gainer
    assert admitted.plan.replica == "first"
    assert [(part.name, part.count) for part in admitted.pod_sets] == [("main", 1)]
    assert (evicted.action, evicted.workload, evicted.gainer) == ("evicted", "team/low", "team/high")
    assert (evicted.pods, evicted.reason, evicted.result) == (("team/low",), "Priority", "done")
    assert evicted.plan.generation > admitted.plan.generation
    assert evicted.time >= admitted.time > "2026"


@in_virtual_time
async def test_a_queued_gang_without_a_workload_is_on_record_once(tmp_path: Path) -> None:
    members = [gang_pod(f"g{number}", "gang") for number in range(2)]
    for member in members:
        member["metadata"]["labels"][QUEUE_NAME_LABEL] = "main"
    async with running(*queues(), *members, audit=options(tmp_path)) as replica:
        await asyncio.sleep(5)
        assert replica.node_of("g0") == replica.node_of("g1") == "n1"
    (admitted,) = records(tmp_path)
    assert (admitted.action, admitted.queue) == ("admitted", "cluster")
    assert admitted.pods == ("team/g0", "team/g1")


def test_stdout_gets_lines_that_no_log_line_is_mistaken_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    AuditLog(AuditLogOptions("-")).write(RECORD)
    (line,) = capfdbinary.readouterr().out.splitlines()
    found = list(read_records([b'{"ts": "x", "msg": "evicted"}', b"text", line]))
    assert [record.workload for record in found] == ["team/low"]


def test_files_change_with_the_day_and_when_they_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_FILE_BYTES", 400)
    log, now = AuditLog(options(tmp_path)), time.time()
    for _ in range(3):
        log.write(RECORD)
    monkeypatch.setattr(time, "time", lambda: now + DAY)
    log.write(RECORD)
    log.close()
    names = [file.name for file in sorted(tmp_path.iterdir())]
    assert len(names) == 3
    assert [name.endswith(".1.jsonl") for name in names] == [True, False, False]
    assert len(records(tmp_path)) == 4
    AuditLog(options(tmp_path)).write(RECORD)
    assert len(list(tmp_path.iterdir())) == 3, "a replica that starts goes on with the file"


def test_what_is_older_than_its_days_goes_and_the_rest_stays(tmp_path: Path) -> None:
    now = time.time()
    for name, days in (("audit-a.jsonl", 91), ("audit-b.jsonl", 89), ("other.txt", 200)):
        (tmp_path / name).write_bytes(b"{}\n")
        os.utime(tmp_path / name, (now - days * DAY, now - days * DAY))
    AuditLog(options(tmp_path)).close()
    assert not (tmp_path / "audit-a.jsonl").exists()
    assert (tmp_path / "audit-b.jsonl").exists()
    assert (tmp_path / "other.txt").exists(), "it is not ours"


def test_the_oldest_go_first_when_there_is_too_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = time.time()
    for name, days in (("audit-a.jsonl", 3), ("audit-b.jsonl", 2)):
        (tmp_path / name).write_bytes(b"x" * 700_000)
        os.utime(tmp_path / name, (now - days * DAY, now - days * DAY))
    AuditLog(AuditLogOptions(str(tmp_path), megabytes=1)).close()
    assert not (tmp_path / "audit-a.jsonl").exists()
    assert (tmp_path / "audit-b.jsonl").exists()
    assert "before 90 days are over" in caplog.text


def test_a_disk_that_is_full_is_counted_and_scheduling_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[int] = []
    log = AuditLog(options(tmp_path), lambda: lost.append(1))

    def full(line: bytes, day: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "_append", full)
    log.write(RECORD)
    log.write(RECORD)
    assert len(lost) == 2
    assert caplog.text.count("No space left") == 1
    assert "team/low" in caplog.text, "the line is at least in the log"


def test_a_folder_that_can_not_be_made_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the audit log can't be written"):
        AuditLog(options(tmp_path / "file" / "below"))
