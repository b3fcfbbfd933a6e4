"""`windlass plan schedule`: what it loads, what it asks the engine, what it prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.cli import plan_schedule
from windlass.cli.errors import run_command
from windlass.cli.plan_document import plan_document
from windlass.cli.plan_schedule import schedule_command
from windlass.dump.cluster_loader import load_cluster
from windlass.model.configuration import Settings
from windlass.model.decision import Admit, AdmittedPodSet, Bind, DeviceGrant, Evict, Hold
from windlass.model.hold_document import hold_document
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.verdict import Change, Limit, MoveOffer, ReasonCount, Relief, Verdict

QUOTA = "insufficient unused quota for nvidia.com/gpu in flavor h100, 4 more needed"
PLAN = Plan(
    evicts=(Evict("eng/low", ("eng/low-0", "eng/low-1"), "eng/high", "InClusterQueue"),),
    admits=(
        Admit(
            "eng/high",
            "Workload",
            "team-a",
            (AdmittedPodSet("main", 2, {"nvidia.com/gpu": "h100"}, {"n1": 1, "n2": 1}),),
            after=("eng/low",),
        ),
    ),
    binds=(
        Bind(
            "eng/p",
            "n1",
            (DeviceGrant(0), DeviceGrant(1, 500), DeviceGrant(2, 1000, "1g.10gb", 3)),
            ("eng/low",),
        ),
    ),
    holds=(
        Hold("eng/wait", Verdict("KUEUE_QUOTA_INSUFFICIENT", detail=QUOTA)),
        Hold("eng/full", Verdict("GPU_FULL", 3, (ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 3),))),
    ),
)
NOT_EXPLAINED = {
    "infeasible": False,
    "limits": [],
    "relief": None,
    "changes": [],
    "moves": [],
    "estimate": {"start": None, "ahead": 0, "basis": "", "outlook": ""},
    "remedy": "",
    "refusals": [],
    "obstacles": [],
    "explained": False,
    "nodes": 0,
    "counts": [],
    "nearest": [],
    "detail": "",
}
DUMP = """\
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: "2026-01-02T03:04:05Z"}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\n"


class Engine:
    """Keeps what it was asked; answers with a fixed plan."""

    def __init__(self) -> None:
        self.objects: Sequence[object] = ()
        self.settings = Settings()
        self.now = 0

    def __call__(self, objects: Sequence[object], config: Settings, now: int) -> tuple[Plan, Sequence[str]]:
        self.objects, self.settings, self.now = objects, config, now
        return PLAN, ["Sweep eng/s is ungrouped"]


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.engine = Engine()
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        code = run_command(schedule_command(lambda: self.engine), list(map(str, arguments)), "windlass plan schedule")
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return Shell(capsys)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "dump.yaml"
    file.write_text(DUMP)
    return file


def test_the_document_for_scripts() -> None:
    document = plan_document(PLAN, parse_timestamp("2026-01-01T00:00:00Z"))
    assert (document["apiVersion"], document["kind"]) == ("windlass.dev/v1", "Plan")
    assert document["decisions"] == [
        {
            "decision": "evict",
            "workload": "eng/low",
            "pods": ["eng/low-0", "eng/low-1"],
            "for": "eng/high",
            "reason": "InClusterQueue",
            "lostGpuSeconds": 0,
            "leastGpuSeconds": 0,
            "message": "",
        },
        {
            "decision": "admit",
            "workload": "eng/high",
            "kind": "Workload",
            "queue": "team-a",
            "podSets": [
                {
                    "name": "main",
                    "count": 2,
                    "flavors": {"nvidia.com/gpu": "h100"},
                    "nodes": {"n1": 1, "n2": 1},
                }
            ],
            "after": ["eng/low"],
        },
        {
            "decision": "bind",
            "pod": "eng/p",
            "node": "n1",
            "devices": [
                {"index": 0},
                {"index": 1, "milli": 500},
                {"index": 2, "profile": "1g.10gb", "start": 3},
            ],
            "after": ["eng/low"],
        },
        {
            "decision": "hold",
            "workload": "eng/wait",
            "code": "KUEUE_QUOTA_INSUFFICIENT",
            "message": QUOTA,
            "publicMessage": "its queue has too little quota left; `windlass why` has the numbers",
            **NOT_EXPLAINED,
            "detail": QUOTA,
        },
        {
            "decision": "hold",
            "workload": "eng/full",
            "code": "GPU_FULL",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            "publicMessage": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            **NOT_EXPLAINED,
            "nodes": 3,
            "counts": [{"code": "GPU_FULL", "kube": "Insufficient nvidia.com/gpu", "nodes": 3}],
        },
    ]


def test_a_hold_with_everything_that_is_known_of_it() -> None:
    verdict = Verdict(
        "GPU_FRAGMENTED",
        detail="only 1 of 2 pods fit",
        planned_start=parse_timestamp("2026-01-01T01:00:00Z"),
        ahead=2,
        outlook="planned",
        limits=(Limit("quota", "too little", queue="q", flavor="f", resource="cpu", needed="2", available="1"),),
        relief=Relief(1, {"q": 1}, ("eng/other",), parse_timestamp("2026-01-01T02:00:00Z"), "by run-time limits"),
        changes=(Change("gpus", "with 7 GPUs a pod", "main", "8", "7", 125),),
        moves=(MoveOffer("eng/small", "n1", "n2", 5000),),
    )
    document = hold_document(Hold("eng/wait", verdict))
    assert document["limits"] == [
        {
            "kind": "quota",
            "text": "too little",
            "queue": "q",
            "flavor": "f",
            "level": "",
            "resource": "cpu",
            "needed": "2",
            "available": "1",
            "nodes": None,
            "behind": "",
        }
    ]
    assert document["relief"] == {
        "workloads": 1,
        "of": {"q": 1},
        "names": ["eng/other"],
        "at": "2026-01-01T02:00:00Z",
        "basis": "by run-time limits",
    }
    assert document["changes"] == [
        {
            "kind": "gpus",
            "text": "with 7 GPUs a pod",
            "podSet": "main",
            "before": "8",
            "after": "7",
            "loss": 125,
            "publicText": "",
        }
    ]
    assert document["moves"] == [{"pod": "eng/small", "from": "n1", "to": "n2", "lostMilliSeconds": 5000}]
    assert document["estimate"] == {
        "start": "2026-01-01T01:00:00Z",
        "ahead": 2,
        "basis": "planned",
        "outlook": "planned",
    }


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_say_the_same(shell: Shell, dump: Path, output: str, read: Any) -> None:
    assert shell("--from", dump, "-o", output) == 0
    expected = plan_document(PLAN, parse_timestamp("2026-01-02T03:04:05Z"), ["Sweep eng/s is ungrouped"])
    assert read(shell.out) == expected
    assert shell.err == "Sweep eng/s is ungrouped\n"


def test_a_table_for_people_and_exit_0_though_something_is_held(shell: Shell, dump: Path) -> None:
    assert shell("--from", dump) == 0
    lines = [line.rstrip().split(maxsplit=2) for line in shell.out.splitlines()]
    assert [line[0] for line in lines] == ["DECISION", "evict", "admit", "bind", "hold", "hold"]
    assert lines[1][1:] == ["eng/low", "2 pods for eng/high: InClusterQueue"]
    assert lines[2][2] == "team-a: main 2 pods on n1 ×1, n2 ×1 as h100, after eng/low"
    assert lines[3][2] == "n1 (GPU 0, 1: 50 %, 2: 1g.10gb), after eng/low"
    assert lines[4][2] == f"KUEUE_QUOTA_INSUFFICIENT: {QUOTA}"
    assert "1 admitted, 1 bound, 1 evicted, 2 held" in shell.err


def test_what_the_engine_is_asked(shell: Shell, dump: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    config = tmp_path / "kueue.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\nwebhook: {port: 1}\n"
    )
    assert shell("--from", dump, "-f", manifest, "-n", "lab", "--config", config, "-o", "json") == 0
    assert [type(obj) for obj in shell.engine.objects] == [Node, Pod]
    assert isinstance(shell.engine.objects[1], Pod)
    assert shell.engine.objects[1].key == "lab/new"
    assert shell.engine.settings.fair_sharing
    assert shell.engine.now == parse_timestamp("2026-01-02T03:04:05Z")
    assert "webhook" in shell.err


def test_now_can_be_said(shell: Shell, dump: Path) -> None:
    assert shell("--from", dump, "--now", "2026-05-01T00:00:00Z", "-o", "json") == 0
    assert shell.engine.now == parse_timestamp("2026-05-01T00:00:00Z")
    assert json.loads(shell.out)["now"] == "2026-05-01T00:00:00Z"


def test_without_any_time_it_is_the_clocks(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    assert shell("-f", manifest, "-o", "json") == 0
    assert shell.engine.now > parse_timestamp("2025-01-01T00:00:00Z")


def test_a_manifest_alone_is_planned_on_the_current_cluster(
    shell: Shell, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    config = tmp_path / "config"
    content = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}]}
    config.write_text(yaml.safe_dump(content | {"clusters": [{"name": "c", "cluster": {"server": "http://x:1"}}]}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr(plan_schedule, "load_live_cluster", lambda *_: load_cluster(dump, [manifest]))
    assert shell("-f", manifest) == 0
    assert [type(obj) for obj in shell.engine.objects] == [Node, Pod]
    assert shell("-f", dump, "-f", manifest) == 0, "with nodes of their own the files are the cluster"
    assert "no cluster" not in shell.err


def test_a_manifest_without_any_cluster_is_planned_alone_and_says_so(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    assert shell("-f", manifest) == 0
    assert [type(obj) for obj in shell.engine.objects] == [Pod]
    assert "no cluster, so only the objects of the files are planned: KUBECONFIG: " in shell.err
    assert f"{tmp_path / 'no-kubeconfig'} does not exist" in shell.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "{dump}", "--context", "x"), "--from is a dump instead of the live cluster"),
        (("--from", "nowhere.yaml"), "nowhere.yaml"),
        (("--from", "{dump}", "--now", "soon"), "'soon' is not a time"),
        (("--from", "{dump}", "--config", "{dump}"), "a Node is not a configuration"),
        (("--from", "{broken}"), "broken.yaml:3:18: Pod a: metadata.labels"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    shell: Shell, dump: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: 3}\n")
    assert shell(*(argument.format(dump=dump, broken=broken) for argument in arguments)) == 2
    assert len(shell.err.splitlines()) == 1
    assert words.split(":")[0] in shell.err
    assert words.rpartition(":")[2] in shell.err


def test_going_on_reports_what_was_left_out(shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: 3}\n---\n" + DUMP)
    assert shell("--from", broken, "--keep-going", "-o", "json") == 0
    assert "metadata.labels" in shell.err
    assert "metadata.labels" in json.loads(shell.out)["notes"][0]


def test_two_configurations_are_one_too_many(shell: Shell, dump: Path, tmp_path: Path) -> None:
    one = "apiVersion: windlass.dev/v1\nkind: SchedulerConfiguration\n"
    config = tmp_path / "config.yaml"
    config.write_text(f"{one}---\n{one}")
    assert shell("--from", dump, "--config", config) == 2
    assert "holds 2 configurations" in shell.err
