"""`why -A`: everything that needs a person, worst first; the same causes that `why` names, each once, on one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.diagnose.objects import GPU, GPU_TAINT, NOW, ended, evidence, node, pod, thing
from tests.diagnose.test_cases import CASES, answer

from windlass.cli.why import why_command
from windlass.cli.why_survey import survey_text
from windlass.diagnose import survey as surveying
from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.survey import Survey, survey
from windlass.dump.files import newest_timestamp
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

CRASHED = ended(1)["status"]


def surveyed(*objects: Unstructured, namespace: str = "") -> Survey:
    return survey(evidence(objects), namespace, NOW)


def codes(found: Survey) -> list[tuple[str, str]]:
    return [(entry.state, entry.code) for entry in found.entries]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_survey_names_what_why_names(case: Path) -> None:
    found, all_of_it = answer(case), survey(load_evidence(case), "", newest_timestamp(case))
    named = {entry.code for entry in all_of_it.entries}
    assert found.code in named or found.code == "NONE", named


def test_what_needs_a_person_comes_before_what_only_needs_time() -> None:
    full = [node("g1", 8), pod("runs", 8, on="g1"), *(pod(f"waits-{number}", 8) for number in range(3))]
    found = surveyed(
        *full, pod("picky", 1, spec={"nodeSelector": {"gpu": "none"}}), pod("crashed", status=CRASHED, on="g1")
    )
    assert codes(found)[:2] == [("blocked", "SELECTOR_MISMATCH"), ("unknown", "UNKNOWN")]
    assert codes(found)[-1] == ("waiting", "GPU_FULL")


def test_a_full_cluster_only_needs_time() -> None:
    found = surveyed(node("g1", 2), pod("runs", 2, on="g1"), pod("a", 1), pod("b", 1), pod("c", 2))
    assert codes(found) == [("waiting", "GPU_FULL")]
    assert found.entries[0].gpus == 4
    assert len(found.entries[0].subjects) == 3


def test_the_cause_that_holds_up_most_gpus_comes_first() -> None:
    picky = {"nodeSelector": {"gpu": "none"}}
    wrong_scheduler = {"schedulerName": "nobody"}
    found = surveyed(node("g1", 8), pod("one", 1, spec=wrong_scheduler), pod("eight", 8, spec=picky))
    assert [entry.code for entry in found.entries] == ["SELECTOR_MISMATCH", "WRONG_SCHEDULER"]


def test_the_same_fault_of_many_is_one_entry() -> None:
    tainted = [node(f"g{number}", 8, taints=[GPU_TAINT]) for number in range(3)]
    found = surveyed(*tainted, *(pod(f"p{number}", 1 + number % 2) for number in range(20)))
    assert codes(found) == [("blocked", "TAINT_NOT_TOLERATED")]
    assert len(found.entries[0].subjects) == 20
    assert found.entries[0].gpus == 30


def test_pods_stand_for_their_owner() -> None:
    owner = thing("Deployment", "server", {"replicas": 2, "template": {"spec": {"containers": []}}}, "apps/v1")
    pods = [pod(f"server-{number}", 1, owner=("Deployment", "server")) for number in range(2)]
    found = surveyed(node("c1"), owner, *pods)
    assert [entry.subjects for entry in found.entries] == [("Deployment team/server",)]
    assert found.entries[0].question == "deployment/server -n team"


def test_what_runs_and_is_ready_is_not_asked_about() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    found = surveyed(node("g1", 8), *(pod(f"p{number}", 1, on="g1", status=ready) for number in range(8)))
    assert (found.asked, found.entries) == (0, ())


def test_nodes_out_of_order_are_named_without_any_pod() -> None:
    found = surveyed(node("g1", 7, capacity={GPU: 8}), node("g2", 8, cordoned=True), node("g3", 8), node("c1"))
    assert sorted((entry.code, entry.subjects, entry.gpus) for entry in found.entries) == [
        ("DEVICE_UNHEALTHY", ("Node g1",), 1),
        ("NODE_UNSCHEDULABLE", ("Node g2",), 8),
    ]


def test_a_namespace_is_asked_about_alone() -> None:
    objects = [node("g1", 8, taints=[GPU_TAINT]), pod("mine", 1), pod("other", 1, namespace="others")]
    found = surveyed(*objects, namespace="team")
    assert [entry.subjects for entry in found.entries] == [("Pod team/mine",)]
    with pytest.raises(InputError, match="namespace nowhere"):
        surveyed(*objects, namespace="nowhere")


def test_more_than_can_be_asked_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "MAX_ASKED", 2)
    failed = [{**CRASHED["containerStatuses"][0], "image": f"i{number}"} for number in range(5)]
    crashed = [pod(f"p{at}", on="g1", status={"containerStatuses": [row]}) for at, row in enumerate(failed)]
    found = surveyed(node("g1", 8), *crashed)
    assert (found.asked, found.not_asked) == (5, 3)
    assert "3 of 5 objects in trouble were not looked into" in survey_text(found, NOW, wide=False)


def test_it_fits_one_screen_and_wide_shows_all() -> None:
    pods = [pod(f"p{number}", 1, spec={"nodeSelector": {f"label-{chr(97 + number)}": "x"}}) for number in range(20)]
    found = surveyed(node("g1", 8), *pods)
    assert len(found.entries) == 20
    lines = click.unstyle(survey_text(found, NOW, wide=False)).splitlines()
    assert len(lines) <= 23, "\n".join(lines)
    assert all(len(line) <= 80 for line in lines)
    assert any("more, -o wide shows them" in line for line in lines)
    wide = click.unstyle(survey_text(found, NOW, wide=True))
    assert all(f"Pod team/p{number}:" in wide for number in range(20))


def test_needs_you_and_needs_time_have_words_and_colours_of_their_own() -> None:
    objects = [node("g1", 1), pod("runs", 1, on="g1"), pod("waits", 1), pod("picky", spec={"nodeSelector": {"a": "b"}})]
    text = survey_text(surveyed(*objects), NOW, wide=False)
    assert click.unstyle(text).startswith("In the cluster: 1 cause needs you, 1 object only needs time.")
    assert click.style("BLOCKED ", fg="red", bold=True) in text
    assert click.style("WAITING ", fg="yellow", bold=True) in text


# The command


def run(tmp_path: Path, objects: list[Unstructured], *arguments: str) -> Result:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return CliRunner().invoke(why_command, [*arguments, "--from", str(dump)])


TAINTED: list[Any] = [node("g1", 8, taints=[GPU_TAINT]), pod("mine", 1), pod("other", 1, namespace="others")]


def test_the_document(tmp_path: Path) -> None:
    ran = run(tmp_path, TAINTED, "-A", "-o", "json")
    document = json.loads(ran.stdout)
    assert ran.exit_code == 1
    assert (document["kind"], document["namespace"], document["asked"]) == ("Survey", "", 2)
    (entry,) = document["entries"]
    assert (entry["state"], entry["code"], entry["changedBy"]) == (
        "blocked",
        "TAINT_NOT_TOLERATED",
        "you, in the manifest",
    )


@pytest.mark.parametrize("arguments", [["-n", "team"], ["ns/team"], ["namespace/team"]])
def test_ways_to_ask_about_a_namespace(tmp_path: Path, arguments: list[str]) -> None:
    ran = run(tmp_path, TAINTED, *arguments)
    assert ran.stdout.startswith("In namespace team: 1 cause needs you.")
    assert "others/other" not in ran.stdout


def test_what_only_needs_time_needs_no_person(tmp_path: Path) -> None:
    ran = run(tmp_path, [node("g1", 1), pod("runs", 1, on="g1"), pod("waits", 1)], "-A")
    assert (ran.exit_code, ran.stdout.split(".")[0]) == (0, "In the cluster: 1 object only needs time")
    ran = run(tmp_path, [node("g1", 1), pod("runs", 1, on="g1")], "-A")
    assert ran.stdout == "In the cluster: nothing needs you.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name an object"),
        (["-A", "pod/mine"], "-A asks about everything"),
        (["-A", "-n", "team"], "-A asks about everything"),
        (["-A", "--patch"], "need a KIND/NAME"),
        (["-n", "team", "--exec"], "--exec needs a live cluster"),
    ],
)
def test_questions_that_contradict_themselves(tmp_path: Path, arguments: list[str], said: str) -> None:
    ran = run(tmp_path, TAINTED, *arguments)
    assert ran.exit_code == 2
    assert said in ran.stderr
