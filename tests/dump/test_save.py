"""What a dump gives away: nothing that was to be left out, and the same answer as the cluster that it is of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.holdout import CASES as HOLDOUT
from tests.diagnose.objects import NOW, evidence, node, pod, thing
from tests.diagnose.test_cases import CASES, told

from windlass.diagnose.evidence import Evidence, load_evidence
from windlass.diagnose.log_patterns import matches_any_pattern
from windlass.diagnose.subject import ALIASES
from windlass.diagnose.why import why
from windlass.dump.anonymize import KEPT_NAMES, NameAnonymizer
from windlass.dump.collect import CollectedCluster
from windlass.dump.container_logs import HostLog, PodLog
from windlass.dump.files import newest_timestamp
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.dump.save import Privacy, save_dump

SECRET = "hunter2"
BOTH = Privacy(redact=True, rename=True, keep_line=matches_any_pattern)
ONLY_REDACTED = Privacy(redact=True, keep_line=matches_any_pattern)


def raw(tree: dict[str, Any]) -> RawObject:
    return RawObject(ObjectHeader(api_version=tree["apiVersion"], kind=tree["kind"]), "", tree)


def collected(known: Evidence, events: list[dict[str, Any]]) -> CollectedCluster:
    """What a live cluster with this evidence would have given."""
    objects = [raw(item.data) for item in known.items.values()] + [raw(one) for one in events]
    logs = [
        PodLog(namespace, name, container, "\n".join(log.lines))
        for (namespace, name), several in known._pod_logs.items()
        for container, log in several.items()
    ]
    hosts = [
        HostLog(name, source, "\n".join(log.lines))
        for name, several in known._host_logs.items()
        for source, log in several.items()
    ]
    return CollectedCluster(objects, set(known.complete_kinds), logs, hosts)


def leaky() -> dict[str, Any]:
    made = pod("train", 1, on="g1", namespace="acme")
    made["metadata"]["annotations"] = {
        "vault.example/token": SECRET,
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "windlass.dev/duration": "2h",
    }
    container = made["spec"]["containers"][0]
    container |= {
        "image": "registry.acme.example/skunkworks/model:cuda12.4",
        "command": ["train", f"--token={SECRET}"],
        "args": [SECRET],
        "env": [
            {"name": "API_KEY", "value": SECRET},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    }
    made["spec"]["initContainers"] = [{"name": "init", "env": [{"name": "PASSWORD", "value": SECRET}]}]
    made["metadata"]["managedFields"] = [{"manager": SECRET}]
    made["status"]["podIP"] = "10.1.2.3"
    return made


def written(folder: Path) -> str:
    names = " ".join(str(file.relative_to(folder)) for file in folder.rglob("*"))
    return names + "".join(file.read_text() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("privacy", [ONLY_REDACTED, BOTH], ids=["redact", "rename"])
def test_no_secret_survives(privacy: Privacy, tmp_path: Path) -> None:
    deployment = thing("Deployment", "server", {"template": {"metadata": leaky()["metadata"], "spec": leaky()["spec"]}})
    secret = thing("Secret", "s", {}, "v1") | {"data": {"k": SECRET}, "stringData": {"k": SECRET}}
    config = thing("ConfigMap", "c", {}, "v1") | {"data": {"app.yaml": SECRET, "plugin": "sharing: {}"}}
    trees = [leaky(), deployment, secret, config, node("g1", 1)]
    log = PodLog("acme", "train", "main", f"token {SECRET}\nRuntimeError: CUDA out of memory.\n")
    target = tmp_path / "dump"
    save_dump(CollectedCluster([raw(tree) for tree in trees], set(), [log], []), target, privacy)
    text = written(target)
    assert SECRET not in text
    assert "10.1.2.3" not in text
    assert "CUDA out of memory" in text
    assert "sharing: {}" in text
    assert '"windlass.dev/duration"' in text
    values = [one["value"] for one in _variables(json.loads((target / "pod.json").read_text())) if "value" in one]
    assert values == ["all"]


def _variables(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [one for value in tree for one in _variables(value)]
    if not isinstance(tree, dict):
        return []
    return [*tree.get("env", []), *(one for value in tree.values() for one in _variables(value))]


def test_names_are_replaced_everywhere_and_the_same_way(tmp_path: Path) -> None:
    quota = 'pods "train" is forbidden: exceeded quota in namespace acme, used by acme/train'
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "train.1", "namespace": "acme"},
        "involvedObject": {"kind": "Pod", "name": "train", "namespace": "acme"},
        "reason": "FailedCreate",
        "message": quota,
    }
    target = tmp_path / "dump"
    log = PodLog("acme", "train", "main", "pod acme/train asks for nvidia.com/gpu: CUDA out of memory")
    save_dump(CollectedCluster([raw(leaky()), raw(node("g1", 1)), raw(event)], set(), [log], []), target, BOTH)
    text = written(target)
    for name in ("acme", "train", "skunkworks", "g1"):
        assert not re.search(rf"\b{name}\b", text), name
    made = json.loads((target / "pod.json").read_text())["items"][0]
    said = json.loads((target / "event.json").read_text())["items"][0]
    mine = (made["metadata"]["namespace"], made["metadata"]["name"])
    assert (said["involvedObject"]["namespace"], said["involvedObject"]["name"]) == mine
    assert "/".join(mine) in said["message"]
    assert made["spec"]["nodeName"] == json.loads((target / "node.json").read_text())["items"][0]["metadata"]["name"]
    assert "nvidia.com/gpu" in text
    assert made["spec"]["containers"][0]["image"].endswith(":cuda12.4")
    assert next((target / "logs").iterdir()).name == f"{mine[0]}_{mine[1]}_main.log"


def test_each_dump_has_names_of_its_own() -> None:
    trees = [leaky()]
    assert NameAnonymizer(trees).anonymize_text("acme") != NameAnonymizer(trees).anonymize_text("acme")
    assert NameAnonymizer(trees, b"1").anonymize_text("acme") == NameAnonymizer(trees, b"1").anonymize_text("acme")


@pytest.mark.parametrize("name", HOLDOUT)
def test_the_answer_survives_redaction_and_renaming(name: str, tmp_path: Path) -> None:
    case = HOLDOUT[name]
    known = evidence(case.objects, case.logs, case.hosts)
    _same_code(
        known,
        [one for one in case.objects if one["kind"] == "Event"],
        case.question,
        case.code,
        tmp_path,
        NOW,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_to_a_real_case_survives(case: Path, tmp_path: Path) -> None:
    import yaml

    events = [one for one in yaml.safe_load_all((case / "cluster.yaml").read_text()) if one["kind"] == "Event"]
    asked = told(case)
    _same_code(load_evidence(case), events, asked["question"], asked["code"], tmp_path, newest_timestamp(case))


def _same_code(
    known: Evidence, events: list[dict[str, Any]], question: str, code: str, tmp_path: Path, now: int
) -> None:
    target = tmp_path / "dump"
    everything = collected(known, events)
    save_dump(everything, target, BOTH)
    kind, _, name = question.rpartition("/")
    before = [raw_object.data for raw_object in everything.objects]
    after = [item for file in sorted(target.glob("*.json")) for item in json.loads(file.read_text())["items"]]
    by_kind = {tree["kind"] for tree in before}
    assert {tree["kind"] for tree in after} == by_kind
    place = _place(before, kind, name)
    same = [tree for tree in after if tree["kind"] == place[0]][place[1]]["metadata"]
    found = why(load_evidence(target), f"{place[0]}/{same['name']}", same.get("namespace", ""), now)
    assert found.code == code, found.headline


def _place(trees: list[dict[str, Any]], kind: str, name: str) -> tuple[str, int]:
    """The kind of what is asked about, and its place among its kind: order is kept."""
    wanted = next(
        tree for tree in trees if tree["metadata"]["name"] == name and (not kind or _is_kind(tree["kind"], kind))
    )
    return wanted["kind"], [tree for tree in trees if tree["kind"] == wanted["kind"]].index(wanted)


def _is_kind(kind: str, asked: str) -> bool:
    return kind.lower() == ALIASES.get(asked, asked).lower()


def test_parts_of_the_stack_keep_their_names() -> None:
    """Diagnosis knows them by these."""
    assert KEPT_NAMES.search("nvidia-device-plugin-daemonset-x")
    assert NameAnonymizer([pod("nvidia-device-plugin-x", namespace="gpu-operator")]).anonymize_text(
        "nvidia-device-plugin-x"
    ) == ("nvidia-device-plugin-x")
