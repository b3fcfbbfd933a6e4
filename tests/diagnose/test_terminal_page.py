"""What a person sees: 80 columns, the sentence first, nothing said twice, every node where every node is asked for."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.diagnose.holdout import CASES as HOLDOUT
from tests.diagnose.objects import ask, node, pod
from tests.diagnose.test_cases import CASES, answer

from windlass.cli import why_text
from windlass.diagnose.finding import Diagnosis


def page(found: Diagnosis, wide: bool) -> str:
    """Without its colours, as on anything but a terminal."""
    return click.unstyle(why_text.diagnosis_text(found, wide))


def held_out(name: str) -> Diagnosis:
    case = HOLDOUT[name]
    return ask(case.question, *case.objects, logs=case.logs, hosts=case.hosts)


def expect_readable(found: Diagnosis) -> None:
    lines = page(found, wide=False).splitlines()
    long = [line for line in lines if len(line) > 80 and " " in line.strip()]
    assert not long, long
    assert lines[0].split()[0] in ("BLOCKED", "WAITING", "OK", "UNKNOWN")
    head = 1 if found.code in lines[0] else 2
    assert found.code in lines[head - 1]
    first = lines[head].split()[0]
    assert first[0] == first[0].upper() or "." in first, "only the name of a field keeps its case"
    assert " ".join(lines[1:4]).count("—") <= 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_real_cases_fit_the_screen(case: Path) -> None:
    expect_readable(answer(case))


@pytest.mark.parametrize("name", HOLDOUT)
def test_more_cases_fit_the_screen(name: str) -> None:
    expect_readable(held_out(name))


def test_nodes_that_say_the_same_stand_together_unless_all_are_asked_for() -> None:
    nodes = [node(f"g{number}", 1) for number in range(9)]
    busy = [pod(f"busy-{number}", 1, on=f"g{number}") for number in range(9)]
    found = ask("pod/asked", *nodes, *busy, pod("asked", 1))
    short, wide = page(found, wide=False), page(found, wide=True)
    assert "g0, g1, g2 and 6 more: lacks 1 nvidia.com/gpu" in short
    assert all(f"g{number}" in wide for number in range(9))


def test_evidence_that_repeats_the_sentence_is_left_out() -> None:
    found = held_out("queue-names-flavors-that-do-not-exist")
    assert page(found, wide=False).lower().count("clusterqueue team-a is inactive") == 1


def test_a_cordoned_node_that_would_do_is_offered_beside_a_full_cluster() -> None:
    objects = [node("g1", 1), node("g2", 1, cordoned=True), pod("busy", 1, on="g1"), pod("asked", 1)]
    found = ask("pod/asked", *objects)
    assert (found.code, found.chain[0].code) == ("NODE_UNSCHEDULABLE", "GPU_FULL")
    best = found.patches[0]
    assert (best.target.kind, best.target.name, best.runs_after) == ("Node", "g2", True)
