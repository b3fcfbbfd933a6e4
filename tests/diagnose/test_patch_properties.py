"""Every printed patch, over random clusters and owners: the API server takes it, and it does what it says."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.test_engine_agrees import clusters, evidence_of, feasible
from tests.diagnose.test_patches import merge_patch

from windlass.diagnose.finding import Patch
from windlass.diagnose.immutability import refused_fields
from windlass.diagnose.strategic_merge import strategic_merge
from windlass.diagnose.why import why
from windlass.model.unstructured import Unstructured

OWNERS = ("", "Deployment", "Job", "SuspendedJob", "StatefulSet", "VcJob", "PyTorchJob")
API_VERSIONS = {"Job": "batch/v1", "VcJob": "batch.volcano.sh/v1alpha1", "PyTorchJob": "kubeflow.org/v1"}
PATHS = {
    "VcJob": ("spec", "tasks", 1, "template"),
    "PyTorchJob": ("spec", "pytorchReplicaSpecs", "Worker", "template"),
}
"""Where the template of the asked pod is; elsewhere at spec.template."""


def owner_of(kind: str, pod: Unstructured) -> Unstructured:
    template = {"spec": copy.deepcopy(pod["spec"])}
    spec: dict[str, Any] = {"template": template, "selector": {"matchLabels": {"app": "asked"}}}
    if kind == "VcJob":
        first = {"spec": {"containers": [{"name": "launcher", "image": "another"}]}}
        spec = {"tasks": [{"name": "first", "template": first}, {"name": "second", "template": template}]}
    elif kind == "PyTorchJob":
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    elif kind == "SuspendedJob":
        spec["suspend"] = True
    name = kind.removeprefix("Suspended")
    metadata = {"name": "owner", "namespace": "x", "uid": "u-owner"}
    started = {} if kind == "SuspendedJob" else {"startTime": "2026-03-01T00:00:00Z"}
    return {
        "apiVersion": API_VERSIONS.get(name, "apps/v1"),
        "kind": name,
        "metadata": metadata,
        "spec": spec,
        "status": started,
    }


@st.composite
def owned_clusters(draw: st.DrawFn) -> tuple[list[Unstructured], Unstructured | None]:
    """A cluster whose last object is the asked pod, and the pod's owner, if it has one."""
    objects = draw(clusters())
    kind = draw(st.sampled_from(OWNERS))
    if not kind:
        return objects, None
    owner = owner_of(kind, objects[-1])
    reference = {"kind": owner["kind"], "name": "owner", "uid": "u-owner", "controller": True}
    metadata = {**objects[-1]["metadata"], "ownerReferences": [{"apiVersion": owner["apiVersion"], **reference}]}
    return [*objects[:-1], {**objects[-1], "metadata": metadata}], owner


def patched(tree: Any, patch: Patch) -> Any:
    """The object as the API server would make it."""
    if patch.type == "json":
        for operation in patch.patch:
            tree = json_patched(tree, operation["path"].strip("/").split("/"), operation)
        return tree
    return (strategic_merge if patch.type == "strategic" else merge_patch)(tree, patch.patch)


def json_patched(tree: Any, path: list[str], operation: dict[str, Any]) -> Any:
    """RFC 6902, `add` and `remove` of a field."""
    first, rest = path[0], path[1:]
    if isinstance(tree, list):
        place = int(first)
        return [json_patched(item, rest, operation) if at == place else item for at, item in enumerate(tree)]
    if rest:
        return {**tree, first: json_patched(tree[first], rest, operation)}
    others = {name: value for name, value in tree.items() if name != first}
    assert operation["op"] == "add" or first in tree, operation
    return {**others, first: operation["value"]} if operation["op"] == "add" else others


def pod_spec(tree: Any) -> Any:
    for step in PATHS.get(tree["kind"], ("spec", "template") if tree["kind"] != "Pod" else ()):
        tree = tree[step]
    return tree["spec"]


@settings(max_examples=150, deadline=None)
@given(owned_clusters())
def test_patches_are_accepted_and_do_what_they_say(world: tuple[list[Unstructured], Unstructured | None]) -> None:
    objects, owner = world
    known = [*objects[:-1], *([owner] if owner else []), objects[-1]]
    evidence = evidence_of(known)
    for patch in why(evidence, "pod/asked", "x", 0).patches:
        before = next(tree for tree in known if tree["kind"] == patch.target.kind and is_target(tree, patch))
        after = patched(copy.deepcopy(before), patch)
        assert patch.accepted == (not refused_fields(before["kind"], before, after)), patch
        assert (patch.manifest is None) == patch.accepted
        if patch.manifest is not None:
            assert "status" not in patch.manifest
            assert not {"uid", "resourceVersion"} & set(patch.manifest["metadata"])
            assert pod_spec(patch.manifest) == {key: v for key, v in pod_spec(after).items() if key != "nodeName"}
        if before["kind"] == "Node":
            changed = [after if tree is before else tree for tree in objects]
        else:
            changed = [*objects[:-1], {**objects[-1], "spec": pod_spec(after)}]
        assert feasible(changed) == patch.runs_after, patch


def is_target(tree: Unstructured, patch: Patch) -> bool:
    return bool(tree["metadata"]["name"] == patch.target.name)
