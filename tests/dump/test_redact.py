"""What redaction leaves is enough: the plan of a redacted cluster is the plan of the cluster."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.diagnose.test_cases import CASES, told
from tests.dump.test_save import ONLY_REDACTED, collected
from tests.engine.plain_objects import NOW, START, node, pod
from tests.invariants import crowds

from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.why import why
from windlass.dump.files import newest_timestamp
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.dump.redact import KEPT_ANNOTATIONS, redact_object
from windlass.dump.save import save_dump
from windlass.model import names
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.names import kubernetes
from windlass.model.plan import Plan
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

FIRST = int(os.environ.get("WINDLASS_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("WINDLASS_CROWDS", "20")))
NOT_READ = (kubernetes.LAST_APPLIED_ANNOTATION, "sandbox.windlass.dev/")
"""A copy of the whole object; and what only the simulated kubelet obeys."""
ANNOTATIONS = sorted(
    value
    for owner in pkgutil.iter_modules(names.__path__, f"{names.__name__}.")
    for name, value in vars(importlib.import_module(owner.name)).items()
    if name.endswith("_ANNOTATION") or name.startswith("ALIBABA_")
    if not value.startswith(NOT_READ)
)
STORAGE = "storage.k8s.io/v1"
WAITING = "WaitForFirstConsumer"


def redacted(tree: Unstructured) -> Unstructured:
    return redact_object(RawObject(ObjectHeader(api_version=tree["apiVersion"], kind=tree["kind"]), "", tree))


def planned(objects: list[Unstructured], now: int) -> Plan:
    return plan_objects([decode_object(one) for one in objects], Settings(), now)[0]


def binds(objects: list[Unstructured]) -> dict[str, str]:
    return {bind.pod: bind.node for bind in planned(objects, parse_timestamp(NOW)).binds}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations_with_a_name_of_ours_stay(name: str) -> None:
    tree = pod("p", metadata={"annotations": {name: "1", "example.com/secret": "1"}})
    assert redacted(tree)["metadata"]["annotations"] == {name: "1"}


class Recorded(dict[str, str]):
    """Annotations that note which of them are asked for."""

    asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def recorded(obj: object) -> object:
    """The object with annotations that note what is read, also those of its pod templates."""
    if isinstance(obj, msgspec.Struct):
        changed = {name: recorded(getattr(obj, name)) for name in obj.__struct_fields__}
        if "annotations" in changed:
            changed["annotations"] = Recorded(changed["annotations"])
        return type(obj)(**changed)
    return tuple(map(recorded, obj)) if isinstance(obj, tuple) else obj


@pytest.mark.parametrize("seed", SEEDS)
def test_every_annotation_that_the_engine_asks_for_stays(seed: int) -> None:
    objects = [recorded(decode_object(tree)) for tree in crowds.crowd(Random(seed))]
    plan_objects(objects, Settings(), crowds.NOW)
    assert Recorded.asked, "nothing was recorded"
    assert [name for name in sorted(Recorded.asked) if not name.startswith(KEPT_ANNOTATIONS)] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_survives_redaction(seed: int) -> None:
    objects = crowds.crowd(Random(seed))
    assert planned([redacted(tree) for tree in objects], crowds.NOW) == planned(objects, crowds.NOW)


def claim(name: str, annotations: dict[str, str], **spec: Any) -> Unstructured:
    meta = {"name": name, "namespace": "default", "annotations": annotations, "creationTimestamp": START}
    spec |= {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def storage_class(name: str, is_default: str) -> Unstructured:
    meta = {"name": name, "annotations": {kubernetes.DEFAULT_STORAGE_CLASS_ANNOTATION: is_default}}
    return {
        "apiVersion": STORAGE,
        "kind": "StorageClass",
        "metadata": meta,
        "provisioner": "disk.example.com",
        "volumeBindingMode": WAITING,
    }


def volume(name: str, where: str) -> Unstructured:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [where]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    "used",
    [
        claim("c", {kubernetes.SELECTED_NODE_ANNOTATION: "n2"}, storageClassName="cloud"),
        claim("c", {}),
        claim("c", {kubernetes.STORAGE_CLASS_ANNOTATION: "cloud"}, storageClassName="gone"),
        claim("c", {kubernetes.BIND_COMPLETED_ANNOTATION: "yes"}, volumeName="v", storageClassName="gone"),
    ],
    ids=["selected-node", "default-class", "class-of-old", "bound"],
)
def test_what_is_said_of_volumes_survives(used: Unstructured) -> None:
    mounted = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    objects = [node("n1"), node("n2"), storage_class("cloud", "true"), volume("v", "n2"), used, mounted]
    assert binds(objects)
    assert binds([redacted(tree) for tree in objects]) == binds(objects)


def test_two_pods_with_a_port_on_different_addresses_still_run_side_by_side() -> None:
    def serving(name: str, address: str) -> Unstructured:
        made = pod(name, 1)
        port = {"containerPort": 80, "hostPort": 80, "hostIP": address}
        made["spec"]["containers"][0]["ports"] = [port]
        return made

    objects = [node("n1"), serving("a", "10.1.2.3"), serving("b", "10.1.2.4"), serving("c", "10.1.2.3")]
    after = [redacted(tree) for tree in objects]
    assert "10.1.2" not in str(after)
    assert binds(after) == binds(objects)
    assert len(binds(objects)) == 2


def test_a_label_may_have_the_name_of_a_field_that_is_dropped() -> None:
    labelled = node("n2")
    labelled["metadata"]["labels"] |= {"command": "x"}
    objects = [node("n1"), labelled, pod("p", nodeSelector={"command": "x"})]
    assert binds([redacted(tree) for tree in objects]) == binds(objects) == {"default/p": "n2"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_why_says_the_same(case: Path, tmp_path: Path) -> None:
    import yaml

    trees = list(yaml.safe_load_all((case / "cluster.yaml").read_text()))
    known, question, now = load_evidence(case), told(case)["question"], newest_timestamp(case)
    save_dump(collected(known, [tree for tree in trees if tree["kind"] == "Event"]), tmp_path / "d", ONLY_REDACTED)
    before, after = why(known, question, "", now), why(load_evidence(tmp_path / "d"), question, "", now)
    assert (after.code, after.headline) == (before.code, before.headline)
