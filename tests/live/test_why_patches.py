"""Every patch that `why` prints, tried on a real API server without writing it: it is taken exactly if we say so."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.diagnose.objects import NOW, evidence, node, pod, thing
from tests.diagnose.test_patches import SCENES, T4
from tests.real_cluster.api import Api, ApiError
from tests.real_cluster.control_plane import ControlPlane

from windlass.diagnose.finding import Patch, PatchTarget
from windlass.diagnose.immutability import refused_fields
from windlass.diagnose.why import why
from windlass.model.unstructured import Unstructured

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
REFUSED_AT_ONCE = {"FRACTIONAL_GPU_REQUEST", "REQUESTS_NE_LIMITS"}
"""The server takes no such object, so that there is nothing to patch; only the manifest can be tried."""
OTHER_KINDS = {code for code in SCENES if code.startswith("KUEUE")}
"""Scenes with Kueue's objects, which this server does not know."""
A100 = {"nvidia.com/gpu.product": "A100"}
TEMPLATE = {
    "metadata": {"labels": {"app": "asked"}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": T4,
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}


def complete(tree: Unstructured) -> Unstructured:
    """The object as a server takes it: every container has an image."""
    made = copy.deepcopy(tree)
    specs = [made.get("spec", {}), made.get("spec", {}).get("template", {}).get("spec", {})]
    for container in (container for spec in specs for container in spec.get("containers", [])):
        container.setdefault("image", "none")
    if made["kind"] == "Job":
        made["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    made["metadata"].pop("ownerReferences", None)
    return made


def stored(api: Api, objects: list[Unstructured]) -> list[Unstructured]:
    api.create(NAMESPACE)
    return [{**tree, **api.create(complete(tree))[0]} for tree in objects]


def is_taken(api: Api, path: str, patch: Patch) -> bool:
    try:
        api.patch(f"{path}?dryRun=All", patch.patch, patch.type)
    except ApiError as problem:
        if problem.code not in (403, 422):
            raise
        return False
    return True


def expect_as_said(api: Api, objects: list[Unstructured], question: str, logs: dict[str, str]) -> list[Patch]:
    patches = list(why(evidence(objects, logs), question, "", NOW).patches)
    for patch in patches:
        target = next(
            tree
            for tree in objects
            if (tree["kind"], tree["metadata"]["name"]) == (patch.target.kind, patch.target.name)
        )
        assert is_taken(api, api.path_of(target), patch) == patch.accepted, patch
        if patch.manifest is not None:
            expect_created(api, patch.manifest)
    return patches


def expect_created(api: Api, manifest: Any) -> None:
    again = {**manifest, "metadata": {**manifest["metadata"], "name": "asked-again"}}
    api.post(f"{api.collection_of(again)}?dryRun=All", again)


@pytest.mark.parametrize("code", sorted(set(SCENES) - REFUSED_AT_ONCE - OTHER_KINDS))
def test_a_patch_is_taken_exactly_if_we_say_so(code: str, control_plane: ControlPlane) -> None:
    question, objects, logs = SCENES[code]
    assert expect_as_said(control_plane.api, stored(control_plane.api, list(objects)), question, logs)


@pytest.mark.parametrize("code", sorted(REFUSED_AT_ONCE))
def test_a_manifest_is_taken_where_the_server_refuses_the_object(code: str, control_plane: ControlPlane) -> None:
    question, objects, logs = SCENES[code]
    control_plane.api.create(NAMESPACE)
    known = [complete(tree) for tree in objects]
    (patch, *_) = why(evidence(known, logs), question, "", NOW).patches
    expect_created(control_plane.api, patch.manifest)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "SuspendedJob"])
def test_a_patch_of_an_owner_is_taken_exactly_if_we_say_so(kind: str, control_plane: ControlPlane) -> None:
    template = copy.deepcopy(TEMPLATE)
    name = kind.removeprefix("Suspended")
    spec: dict[str, Any] = {"template": template}
    if name == "Job":
        spec["suspend"] = kind == "SuspendedJob"
    else:
        template["spec"]["restartPolicy"] = "Always"
        spec |= {"selector": {"matchLabels": {"app": "asked"}}, "serviceName": "asked"}
        spec = {key: value for key, value in spec.items() if key != "serviceName" or name == "StatefulSet"}
    owner = thing(name, "owner", spec, "batch/v1" if name == "Job" else "apps/v1")
    asked = pod("asked", spec=template["spec"])
    objects = stored(control_plane.api, [node("g1", 1, labels=A100), owner, asked])
    uid = next(tree["metadata"]["uid"] for tree in objects if tree["kind"] == name)
    objects[-1]["metadata"]["ownerReferences"] = [
        {"apiVersion": owner["apiVersion"], "kind": name, "name": "owner", "uid": uid, "controller": True}
    ]
    patches = expect_as_said(control_plane.api, objects, "pod/asked", {})
    assert [patch.target.kind for patch in patches] == [name]


NODE_RULE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
        }
    }
}
POD_RULE = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
CHANGES: dict[str, tuple[Unstructured, Unstructured]] = {
    "node affinity comes": ({}, {"affinity": NODE_RULE}),
    "pod affinity goes": ({"affinity": POD_RULE}, {"affinity": None}),
    "a label more": ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"b": "2"}}),
    "another label": ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "2"}}),
    "another scheduler": ({}, {"schedulerName": "other"}),
}


def changed(before: Unstructured, patch: Unstructured) -> Unstructured:
    """A merge patch, applied by the test itself."""
    made = copy.deepcopy(before)
    for key, value in patch.items():
        if isinstance(value, dict):
            made[key] = changed(made.get(key) or {}, value)
        elif value is None:
            made.pop(key, None)
        else:
            made[key] = value
    return made


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_what_may_change_of_a_gated_pod_and_a_suspended_job_is_what_the_server_says(
    kind: str, change: str, control_plane: ControlPlane
) -> None:
    api = control_plane.api
    api.create(NAMESPACE)
    before, after = CHANGES[change]
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}], **before}
    version, body, patch = "v1", {**spec, "schedulingGates": [{"name": "a.b/c"}]}, after
    if kind == "Job":
        version, body = "batch/v1", {"suspend": True, "template": {"spec": spec}}
        patch = {"template": {"metadata": {"annotations": {"rack": "a"}}, "spec": after}}
    (stored_object,) = api.create(thing(kind, "asked", body, version))
    proposed = Patch(PatchTarget(version, kind, "team", "asked"), "merge", {"spec": patch}, True)
    refused = refused_fields(kind, stored_object, changed(stored_object, {"spec": patch}))
    assert is_taken(api, api.path_of(stored_object), proposed) == (not refused), refused
