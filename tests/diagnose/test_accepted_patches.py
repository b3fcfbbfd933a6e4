"""Patches that the API server takes: to the owner, within what may change, else as an object to create again."""

from __future__ import annotations

from typing import Any

from tests.diagnose.objects import GPU, GPU_TAINT, ask, node, pod, thing

from windlass.diagnose.immutability import recreated, refused_fields

T4, A100 = ({"nvidia.com/gpu.product": product} for product in ("Tesla-T4", "A100"))
WANTS_T4 = {"nodeSelector": T4}


def template(spec: dict[str, Any], gpus: int = 1) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}], **spec}}


def test_of_a_bare_pod_only_tolerations_can_be_added() -> None:
    tolerate = ask("pod/asked", node("g1", 1, taints=[GPU_TAINT]), pod("asked", 1)).patches[0]
    assert (tolerate.accepted, tolerate.manifest) == (True, None)
    select = ask("pod/asked", node("g1", 1, labels=A100), pod("asked", 1, spec=WANTS_T4)).patches[0]
    assert (select.accepted, select.refused) == (False, ("spec.nodeSelector",))
    assert select.manifest["spec"]["nodeSelector"] == A100
    assert select.manifest["metadata"]["name"] == "asked"
    assert "status" not in select.manifest


def test_the_patch_of_an_owned_pod_goes_to_its_owner() -> None:
    owner = thing("Deployment", "web", {"template": template(WANTS_T4)})
    made = thing("ReplicaSet", "web-1", {"template": template(WANTS_T4)}, owner=("Deployment", "web"))
    asked = pod("asked", 1, spec=WANTS_T4, owner=("ReplicaSet", "web-1"))
    patch = ask("pod/asked", node("g1", 1, labels=A100), owner, made, asked).patches[0]
    assert (patch.target.kind, patch.accepted) == ("Deployment", True)


def test_the_template_of_a_job_that_has_run_is_created_again() -> None:
    owner = thing("Job", "train", {"selector": {}, "template": template(WANTS_T4)}, "batch/v1")
    asked = pod("asked", 1, spec=WANTS_T4, owner=("Job", "train"))
    patch = ask("pod/asked", node("g1", 1, labels=A100), owner, asked).patches[0]
    assert (patch.target.kind, patch.accepted, patch.refused) == ("Job", False, ("spec.template",))
    assert "selector" not in patch.manifest["spec"]
    assert patch.manifest["spec"]["template"]["spec"]["nodeSelector"] == A100


def test_of_several_templates_the_pods_own_is_patched() -> None:
    tasks = [
        {"name": "launcher", "replicas": 1, "template": template({}, gpus=2)},
        {"name": "worker", "replicas": 1, "template": template(WANTS_T4)},
    ]
    owner = thing("VcJob", "train", {"tasks": tasks}, "batch.volcano.sh/v1alpha1")
    asked = pod("asked", owner=("VcJob", "train"), spec=tasks[1]["template"]["spec"])
    patch = ask("pod/asked", node("g1", 1, labels=A100), owner, asked).patches[0]
    assert (patch.target.kind, patch.type) == ("VcJob", "json")
    assert patch.patch == [{"op": "add", "path": "/spec/tasks/1/template/spec/nodeSelector", "value": A100}]


def test_a_smaller_request_that_others_would_get_first_is_not_said_to_run() -> None:
    ahead = pod("ahead", 4, spec={"priority": 100})
    found = ask("pod/asked", node("g1", 8), pod("busy", 4, on="g1"), ahead, pod("asked", 8))
    assert [patch.runs_after for patch in found.patches if "ask for 4" in patch.what] == [False]
    alone = ask("pod/asked", node("g1", 8), pod("busy", 4, on="g1"), pod("asked", 8))
    assert [patch.runs_after for patch in alone.patches if "ask for 4" in patch.what] == [True]


def test_a_wrong_mig_profile_is_not_replaced_by_a_whole_gpu() -> None:
    wrong = pod("asked", 1, resource="nvidia.com/mig-1g.6gb")
    assert not ask("pod/asked", node("g1", 8), wrong).patches
    offered = ask("pod/asked", node("g1", {GPU: 8, "nvidia.com/mig-1g.5gb": 4}), wrong).patches
    assert [patch.what for patch in offered] == ["ask for nvidia.com/mig-1g.5gb"]


def test_an_affinity_that_the_pod_does_not_have_is_not_dropped() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    alone = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    web = pod("web", on="g1", labels={"app": "web"})
    found = ask("pod/asked", node("g1", 1), web, pod("asked", 1, spec=alone))
    assert [patch.what for patch in found.patches] == ["remove the required podAntiAffinity"]
    other = pod("web", on="g1", spec=alone, labels={"app": "db"})
    assert not ask("pod/asked", node("g1", 1), other, pod("asked", 1, labels={"app": "web"})).patches


def test_what_may_change() -> None:
    old = {"spec": {"containers": [{"name": "main", "image": "a"}], "tolerations": [{"key": "x"}]}}
    image = {"spec": {**old["spec"], "containers": [{"name": "main", "image": "b"}]}}
    dropped = {"spec": {**old["spec"], "tolerations": []}}
    assert refused_fields("Pod", old, image) == []
    assert refused_fields("Pod", old, dropped) == ["spec.tolerations"]
    gated = {"spec": {"schedulingGates": [{"name": "kueue"}]}}
    assert refused_fields("Pod", gated, {"spec": {**gated["spec"], "nodeSelector": T4}}) == []
    held = {"spec": {"suspend": True, "template": {"spec": {"containers": []}}}}
    placed = {"spec": {"suspend": True, "template": {"spec": {"containers": [], "nodeSelector": T4}}}}
    assert refused_fields("Job", held, placed) == []
    assert refused_fields("Job", {**held, "status": {"startTime": "2026-01-01T00:00:00Z"}}, placed) == ["spec.template"]


def test_an_object_that_is_created_again_has_nothing_of_the_server() -> None:
    token = {"name": "kube-api-access-x", "projected": {}}
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets"}
    spec = {"nodeName": "g1", "volumes": [token], "containers": [{"name": "main", "volumeMounts": [mount]}]}
    metadata = {"name": "asked", "uid": "1", "resourceVersion": "2", "creationTimestamp": "2026-01-01T00:00:00Z"}
    made = recreated({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
    assert made == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked"},
        "spec": {"volumes": [], "containers": [{"name": "main", "volumeMounts": []}]},
    }
