"""`windlass simulate SCENARIO…` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli

GOOD = """\
apiVersion: windlass.dev/v1
kind: Scenario
title: a pod finds its node
rule: Placement
story: for a test
fleet:
- {name: n, gpus: 8xH100}
timeline:
- at: 0s
  submit: [{pod: a, gpus: 1}]
  expect: {running: [a]}
"""
BAD = GOOD.replace("running: [a]", "held: [a]")


def windlass(*arguments: str) -> int:
    return run_command(cli, ["simulate", *arguments], "windlass")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_scenario_that_holds_is_0_and_prints_its_trace(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert windlass(str(good)) == 0
    out = capsys.readouterr().out
    assert "good: a pod finds its node" in out
    assert "bind      default/a  n-0 (GPU 0)" in out
    assert "✓ a runs" in out
    assert out.endswith("PASS  2 of 2 expectations hold\n")


def test_a_failing_expectation_is_1_and_says_what_was_seen(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert windlass(str(bad)) == 1
    out = capsys.readouterr().out
    assert "✗ a waits" in out
    assert "seen instead: 1 of 1 pods run on n-0" in out


def test_a_folder_prints_a_line_each_and_the_trace_of_what_fails(
    good: Path, bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert windlass(str(good.parent)) == 1
    captured = capsys.readouterr()
    assert "PASS  good: a pod finds its node" in captured.out
    assert "✗ a waits" in captured.out
    assert captured.err == "1 of 2 scenarios pass\n"


def test_wide_prints_every_trace(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert windlass(str(good), str(good), "-o", "wide") == 0
    assert capsys.readouterr().out.count("bind      default/a") == 2


def test_json_is_a_scenario_report(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert windlass(str(good), str(bad), "-o", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["apiVersion"], document["kind"]) == ("windlass.dev/v1", "ScenarioReport")
    first, second = document["items"]
    assert (first["name"], first["passed"], second["passed"]) == ("good", True, False)
    assert {"at": 0, "expected": "a runs", "ok": True} in first["checks"]
    assert second["checks"][0] == {
        "at": 0,
        "expected": "a waits",
        "ok": False,
        "seen": "1 of 1 pods run on n-0",
    }
    assert [event["event"] for event in first["trace"]] == ["submit", "bind"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synthetic/small"], "synthetic/small is not a scenario"),
        (["--policy", "fgd"], "--policy is for traces"),
        (["--seed", "3"], "--seed is for traces"),
        (["-o", "csv"], "leave -o csv out"),
    ],
)
def test_mistakes_are_2(good: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert windlass(str(good), *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_bad_file_is_2_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("submit:", "sbmit:"))
    assert windlass(str(path)) == 2
    assert "bad.yaml:10:" in capsys.readouterr().err
    assert windlass(str(tmp_path / "none.yaml")) == 2
    assert "none.yaml" in capsys.readouterr().err
