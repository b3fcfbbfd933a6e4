"""`why` on a real API server that refuses what our own copy of its rules takes: by a policy, by a CRD, by rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.live.bind_policy import VERSION
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

from windlass.cli.why import why_command
from windlass.model.unstructured import Unstructured

PODS = "/api/v1/namespaces/default/pods"
PRODUCT = "nvidia.com/gpu.product"
WEB = "/apis/apps/v1/namespaces/default/deployments/web"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
RBAC = "rbac.authorization.k8s.io"
LIMITS = {"limits": {"nvidia.com/gpu": "1"}}


def pod_spec(product: str) -> Unstructured:
    container = {"name": "main", "image": "none", "resources": LIMITS}
    return {"nodeSelector": {PRODUCT: product}, "containers": [container]}


def deployment() -> Unstructured:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec("Tesla-T4")}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def gpu_node(name: str, product: str) -> Unstructured:
    made: Unstructured = node(name, {"nvidia.com/gpu": "8"})
    made["metadata"].setdefault("labels", {})[PRODUCT] = product
    return made


def refuse_products(api: Api, products: list[str]) -> None:
    """No Deployment may be changed so that it selects one of these; returns when that is in force."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"]}
    chosen = f"object.spec.template.spec.nodeSelector['{PRODUCT}']"
    said = {"expression": f"!({chosen} in {json.dumps(products)})", "message": "this product is kept for others"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [said], "failurePolicy": "Fail"}
    name = f"kept-{len(products)}"
    kind = "ValidatingAdmissionPolicy"
    use = {"policyName": name, "validationActions": ["Deny"]}
    api.create(
        {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {"apiVersion": VERSION, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": use},
    )
    probe = {"spec": {"template": {"spec": {"nodeSelector": {PRODUCT: products[-1]}}}}}
    until(lambda: is_refused(api, probe), 60, "the policy is in force")


def is_refused(api: Api, patch: Unstructured) -> bool:
    try:
        api.patch(f"{WEB}?dryRun=All", patch)
    except ApiError as problem:
        if problem.code != 422:
            raise
        return True
    return False


@pytest.fixture
def scene(control_plane: ControlPlane) -> Api:
    """A Deployment that wants a product that no node has."""
    api: Api = control_plane.api
    api.create(gpu_node("g1", "A100"), gpu_node("g2", "L4"), deployment())
    until(lambda: api.items(PODS), what="the deployment's pod")
    return api


def ask(kubeconfig: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(why_command, [*arguments, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1, result.output
    return result


def answer(kubeconfig: Path, question: str) -> Any:
    return json.loads(ask(kubeconfig, question, "-o", "json").stdout)


def test_a_patch_that_a_policy_refuses_gives_way_to_another(scene: Api, control_plane: ControlPlane) -> None:
    before = answer(control_plane.kubeconfig, "deploy/web")
    assert before["patches"][0]["what"] == f"select {PRODUCT}=A100"
    assert {patch["dryRun"]["result"] for patch in before["patches"]} == {"accepted"}
    version = scene.get(WEB)["metadata"]["resourceVersion"]
    refuse_products(scene, ["A100"])
    found = answer(control_plane.kubeconfig, "deploy/web")
    assert found["code"] == before["code"] == "SELECTOR_MISMATCH"
    assert [patch["what"] for patch in found["patches"]] == [f"select {PRODUCT}=L4"]
    assert [patch["what"] for patch in found["refusedPatches"]] == [f"select {PRODUCT}=A100"]
    assert "this product is kept for others" in found["refusedPatches"][0]["dryRun"]["message"]
    assert scene.get(WEB)["metadata"]["resourceVersion"] == version, "a dry run stores nothing"
    printed = ask(control_plane.kubeconfig, "deploy/web", "--patch")
    scene.patch(WEB, yaml.safe_load(printed.stdout), "strategic")


def test_where_all_are_refused_it_says_that_no_patch_can_and_why(scene: Api, control_plane: ControlPlane) -> None:
    refuse_products(scene, ["A100", "L4"])
    printed = ask(control_plane.kubeconfig, "deploy/web", "--patch")
    assert printed.stdout == ""
    assert "No patch of" in printed.stderr
    assert "this product is kept for others" in printed.stderr
    unasked = ask(control_plane.kubeconfig, "deploy/web", "--patch", "--no-dry-run")
    assert "A100" in unasked.stdout


def frozen_jobs() -> Unstructured:
    """Kubeflow's kind, of which this server lets nobody change the node selector."""

    def open_object(**properties: Unstructured) -> Unstructured:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": properties}

    text = {"type": "string", "maxLength": 63}
    selector: Unstructured = {"type": "object", "additionalProperties": text, "maxProperties": 8}
    selector["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "a job's nodes are immutable"}]
    tree = selector
    for field in ("nodeSelector", "spec", "template", "Master", "pytorchReplicaSpecs", "spec"):
        tree = open_object(**{field: tree})
    schema = {"openAPIV3Schema": tree}
    names = {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob", "listKind": "PyTorchJobList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": "pytorchjobs.kubeflow.org"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def test_an_object_that_its_kind_holds_fixed_is_to_be_created_again(control_plane: ControlPlane) -> None:
    api = control_plane.api
    api.create(frozen_jobs(), gpu_node("g1", "A100"))
    until(lambda: api.exists(JOBS), 60, "the kind is served")
    master = {"replicas": 1, "template": {"spec": pod_spec("Tesla-T4")}}
    metadata = {"name": "llm", "namespace": "default"}
    body: Unstructured = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}
    (job,) = api.create({**body, "spec": {"pytorchReplicaSpecs": {"Master": master}}})
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm", "controller": True}
    owner["uid"] = job["metadata"]["uid"]
    made = {"name": "llm-master-0", "namespace": "default", "ownerReferences": [owner]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": pod_spec("Tesla-T4")})
    printed = ask(control_plane.kubeconfig, "pod/llm-master-0", "--patch")
    assert "a job's nodes are immutable" in printed.stderr
    assert "kubectl replace --force -n default -f FILE" in printed.stderr
    manifest = yaml.safe_load(printed.stdout)
    api.delete(f"{JOBS}/llm")
    until(lambda: not api.exists(f"{JOBS}/llm"), 60, "the job is gone")
    api.post(JOBS, manifest)


def test_who_may_not_patch_is_told_so_and_gets_the_same_answer(scene: Api, control_plane: ControlPlane) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules}
    user = {"kind": "User", "name": "reader", "apiGroup": RBAC}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reader"}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "reader"}, "subjects": [user], "roleRef": reference}
    scene.create(role, {"apiVersion": f"{RBAC}/v1", **binding})
    mine, theirs = (answer(file, "deploy/web") for file in (control_plane.kubeconfig, control_plane.user("reader", ())))
    assert (theirs["code"], theirs["confidence"]) == (mine["code"], mine["confidence"])
    assert [patch["patch"] for patch in theirs["patches"]] == [patch["patch"] for patch in mine["patches"]]
    said = {patch["dryRun"]["message"] for patch in theirs["patches"]}
    assert said == {"you may not patch deployments in namespace default"}
