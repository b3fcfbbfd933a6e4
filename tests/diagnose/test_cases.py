"""Real failures with known causes: each is a dump, and `why` names the cause that its thread established."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.diagnose.objects import ask, node, pod

from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.why import why
from windlass.dump.files import newest_timestamp
from windlass.model.errors import InputError

CASES = sorted(path for path in (Path(__file__).parent / "cases").iterdir() if path.is_dir())


def told(case: Path) -> dict[str, Any]:
    """What the case asks, and what came out of its thread."""
    told = yaml.safe_load((case / "case.txt").read_text())
    assert isinstance(told, dict)
    return told


def answer(case: Path) -> Diagnosis:
    asked = told(case)
    return why(load_evidence(case), asked["question"], asked.get("namespace", ""), newest_timestamp(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_why_names_the_established_cause(case: Path) -> None:
    found = answer(case)
    assert found.code == told(case)["code"], found.headline
    assert found.headline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_else_is_true_is_said(case: Path) -> None:
    expected = set(told(case).get("contributing", []))
    assert expected <= set(answer(case).contributing)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_events_are_not_needed_where_objects_show_the_cause(case: Path, tmp_path: Path) -> None:
    """The scheduler's own events can be cut out, whatever their wording is in this release."""
    documents = list(yaml.safe_load_all((case / "cluster.yaml").read_text()))
    left = [obj for obj in documents if obj["kind"] != "Event" or obj["reason"] != "FailedScheduling"]
    copy = tmp_path / "cluster.yaml"
    copy.write_text(yaml.safe_dump_all(left))
    evidence = load_evidence(case)
    without = load_evidence(copy)
    without._pod_logs, without._host_logs = evidence._pod_logs, evidence._host_logs
    asked = told(case)
    found = why(without, asked["question"], asked.get("namespace", ""), newest_timestamp(case))
    assert found.code == asked["code"]


def test_a_thing_can_be_named_as_plans_name_it() -> None:
    """`namespace/name`, or the name alone where it is clear; the wrong one is answered with what is near."""
    objects = [node("g1", 4), pod("train-0", 1), pod("train-0", 1, namespace="other")]
    assert ask("team/train-0", *objects).subject == "Pod team/train-0"
    with pytest.raises(InputError, match="several namespaces"):
        ask("train-0", *objects)
    with pytest.raises(InputError, match="did you mean pod/train-0"):
        ask("pod/train-1", *objects)
