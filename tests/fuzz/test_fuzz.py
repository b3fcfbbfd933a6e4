"""Everything that has failed once, and some thousand inputs; `make fuzz` draws new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.fuzz.engine_targets import SETTINGS, Kernels, Worlds, decided
from tests.fuzz.guarded_kernels import Guarded, guarded_kernels
from tests.fuzz.runner import corpus, draw, play, target_named
from tests.fuzz.shrink import shrunk
from tests.fuzz.target import Finding, Target
from tests.fuzz.targets import TARGETS

from windlass import jit

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


def test_the_drawn_clusters_give_something_to_decide() -> None:
    """Pods of another scheduler would be no test of the engine."""
    worlds = Worlds()
    plans = [plan for seed in range(30) for plan in decided(worlds.draw(Random(seed)), SETTINGS)]
    assert sum(len(plan.binds) for plan in plans) > len(plans)
    for decisions in ("holds", "admits", "evicts"):
        assert sum(len(getattr(plan, decisions)) for plan in plans) > len(plans) / 10, decisions


@pytest.mark.parametrize("index", [-1, 3, (0, 2), (2, -1), (slice(None), 2)])
def test_plain_kernels_look_at_every_index(index: Any) -> None:
    array = np.zeros((3, 2)).view(Guarded)
    with pytest.raises(IndexError, match="is not within"):
        array[index] = 1
    assert array[2].view(Guarded)[1] == array[:, 1][2] == 0


def test_kernels_that_decide_differently_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_room(*arguments: Any) -> None:
        arguments[-1][:] = 0

    def kernel_sets() -> tuple[jit.Kernels, jit.Kernels]:
        return SimpleNamespace(**{**vars(jit.compiled()), "count_fits": without_room}), guarded_kernels()

    monkeypatch.setattr("tests.fuzz.engine_targets.kernel_sets", kernel_sets)
    target = Kernels()
    failures = [play(target, target.draw(Random(seed))) for seed in range(20)]
    assert any(failure is not None and "compiled kernels decide" in failure.message for failure in failures)


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
