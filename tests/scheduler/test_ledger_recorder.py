"""The ledger of a live scheduler: metrics that add up, history that `windlass usage` reads, and what evictions lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.reference.park import A100, H100, gpu_node, pod

from windlass.apply.audit import ADMITTED, EVICTED, AuditRecord, PlanId
from windlass.cluster.snapshot import Snapshot
from windlass.isolation import IsolatingEngine
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.planner import engine_config, snapshot_objects
from windlass.scheduler.ledger_recorder import LedgerRecorder
from windlass.scheduler.metrics import Metrics
from windlass.telemetry.usage_history import open_ledger_history, read_usage, read_waiting

NOW = 20_000 * 86_400
SELECTOR = {"nvidia.com/gpu.product": A100}


def values(metrics: Metrics, name: str) -> dict[str, float]:
    lines = (line for line in metrics.text().decode().splitlines() if line.startswith(name + "{"))
    return {line.partition("{")[2].partition("}")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def cluster() -> Snapshot:
    objects = [
        gpu_node("h", 4),
        gpu_node("a", 1, model=A100),
        pod("runs", 1, on="a", labels={"windlass.dev/user": "ada"}),
        pod("waits", 1, node_selector=SELECTOR, created="2024-10-03T23:00:00Z"),
    ]
    return snapshot_objects(objects, Settings(), NOW)


def observe(recorder: LedgerRecorder, snapshot: Snapshot, now: int) -> None:
    plan, advisor, _ = IsolatingEngine(engine_config(Settings())).decide_without_explanations(snapshot, now)
    recorder.observe(snapshot, plan, advisor, now)


def test_metrics_add_up_to_all_gpus_and_name_the_cause() -> None:
    metrics = Metrics()
    observe(LedgerRecorder(metrics.ledger), cluster(), NOW)
    gpus = values(metrics, "windlass_gpus")
    assert sum(gpus.values()) == 5
    assert gpus[f'model="{H100}",state="stranded"'] == 4
    assert values(metrics, "windlass_stranded_gpus") == {f'cause="SELECTOR_MISMATCH",model="{H100}"': 4}
    assert values(metrics, "windlass_waiting_gpus") == {'cause="GPU_FULL",cluster_queue="(none)"': 1}
    assert values(metrics, "windlass_oldest_waiting_seconds") == {'cluster_queue="(none)"': 3600}
    metrics.ledger.observe(None)
    assert values(metrics, "windlass_gpus") == {}


def test_history_has_what_was_held_waited_for_and_lost(tmp_path: Path) -> None:
    metrics, snapshot = Metrics(), cluster()
    recorder = LedgerRecorder(metrics.ledger, tmp_path)
    for second in range(0, 121, 10):
        observe(recorder, snapshot, NOW + second)
    plan = PlanId("r", 1)
    recorder.on_record(AuditRecord(ADMITTED, "default/x", plan), NOW + 120)
    pods, lost = ("default/runs",), 3600
    evicted = AuditRecord(EVICTED, "default/runs", plan, reason="Priority", pods=pods, lost_gpu_seconds=lost)
    recorder.on_record(evicted, NOW + 120)
    recorder.close()
    reader = open_ledger_history(tmp_path)
    usage = read_usage(reader, NOW, NOW + 300)
    assert usage.covered_seconds == 120
    assert sum(usage.by_state.values()) == 5 * 120_000
    assert read_waiting(reader, NOW, NOW + 300) == {"GPU_FULL": 120_000}
    assert [(key.user, seconds) for key, seconds in usage.lost_gpu_seconds.items()] == [("ada", 3600)]
    assert values(metrics, "windlass_lost_gpu_seconds_total") == {'cluster_queue="(none)",reason="Priority"': 3600}


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    first = LedgerRecorder(Metrics().ledger, tmp_path)
    with pytest.raises(InputError, match="another process writes history there"):
        LedgerRecorder(Metrics().ledger, tmp_path)
    first.close()
    LedgerRecorder(Metrics().ledger, tmp_path).close()
