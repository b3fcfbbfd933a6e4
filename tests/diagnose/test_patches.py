"""Every cause that proposes a patch: applied to the objects, the engine places the pod. One without a scene fails."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from tests.diagnose.holdout import cluster_queue, flavor, job, local_queue
from tests.diagnose.objects import GPU, GPU_TAINT, NOW, ended, evidence, node, pod, thing

from windlass.diagnose.finding import Diagnosis, Patch
from windlass.diagnose.patches import PATCHABLE_CODES
from windlass.diagnose.strategic_merge import strategic_merge
from windlass.diagnose.why import why
from windlass.model.configuration import Settings
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

T4, A100 = ({"nvidia.com/gpu.product": product} for product in ("Tesla-T4", "A100"))
PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ]
}
NEAR_WEB = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}
RACK = "kueue.x-k8s.io/podset-required-topology"


def limits(**amounts: str) -> Unstructured:
    return {"containers": [{"name": "main", "resources": {"limits": amounts}}]}


def topology_scene() -> list[Unstructured]:
    """A rack of two nodes, one of them busy, another of one, and a job of two nodes that must stand in one rack."""
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    made = job("asked", 8, parallelism=2, completions=2)
    made["spec"]["template"]["metadata"] = {"annotations": {RACK: "rack"}}
    return [
        *(node(f"g{n}", 8, labels={"rack": f"r{n // 2}", "pool": "gpu"}) for n in range(3)),
        pod("busy", 8, on="g1"),
        thing("Topology", "racks", levels, "kueue.x-k8s.io/v1beta1", namespace=""),
        flavor(topologyName="racks", nodeLabels={"pool": "gpu"}),
        cluster_queue("cq", 64),
        local_queue("cq"),
        made,
    ]


SCENES: dict[str, tuple[str, Sequence[Unstructured], dict[str, str]]] = {
    "TAINT_NOT_TOLERATED": ("pod/asked", [node("g1", 8, taints=[GPU_TAINT]), pod("asked", 1)], {}),
    "SELECTOR_MISMATCH": (
        "pod/asked",
        [node("g1", 8, labels=A100), pod("asked", 1, spec={"nodeSelector": T4})],
        {},
    ),
    "CPU_MEM_INSUFFICIENT": ("pod/asked", [node("g1", 8, cpu="8"), pod("asked", 1, cpu="12")], {}),
    "REQUEST_EXCEEDS_CLUSTER": ("pod/asked", [node("g1", 4), pod("asked", 8)], {}),
    "GPU_FULL": ("pod/asked", [node("g1", 4), pod("busy", 3, on="g1"), pod("asked", 2)], {}),
    "GPU_FRAGMENTED": (
        "pod/asked",
        [node("g1", 4), node("g2", 4), pod("a", 2, on="g1"), pod("b", 2, on="g2"), pod("asked", 4)],
        {},
    ),
    "GPU_STRANDED": (
        "pod/asked",
        [node("g1", 4, cpu="8"), pod("web", on="g1", cpu="6"), pod("asked", 1, cpu="4")],
        {},
    ),
    "EPHEMERAL_STORAGE": (
        "pod/asked",
        [node("g1", 1), pod("asked", spec=limits(**{GPU: "1", "ephemeral-storage": "900Gi"}))],
        {},
    ),
    "POD_SPREAD_CONFLICT": (
        "pod/asked",
        [
            node("g1", 4, labels={"zone": "a"}),
            node("c1", labels={"zone": "b"}),
            pod("one", 1, on="g1", labels={"app": "x"}),
            pod("asked", 1, labels={"app": "x"}, spec=SPREAD),
        ],
        {},
    ),
    "POD_AFFINITY_CONFLICT": (
        "pod/asked",
        [
            node("g1", 4),
            node("c1"),
            pod("web", on="c1", labels={"app": "web"}),
            pod("asked", 1, spec=NEAR_WEB),
        ],
        {},
    ),
    "HOST_PORT_CONFLICT": (
        "pod/asked",
        [node("g1", 4), pod("web", on="g1", spec=PORT), pod("asked", spec=PORT)],
        {},
    ),
    "WRONG_SCHEDULER": ("pod/asked", [node("g1", 4), pod("asked", 1, spec={"schedulerName": "gone"})], {}),
    "RESOURCE_NAME_MISMATCH": ("pod/asked", [node("g1", {"nvidia.com/gpu.shared": 4}), pod("asked", 1)], {}),
    "FRACTIONAL_GPU_REQUEST": ("pod/asked", [node("g1", 4), pod("asked", spec=limits(**{GPU: "0.5"}))], {}),
    "REQUESTS_NE_LIMITS": (
        "pod/asked",
        [
            node("g1", 4),
            pod(
                "asked",
                spec={"containers": [{"name": "main", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "1"}}}]},
            ),
        ],
        {},
    ),
    "SHM_TOO_SMALL": (
        "pod/asked",
        [node("g1", 1), ended()],
        {"team/asked": "DataLoader worker (pid 7) is killed by signal: Bus error."},
    ),
    "GPU_VISIBLE_UNREQUESTED": (
        "pod/asked",
        [
            node("g1", 4),
            pod(
                "asked",
                on="g1",
                spec={"containers": [{"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]},
            ),
        ],
        {},
    ),
    "JOB_SUSPENDED": ("job/asked", [node("g1", 4), job("asked", 1, labels={})], {}),
    "NODE_UNSCHEDULABLE": ("pod/asked", [node("g1", 4, cordoned=True), pod("asked", 1)], {}),
    "KUEUE_QUEUE_MISSING": (
        "job/asked",
        [
            node("g1", 4),
            flavor(),
            cluster_queue("cq", 4),
            local_queue("cq"),
            job("asked", 1, labels={"kueue.x-k8s.io/queue-name": "typo"}),
        ],
        {},
    ),
    "KUEUE_FLAVOR_MISMATCH": (
        "job/asked",
        [
            node("g1", 4, taints=[GPU_TAINT]),
            flavor(nodeTaints=[GPU_TAINT]),
            cluster_queue("cq", 4),
            local_queue("cq"),
            job("asked", 1),
        ],
        {},
    ),
    "KUEUE_TOPOLOGY_NOFIT": ("job/asked", topology_scene(), {}),
}


def answer(question: str, objects: Sequence[Unstructured], logs: dict[str, str]) -> Diagnosis:
    return why(evidence(objects, logs), question, "", NOW)


def applied(objects: Sequence[Unstructured], patch: Patch) -> list[Unstructured]:
    """The cluster after `kubectl patch`, as the API server would merge it."""
    made = copy.deepcopy(list(objects))
    target = patch.target
    for place, tree in enumerate(made):
        if (tree["kind"], tree["metadata"]["name"]) == (target.kind, target.name):
            made[place] = (
                strategic_merge(tree, patch.patch) if patch.type == "strategic" else merge_patch(tree, patch.patch)
            )
    return made


def merge_patch(have: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    result = dict(have) if isinstance(have, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def anew(objects: Sequence[Unstructured]) -> list[Unstructured]:
    """The asked pod made again, as its owner would after a patch of a pod that had started."""
    made = copy.deepcopy(list(objects))
    for tree in made:
        if tree["kind"] == "Pod" and tree["metadata"]["name"] == "asked":
            tree["spec"].pop("nodeName", None)
            tree["status"] = {"phase": "Pending"}
    return made


def starts(objects: Sequence[Unstructured]) -> bool:
    """Whether the engine starts what was asked about: by a bind, or by admitting it; a plain Job by its template."""
    known = evidence(objects)
    plan, _ = plan_objects(known.objects, Settings(), NOW)
    if any(bind.pod == "team/asked" for bind in plan.binds) or any(
        admit.workload == "team/asked" for admit in plan.admits
    ):
        return True
    jobs = [tree for tree in objects if tree["kind"] == "Job" and not tree["spec"]["suspend"]]
    pods = [pod("asked") | {"spec": job["spec"]["template"]["spec"]} for job in jobs]
    return bool(pods) and starts([tree for tree in objects if tree["kind"] != "Job"] + pods)


def test_every_cause_with_a_patch_has_a_scene() -> None:
    assert set(SCENES) == set(PATCHABLE_CODES)


@pytest.mark.parametrize("code", SCENES)
def test_the_patch_makes_it_run(code: str) -> None:
    question, objects, logs = SCENES[code]
    found = answer(question, objects, logs)
    assert found.code == code, found.headline
    assert found.patches, found.headline
    best = found.patches[0]
    assert best.runs_after, best
    assert not starts(anew(objects)) or code in STARTS_ANYWAY
    assert starts(anew(applied(objects, best))), best


STARTS_ANYWAY = {"WRONG_SCHEDULER", "SHM_TOO_SMALL", "GPU_VISIBLE_UNREQUESTED"}
"""The engine would start these as they are: what is wrong with them is not where they go."""


def test_a_custom_resource_gets_a_patch_that_its_kind_knows() -> None:
    """No strategic merge for what is not built in: lists are given whole."""
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {GPU: "8", "cpu": "4"}}}
    spec = {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    training = thing("PyTorchJob", "llm", {"pytorchReplicaSpecs": spec}, "kubeflow.org/v1")
    waiting = pod("llm-0", owner=("PyTorchJob", "llm"), spec={"containers": [container]})
    found = answer("pytorchjob/llm", [node("g1", 4), training, waiting], {})
    patch = found.patches[0]
    assert (patch.type, patch.target.kind) == ("merge", "PyTorchJob")
    after = merge_patch(training, patch.patch)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert after["containers"] == [{"name": "pytorch", "image": "x", "resources": {"limits": {GPU: "4", "cpu": "4"}}}]


def test_affinity_is_widened_to_what_the_node_is() -> None:
    wish = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["Tesla-T4"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}
    affinity = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    objects = [
        node("g1", 1, labels={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}),
        pod("asked", 1, spec=affinity),
    ]
    best = answer("pod/asked", objects, {}).patches[0]
    assert best.runs_after
    assert starts(applied(objects, best))
