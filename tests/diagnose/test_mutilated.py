"""Dumps and manifests that are cut, bent and filled with nonsense: an answer, or one line that names the file.

Never a traceback, never a hang. Everything goes through the commands as a user calls them.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
from pathlib import Path
from typing import Any

import click
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.diagnose.holdout import CASES as HOLDOUT
from tests.diagnose.objects import node, pod
from tests.diagnose.test_cases import CASES, told
from tests.diagnose.test_check import MANIFESTS

from windlass.cli.check import check
from windlass.cli.doctor import doctor
from windlass.cli.errors import run_command
from windlass.cli.why import why_command

JUNK: list[Any] = [
    None,
    [],
    {},
    "",
    "x",
    0,
    -1,
    1.5,
    10**30,
    True,
    [None],
    [[]],
    {"": None},
    ["x"],
    {"a": {"b": []}},
]
JUNK += ["1Gi", "-5", "1e400", "NaN", "2026-99-99T99:99:99Z", "\x00", "é" * 300, {"nvidia.com/gpu": "x"}]
SNIPPETS = st.text("{}[]:-,0aZ'\" \n#&*!|>%\t\\", max_size=4)
MANY = settings(max_examples=700, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOME = settings(MANY, max_examples=250)


def run(command: click.Command, *arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed on stderr."""
    printed, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        code = run_command(command, list(arguments), "windlass")
    return code, complained.getvalue()


def expect_answer_or_error(code: int, complaint: str, file: Path) -> None:
    assert code in (0, 1, 2), complaint
    assert "Traceback" not in complaint
    if code == 2:
        assert (
            file.name in complaint
            or "in the cluster" in complaint
            or "in the evidence" in complaint
            or "namespaces" in complaint
        ), complaint


DUMPS = [((case / "cluster.yaml").read_text(), told(case)["question"]) for case in CASES]
DUMPS += [
    (json.dumps({"apiVersion": "v1", "kind": "List", "items": case.objects}, indent=1), case.question)
    for case in HOLDOUT.values()
]


def bent(data: st.DataObject, text: str) -> str:
    """Cut off, or with characters taken out and put in."""
    if data.draw(st.booleans()):
        return text[: data.draw(st.integers(0, len(text)))]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(SNIPPETS) + text[place + data.draw(st.integers(0, 12)) :]
    return text


@MANY
@given(data=st.data())
def test_a_bent_dump_is_answered_or_refused_with_its_place(data: st.DataObject, tmp_path: Path) -> None:
    text, question = data.draw(st.sampled_from(DUMPS))
    file = tmp_path / ("dump.json" if text.startswith("{") else "dump.yaml")
    file.write_text(bent(data, text), encoding="utf-8")
    code, complaint = run(why_command, question, "--from", str(file))
    expect_answer_or_error(code, complaint, file)
    if " is not " in complaint and code == 2:
        assert re.search(r"dump\.(json|yaml):\d+", complaint), complaint


@MANY
@given(data=st.data())
def test_a_dump_full_of_nonsense_is_answered(data: st.DataObject, tmp_path: Path) -> None:
    """Well-formed, but any value may be anything."""
    text, question = data.draw(st.sampled_from(DUMPS))
    objects = json.loads(text)["items"] if text.startswith("{") else list(yaml.safe_load_all(text))
    objects = [nonsense(data, obj) if data.draw(st.integers(0, 2)) == 0 else obj for obj in objects]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    code, complaint = run(why_command, question, "--from", str(file), "--keep-going")
    expect_answer_or_error(code, complaint, file)


def nonsense(data: st.DataObject, tree: Any) -> Any:
    """The object with something else at some place in it."""
    made = copy.deepcopy(tree)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = _place(data, made)
        if holder is None:
            return made
        what = data.draw(st.sampled_from(["junk", "delete", "wrap"]))
        if what == "junk":
            holder[key] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
        elif what == "delete":
            del holder[key]
        else:
            holder[key] = [holder[key], holder[key]]
    return made


def _place(data: st.DataObject, tree: Any) -> tuple[Any, Any]:
    """A dict or list inside, and a key of it; kind and name stay, so that there is something to ask about."""
    places = []
    stack = [tree]
    while stack:
        here = stack.pop()
        items = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        for key, value in items:
            if key not in ("kind", "apiVersion", "name", "metadata"):
                places.append((here, key))
            stack.append(value)
    return data.draw(st.sampled_from(places)) if places else (None, None)


@SOME
@given(data=st.data())
def test_doctor_examines_a_dump_full_of_nonsense(data: st.DataObject, tmp_path: Path) -> None:
    case = data.draw(st.sampled_from(sorted(HOLDOUT.items())))[1]
    objects = [nonsense(data, obj) for obj in case.objects]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    code, complaint = run(doctor, "cluster", "--from", str(file))
    expect_answer_or_error(code, complaint, file)


@MANY
@given(data=st.data())
def test_a_manifest_full_of_nonsense_is_checked(data: st.DataObject, tmp_path: Path) -> None:
    """Alone, and against a cluster that is no better."""
    source = data.draw(st.sampled_from(sorted(MANIFESTS.iterdir())))
    documents = [nonsense(data, obj) for obj in yaml.safe_load_all(source.read_text())]
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    code, complaint = run(check, "-f", str(file), *_against(data, tmp_path))
    expect_answer_or_error(code, complaint, file)


def _against(data: st.DataObject, folder: Path) -> list[str]:
    if data.draw(st.integers(0, 3)):
        return []
    case = data.draw(st.sampled_from(sorted(HOLDOUT.items())))[1]
    objects = [nonsense(data, obj) for obj in case.objects]
    dump = folder / "manifest.yaml.dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return ["--from", str(dump)]


@MANY
@given(data=st.data())
def test_a_bent_manifest_is_checked_or_refused_with_its_place(data: st.DataObject, tmp_path: Path) -> None:
    source = data.draw(st.sampled_from(sorted(MANIFESTS.iterdir())))
    file = tmp_path / "manifest.yaml"
    file.write_text(bent(data, source.read_text()), encoding="utf-8")
    code, complaint = run(check, "-f", str(file))
    expect_answer_or_error(code, complaint, file)


def test_a_log_that_is_no_text_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    (folder / "logs").mkdir(parents=True)
    (folder / "dump.yaml").write_text(DUMPS[0][0])
    (folder / "logs" / "a_b_c.log").write_bytes(bytes(range(256)) * 4)
    (folder / "logs" / "odd.log").write_text("x")
    code, complaint = run(why_command, DUMPS[0][1], "--from", str(folder))
    expect_answer_or_error(code, complaint, folder)


def test_keys_that_are_no_words_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeSelector: {true: x, 7: y}, containers: "
        "[{name: c, resources: {limits: {1.5: 2, nvidia.com/gpu: 1}}}]}}"
    )
    code, complaint = run(check, "-f", str(file))
    expect_answer_or_error(code, complaint, file)


def test_a_node_that_can_not_be_read_is_no_reason_to_give_up(tmp_path: Path) -> None:
    """Its amounts are nonsense, and it alone has the resource that is asked for."""
    broken = node("g1", {"nvidia.com/gpu": 8, "example.com/nic": 1})
    broken["status"]["capacity"]["nvidia.com/gpu"] = "x"
    file = tmp_path / "dump.json"
    objects = [broken, node("g2", 1), pod("asked", 1), pod("nic", 1, resource="example.com/nic")]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    for question in ("pod/asked", "pod/nic", "node/g1"):
        code, complaint = run(why_command, question, "--from", str(file))
        expect_answer_or_error(code, complaint, file)
