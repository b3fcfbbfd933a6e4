"""Everything that has failed once, and some thousand inputs; `make fuzz` draws new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.fuzz.runner import corpus, draw, play, target_named
from tests.fuzz.shrink import shrunk
from tests.fuzz.targets import TARGETS, Finding, Target

ROOT = Path(__file__).parents[2]
INPUTS = 5000


@pytest.mark.parametrize(("target", "drawn"), [pytest.param(*entry[1:], id=entry[0]) for entry in corpus()])
def test_what_failed_once_does_not_fail_again(target: Target, drawn: Any) -> None:
    failure = play(target, drawn)
    assert failure is None, failure.message


def test_inputs_that_are_nearly_right() -> None:
    """In processes of their own: their memory is counted, and nothing that other tests left is theirs."""
    command = [sys.executable, "-m", "tests.fuzz", f"--count={INPUTS}", "--seed=1"]
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert played.returncode == 0, played.stdout[-8000:] + played.stderr[-2000:]
    assert f"0 faults in {INPUTS:,} inputs" in played.stdout


@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_seed_draws_the_same_input_again(name: str) -> None:
    assert draw(7, name)[1] == draw(7, name)[1]
    assert target_named(name).draw(Random(1)) != target_named(name).draw(Random(2))


class Planted(Target):
    name, share = "planted", 0

    def draw(self, rng: Random) -> Any: ...

    def play(self, drawn: Any) -> None:
        if "bad" in str(drawn):
            raise Finding("planted")
        while drawn == ["for ever"]:
            pass


def test_a_failure_is_found_and_made_small() -> None:
    drawn = {"a": [1, 2, {"b": "bad", "c": 5}], "d": {"e": "good"}}
    failure = play(Planted(), drawn)
    assert failure is not None
    assert failure.sign == "planted: planted"
    assert shrunk(drawn, lambda tree: play(Planted(), tree) is not None) == {"a": [{"b": "bad"}]}


def test_a_hang_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.runner.ABORT_SECONDS", 0.2)
    failure = play(Planted(), ["for ever"])
    assert failure is not None
    assert "hang" in failure.sign
