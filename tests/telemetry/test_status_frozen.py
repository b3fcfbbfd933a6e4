"""`windlass status` while Windlass is frozen: that nothing starts is not the same as that nothing waits."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.diagnose.objects import node, pod

from windlass.cli.status import status
from windlass.kube.freeze import FROZEN, SCHEDULER_NAMESPACE, FreezeState, freeze_object

STATE = FreezeState(FROZEN, since="2026-03-01T11:00:00Z", by="ann", reason="too many evictions")


def ask(folder: Path, namespace: str, output: str = "table") -> str:
    dump = folder / "dump.json"
    items = [node("g1", 8), pod("asked", 1, spec={"schedulerName": "windlass"}), freeze_object(namespace, STATE)]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    result = CliRunner().invoke(status, ["--from", str(dump), "-o", output])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_that_it_is_frozen_is_said_with_who_did_it_and_how_to_end_it(tmp_path: Path) -> None:
    said = ask(tmp_path, SCHEDULER_NAMESPACE)
    assert "Windlass is frozen since 2026-03-01T11:00:00Z by ann: too many evictions." in said
    assert "windlass freeze --off" in said
    assert "Nothing waits" not in said
    assert "too many evictions" in json.loads(ask(tmp_path, SCHEDULER_NAMESPACE, "json"))["frozen"]


def test_frozen_node_agents_start_nothing_anyway(tmp_path: Path) -> None:
    assert "Nothing waits for GPUs." in ask(tmp_path, "windlass-node")
