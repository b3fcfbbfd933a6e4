"""Scenario files that are wrong: refused before anything is played, with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulate.scenario.stories import CLUSTER, HEADER, loaded, written

from windlass.model.errors import InputError
from windlass.simulate.scenario import is_scenario, load_scenarios, play


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        play_all(path)
    return str(caught.value)


def play_all(path: Path) -> None:
    for scenario in load_scenarios(path):
        play(scenario)


WRONG = {
    "unknown field": (
        "timeline:\n- at: 0s\n  submitt: []\n",
        "story.yaml:12:12: timeline[0].submitt: unknown field (did you mean submit?)",
    ),
    "unknown field of a short form": (
        "timeline:\n- at: 0s\n  submit:\n  - {job: a, queue: team, gpu: 1}\n",
        "timeline[0].submit[0].gpu: unknown field (did you mean gpus?)",
    ),
    "unknown field of an expectation": (
        "timeline:\n- at: 0s\n  expect:\n    running: [{workload: a, node: [n-0]}]\n",
        "story.yaml:13:35: timeline[0].expect.running[0].node: unknown field (did you mean nodes?)",
    ),
    "a wrong type": (
        "timeline:\n- at: 5\n",
        "story.yaml:11:7: timeline[0].at: expected a string, found 5",
    ),
    "no time": ("timeline:\n- at: soon\n", "timeline[0].at: 'soon' is not a duration"),
    "out of order": (
        "timeline:\n- at: 5m\n- at: 1m\n",
        "story.yaml:12:7: timeline[1].at: is before the moment above it",
    ),
    "more rounds than anybody waits for": (
        "timeline:\n- at: 0s\n  expect: {rest: 18446744073709551616}\n",
        "story.yaml:12:18: timeline[0].expect.rest: 18446744073709551616 is not a number of rounds from 0 to 1000",
    ),
    "nothing happens": ("timeline: []\n", "timeline: nothing happens"),
    "two kinds of work": (
        "timeline:\n- at: 0s\n  submit: [{job: a, pod: b}]\n",
        "timeline[0].submit[0]: names job and pod",
    ),
    "no kind of work": (
        "timeline:\n- at: 0s\n  submit: [{queue: team}]\n",
        "timeline[0].submit[0]: names no kind of work",
    ),
    "an object that can't be read": (
        "timeline:\n- at: 0s\n  submit:\n  - kind: Pod\n    apiVersion: v1\n    metadata: {name: a}\n"
        "    spec: {containers: [{resources: 5}]}\n",
        "story.yaml:16:37: Pod default/a: timeline[0].submit[0].spec.containers[0].resources: expected a mapping",
    ),
    "an object without a name": (
        "objects:\n- {apiVersion: v1, kind: ConfigMap}\ntimeline:\n- at: 0s\n",
        "objects[0].metadata.name: needs a name",
    ),
    "no number of copies": (
        "objects:\n- {apiVersion: v1, kind: Pod, count: 0, metadata: {name: a}}\ntimeline:\n- at: 0s\n",
        "objects[0].count: 0 is not a number of objects",
    ),
    "nodes that don't match the pods": (
        "running:\n- {job: a, queue: team, pods: 3, nodes: [n-0, n-1]}\ntimeline:\n- at: 0s\n",
        "running[0].nodes: 2 nodes for 3 pods",
    ),
    "work on a node that isn't there": (
        "running:\n- {job: a, queue: team, nodes: [n-9]}\ntimeline:\n- at: 0s\n",
        "running[0].nodes: there is no node 'n-9'",
    ),
    "an expected node that isn't there": (
        "timeline:\n- at: 0s\n  expect: {running: [{workload: a, nodes: [m-0]}]}\n",
        "timeline[0].expect.running[0].nodes: there is no node 'm-0'",
    ),
    "a free node that isn't there": (
        "timeline:\n- at: 0s\n  expect: {free: {n-9: 8}}\n",
        "timeline[0].expect.free: there is no node 'n-9'",
    ),
    "a setting that is unknown": (
        "config: {fairness: {}}\ntimeline:\n- at: 0s\n",
        "config.fairness: unknown field",
    ),
    "a node that isn't there": ("timeline:\n- at: 0s\n  fail: [n-9]\n", "timeline[0]: there is no Node n-9"),
    "a workload that isn't there": (
        "timeline:\n- at: 0s\n  finish: [nobody]\n",
        "story.yaml:11:3: timeline[0]: there is no workload nobody",
    ),
    "a name twice": (
        "timeline:\n- at: 0s\n  submit: [{pod: a}, {pod: a}]\n",
        "timeline[0]: Pod a already exists",
    ),
    "an object that isn't named": (
        "timeline:\n- at: 0s\n  delete: [team]\n",
        "'team' names no object (use Kind/name)",
    ),
    "quota of two flavors": (
        "timeline:\n- at: 0s\n  quota: {none: {gpu: 1}}\n",
        "there is no ClusterQueue none",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_is_refused(tmp_path: Path, case: str) -> None:
    body, message = WRONG[case]
    assert message in refused(written(tmp_path, body))


HEADERS = {
    "another kind": ("kind: Scenario", "kind: Fleet", "is not a Scenario"),
    "another version": ("windlass.dev/v1", "windlass.dev/v9", "apiVersion: unknown version"),
    "another rule": ("rule: Quota", "rule: Luck", "story.yaml:4:7: rule: unknown rule 'Luck'"),
    "no story": ("story: for a test\n", "", "story: required field is missing"),
    "a pool that can't be built": ("8xH100", "99xH100", "fleet[0].gpus[0].count"),
    "quota that is no number": ("{gpu: 16}", "{gpu: lots}", "queues[0]: "),
    "a policy that doesn't exist": ("LowerPriority", "Sometimes", "queues[0]: "),
}


@pytest.mark.parametrize("case", HEADERS)
def test_header_is_refused(tmp_path: Path, case: str) -> None:
    before, after, message = HEADERS[case]
    text = (HEADER + CLUSTER).replace(before, after)
    assert text != HEADER + CLUSTER
    assert message in refused(written(tmp_path, "timeline:\n- at: 0s\n", text))


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "story.yaml"
    path.write_text("kind: [Scenario\n")
    assert "story.yaml:" in refused(path)


def test_an_empty_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    assert "holds no file" in refused(tmp_path)
    (tmp_path / "story.yaml").write_text("")
    assert "holds no scenario" in refused(tmp_path / "story.yaml")


def test_a_folder_is_its_own_files_in_order(tmp_path: Path) -> None:
    body = HEADER + "timeline:\n- at: 0s\n"
    for name in ("b.yaml", "a.yml"):
        (tmp_path / name).write_text(body)
    (tmp_path / "wanted").mkdir()
    (tmp_path / "wanted" / "c.yaml").write_text("nonsense")
    assert [scenario.name for scenario in load_scenarios(tmp_path)] == ["a", "b"]


def test_several_documents_are_several_scenarios(tmp_path: Path) -> None:
    one = HEADER + "metadata: {name: one}\ntimeline:\n- at: 0s\n"
    path = tmp_path / "both.yaml"
    path.write_text(one + "---\n" + one.replace("name: one", "name: two"))
    assert [scenario.name for scenario in load_scenarios(path)] == ["one", "two"]


def test_what_a_scenario_is_and_what_a_trace_is(tmp_path: Path) -> None:
    scenario = tmp_path / "story.json"
    scenario.write_text('{"apiVersion": "windlass.dev/v1", "kind": "Scenario"}')
    trace = tmp_path / "trace.json"
    trace.write_text('[{"kind": "Pod"}]')
    assert is_scenario(str(scenario))
    assert is_scenario("story.yaml")
    assert is_scenario(str(tmp_path))
    assert not is_scenario(str(trace))
    assert not is_scenario("synthetic/small")
    assert not is_scenario("jobs.csv")


def test_count_makes_numbered_copies(tmp_path: Path) -> None:
    body = """
        timeline:
        - at: 0s
          submit:
          - {job: a, queue: team, count: 2}
          - {apiVersion: v1, kind: Pod, count: 2, metadata: {name: p}, spec: {containers: [{name: c}]}}
          - {pod: alone}
        """
    submitted = loaded(tmp_path, body).steps[0].submit
    assert [tree["metadata"]["name"] for tree in submitted] == ["a-1", "a-2", "p-1", "p-2", "alone"]
