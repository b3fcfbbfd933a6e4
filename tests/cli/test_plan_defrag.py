"""`windlass plan defrag`: what it loads, for whom it makes room, what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.cli import plan_defrag
from windlass.cli.defrag_document import defrag_document, summary
from windlass.cli.errors import run_command
from windlass.cli.plan_defrag import defrag
from windlass.dump.cluster_loader import LoadedCluster, load_cluster
from windlass.model.decision import DeviceGrant
from windlass.model.defrag import DefragPlan, Move, NoMovesFound, Start

NOW = "2026-01-01T12:00:00Z"


def node(name: str, gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, gpus: int, on: str = "", start: str = NOW) -> dict[str, Any]:
    resources = {"limits": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": start},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    if on:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
        made["spec"]["nodeName"] = on
        made["status"] = {"phase": "Running", "startTime": start}
    return made


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        code = run_command(defrag, list(map(str, arguments)), "windlass plan defrag")
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """7 and 7 GPUs are free, and a pod of 8 waits."""
    objects = [node("n0", 8), node("n1", 8), pod("wide", 8)]
    objects += [pod("a", 1, "n0", "2026-01-01T11:59:00Z"), pod("b", 1, "n1", "2026-01-01T11:00:00Z")]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return file


@pytest.mark.parametrize("arguments", [(), ("--for", "team/wide"), ("--for", "wide", "-n", "team"), ("--exact",)])
def test_the_move_that_lets_it_start(shell: Shell, dump: Path, arguments: tuple[str, ...]) -> None:
    assert shell("--from", dump, "-o", "json", *arguments) == 0
    document = json.loads(shell.out)
    assert (document["apiVersion"], document["kind"], document["now"]) == (
        "windlass.dev/v1",
        "DefragPlan",
        NOW,
    )
    (move,) = document["moves"]
    assert {key: move[key] for key in ("pod", "from", "to", "for")} == {
        "pod": "team/a",
        "from": "n0",
        "to": "n1",
        "for": "team/wide",
    }
    assert document["cost"] == {"gpuSeconds": 60.0, "pods": 1}
    assert document["bound"] == {"gpuSeconds": 60.0, "pods": 1, "gap": 0.0, "proven": True}
    assert [start["workload"] for start in document["brings"]["starts"]] == ["team/wide"]
    assert document["brings"]["gpus"] == 8


def test_without_a_dump_it_is_the_live_cluster(shell: Shell, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def live(*where: object) -> LoadedCluster:
        asked.append(where)
        return load_cluster(dump, ())

    monkeypatch.setattr(plan_defrag, "load_live_cluster", live)
    assert shell("--context", "prod", "-o", "json") == 0
    assert asked == [("", "prod", (), "default")]
    assert [move["pod"] for move in json.loads(shell.out)["moves"]] == ["team/a"]
    assert shell("--context", "prod", "--from", dump) == 2
    assert "leave --kubeconfig and --context out" in shell.err


def test_the_table(shell: Shell, dump: Path) -> None:
    assert shell("--from", dump) == 0
    assert [line.split() for line in shell.out.splitlines()[1:]] == [
        ["move", "1", "team/a", "n0", "n1", "team/wide", "60"],
        ["then", "team/wide", "starts", "1", "pod", "with", "8", "GPUs"],
    ]
    assert "1 move loses 60 GPU-seconds, 1 workload starts; nothing cheaper exists" in shell.err


def test_a_stated_shape(shell: Shell, dump: Path, tmp_path: Path) -> None:
    """What waits in the dump is not what was asked about."""
    job = tmp_path / "job.yaml"
    wish = pod("new", 8)
    del wish["metadata"]["creationTimestamp"]
    job.write_text(yaml.safe_dump(wish))
    dump.write_text("---\n".join(part for part in dump.read_text().split("---\n") if "name: wide" not in part))
    assert shell("--from", dump, "-f", job, "-o", "yaml") == 0
    document = yaml.safe_load(shell.out)
    assert [move["for"] for move in document["moves"]] == ["team/new"]
    wish["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "7"
    job.write_text(yaml.safe_dump(wish))
    assert shell("--from", dump, "-f", job, "-o", "json") == 0
    assert json.loads(shell.out)["moves"] == []
    assert "team/new starts without any move" in shell.err


def test_no_moves_are_not_an_error(shell: Shell, dump: Path) -> None:
    assert shell("--from", dump, "--max-moves", "0") == 0
    assert "no moves are planned" in shell.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--for", "team/wide", "-f", "job.yaml"), "give one of them"),
        (("--for", "team/nobody"), "there is no workload team/nobody"),
        (("--max-moves", "-1"), "--max-moves"),
    ],
)
def test_wrong_usage(
    shell: Shell, dump: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(dump.parent)
    (dump.parent / "job.yaml").write_text("")
    assert shell("--from", dump, *arguments) == 2
    assert said in shell.err


def test_the_document_says_how_good_it_is() -> None:
    moves = (
        Move("ns/a", "n0", "n2", (DeviceGrant(1, 500),), 1500, "ns/w", is_stop=True),
        Move("ns/a", "n2", "n1", (DeviceGrant(0, 500),), 500, "ns/w"),
    )
    start = Start("ns/w", 2, 4000, 2, 2000, 1000, 1, steps=17)
    plan = DefragPlan(moves, (start,), (NoMovesFound("ns/x", "no room"),), ("a note",))
    document = defrag_document(plan, 0)
    assert [(move["stop"], move["devices"]) for move in document["moves"]] == [
        (True, [{"index": 1, "milli": 500}]),
        (False, [{"index": 0, "milli": 500}]),
    ]
    assert document["bound"] == {"gpuSeconds": 1.0, "pods": 1, "gap": 0.5, "proven": False}
    assert document["waits"] == [{"workload": "ns/x", "message": "no room"}]
    assert document["notes"] == ["a note"]
    assert summary(plan).endswith("any plan loses at least 1 (gap 50%)")
