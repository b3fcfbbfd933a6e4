"""`windlass plan change` on a dump: the operator's own decisions, played ahead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.operator.test_bring_up import LABELS

from windlass.cli.errors import run_command
from windlass.cli.main import cli

CHANGE = """\
apiVersion: windlass.dev/v1alpha1
kind: FleetChange
metadata: {name: r590}
spec:
  stack: h100
  driver: {version: 590.44.01}
  waves: [{nodes: 1, bake: 30m}, {nodes: 100%, bake: 10m}]
  gates: [{name: p99, query: p99, maxRatio: 1.1}]
---
apiVersion: windlass.dev/v1alpha1
kind: GPUStack
metadata: {name: h100}
spec:
  nodes: {matchLabels: {pool: h100}}
  driver: {source: container, image: registry.example.com/driver, version: 580.95.05}
  maxUnavailable: 2
"""


def node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {**LABELS, "pool": "h100"}},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"containerRuntimeVersion": "containerd://2.4.2"},
        },
    }


def pod(name: str, on: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2027-01-01T00:00:00Z"},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    dump, change = tmp_path / "dump.json", tmp_path / "change.yaml"
    items = [node(f"gpu-{number}") for number in range(4)] + [pod("train", "gpu-0"), pod("serve", "gpu-2")]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    change.write_text(CHANGE)
    return dump, change


def test_it_says_which_nodes_when_and_whom_it_evicts(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    dump, change = files
    code = run_command(cli, ["plan", "change", "-f", str(change), "--from", str(dump), "-o", "json"], "windlass")
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (found["phase"], found["mostUnavailable"]) == ("Succeeded", 2)
    taken = [(item["wave"], item["node"], item["evicted"]) for item in found["taken"]]
    # The canary is a node without work; then two at a time. The last one is kept to compare with until the end.
    assert taken == [(0, "gpu-1", []), (1, "gpu-0", ["team/train"]), (1, "gpu-3", []), (2, "gpu-2", ["team/serve"])]
    # A canary and its bake, two nodes and their bake, and the last node with the same.
    assert 300 + 1800 + 2 * (300 + 600) <= found["seconds"] <= 300 + 1800 + 2 * (300 + 600) + 120


def test_the_table_names_gates_that_are_not_judged(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    dump, change = files
    assert run_command(cli, ["change", "plan", "-f", str(change), "--from", str(dump)], "windlass") == 0
    shown = capsys.readouterr()
    assert "team/train" in shown.out
    assert "gate p99 (telemetry) is taken to pass" in shown.err


def test_a_stack_that_is_not_there_is_bad_input(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    dump, change = files
    change.write_text(CHANGE.partition("---")[0])
    assert run_command(cli, ["plan", "change", "-f", str(change), "--from", str(dump)], "windlass") == 2
    assert "there is no GPUStack 'h100'" in capsys.readouterr().err


def test_a_change_that_cant_be_ours_is_refused(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    dump, change = files
    change.write_text(CHANGE.replace("source: container, image: registry.example.com/driver,", "source: host,"))
    assert run_command(cli, ["plan", "change", "-f", str(change), "--from", str(dump)], "windlass") == 1
    assert "Refused" in capsys.readouterr().err


def test_a_mistake_names_file_and_field(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    dump, change = files
    change.write_text(CHANGE.replace("bake: 30m", "bake: often"))
    assert run_command(cli, ["change", "plan", "-f", str(change), "--from", str(dump)], "windlass") == 2
    error = capsys.readouterr().err
    assert "change.yaml: FleetChange r590: spec.waves[0].bake: 'often' is not a duration" in error
