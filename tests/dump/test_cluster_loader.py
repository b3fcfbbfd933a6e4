"""A cluster out of files: the dump as it is, manifests as if they had just been submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windlass.dump.cluster_loader import load_cluster
from windlass.model.codec import Unreadable
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.owners.wire import JobObject
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp

DUMP = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, creationTimestamp: "2026-01-01T00:00:00Z"}
- apiVersion: v1
  kind: Pod
  metadata: {name: a, namespace: eng, uid: u1, creationTimestamp: "2026-01-03T00:00:00Z"}
  spec: {nodeName: n1}
  status: {phase: Running, startTime: "2026-01-04T00:00:00Z"}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: j, namespace: eng, uid: u2, creationTimestamp: "2026-01-02T00:00:00Z"}
  spec: {parallelism: 1}
  status: {succeeded: 1}
"""
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: b, uid: old, creationTimestamp: "2031-01-01T00:00:00Z"}
status: {phase: Running}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: eng}
spec: {parallelism: 5}
---
apiVersion: v1
kind: Pod
metadata: {generateName: run-, namespace: eng}
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "dump.yaml"
    file.write_text(DUMP)
    return file


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "new.yaml"
    file.write_text(MANIFEST)
    return file


def test_the_dump_as_it_is(dump: Path) -> None:
    loaded = load_cluster(dump)
    assert [type(thing) for thing in loaded.objects] == [Node, Pod, JobObject]
    assert loaded.newest_timestamp == parse_timestamp("2026-01-04T00:00:00Z")
    assert loaded.problems == loaded.notes == ()


def test_a_manifest_has_no_age_and_no_status_yet(dump: Path, manifest: Path) -> None:
    loaded = load_cluster(dump, [manifest], namespace="lab")
    pods = {thing.key: thing for thing in loaded.objects if isinstance(thing, Pod)}
    assert set(pods) == {"eng/a", "lab/b", "eng/run-new"}
    fresh = pods["lab/b"]
    assert (fresh.metadata.uid, fresh.metadata.creation_timestamp, fresh.status.phase) == ("", "", "")
    assert loaded.newest_timestamp == parse_timestamp("2026-01-04T00:00:00Z")


def test_an_update_keeps_its_age(dump: Path, manifest: Path) -> None:
    [job] = [thing for thing in load_cluster(dump, [manifest]).objects if isinstance(thing, JobObject)]
    assert (job.spec.parallelism, job.status.succeeded, job.metadata.uid) == (5, 1, "u2")
    assert job.metadata.creation_timestamp == "2026-01-02T00:00:00Z"


def test_a_pod_that_is_there_stays_as_it_is(dump: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: eng}\n")
    loaded = load_cluster(dump, [again])
    [pod] = [thing for thing in loaded.objects if isinstance(thing, Pod)]
    assert pod.is_bound
    assert "Pod eng/a" in loaded.notes[0]


@pytest.mark.parametrize("is_dump", [False, True])
def test_each_object_with_a_generate_name_is_one_of_its_own(tmp_path: Path, is_dump: bool) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "run-"}, "spec": {}}] * 2
    file = tmp_path / "pods.yaml"
    file.write_text("\n---\n".join(map(json.dumps, pods)))
    loaded = load_cluster(file) if is_dump else load_cluster(None, [file])
    assert [thing.key for thing in loaded.objects if isinstance(thing, Pod)] == [
        "default/run-new",
        "default/run-new-2",
    ]


def test_a_fleet_stands_for_its_nodes(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "apiVersion: windlass.dev/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  pools:\n"
        "  - {name: h100, count: 3, cpu: 128, memory: 2Ti, gpus: [{model: H100, count: 8}]}\n"
    )
    loaded = load_cluster(None, [file])
    assert len(loaded.objects) == 3
    assert all(isinstance(thing, Node) for thing in loaded.objects)
    assert loaded.newest_timestamp == 0


def test_what_cannot_be_read_is_an_error_unless_told_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeName: n1\n  priority: high\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
    )
    with pytest.raises(InputError, match=r"broken.yaml:6:13: Pod default/a: spec.priority"):
        load_cluster(file)
    loaded = load_cluster(file, keep_going=True)
    [broken] = [thing for thing in loaded.objects if isinstance(thing, Unreadable)]
    assert (broken.node_name, broken.name) == ("n1", "a")
    assert [str(problem) for problem in loaded.problems] == [str(broken.error)]
    assert any(isinstance(thing, Node) for thing in loaded.objects)


def test_the_newest_time_of_a_folder_of_json(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(
        '{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"}}'
    )
    (tmp_path / "two.json").write_text(
        '{"apiVersion":"v1","kind":"Node","metadata":{"name":"b","annotations":{"until":"2030-01-01T00:00:00Z"}},'
        '"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-05T00:00:00+01:00"}]}}'
    )
    assert load_cluster(tmp_path).newest_timestamp == parse_timestamp("2026-01-04T23:00:00Z")


def test_a_manifest_of_an_unknown_kind_that_makes_pods_is_not_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "foo.yaml"
    template = "template: {spec: {containers: [{name: c}]}}"
    file.write_text(
        f"apiVersion: foo.io/v1\nkind: Foo\nmetadata: {{name: a}}\nspec: {{replicas: 3, {template}}}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"
    )
    [note] = load_cluster(None, [file], namespace="eng").notes
    assert note.startswith("Foo eng/a (foo.io/v1) is of an unknown kind")
