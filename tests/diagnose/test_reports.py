"""What controllers say about an object: whoever says it, about whatever kind, as long as nothing takes it back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import GPU, ask, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

PRESENT = {"nvidia.com/gpu.present": "true"}
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
REFUSALS = {
    'pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes': "POLICY_DENIED",
    'admission webhook "validation.gatekeeper.sh" denied the request: [limits] no limit': "POLICY_DENIED",
    'Internal error occurred: failed calling webhook "v.x.io": Post "https://a.b.svc:443": EOF': "POLICY_DENIED",
    'pods "x" is forbidden: no PriorityClass with name urgent was found': "POLICY_DENIED",
    'pods "x" is forbidden: error looking up service account team/ml: serviceaccount "ml" not found': "POLICY_DENIED",
    'pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1': "RESOURCE_QUOTA_EXCEEDED",
    "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]": "RESOURCE_QUOTA_EXCEEDED",
    'resourceclaimtemplate.resource.k8s.io "one-gpu" not found': "DRA_CLAIM_INVALID",
}


def at(said: Unstructured, when: str, kind: str = "Warning") -> Unstructured:
    return {**said, "lastTimestamp": when, "type": kind, "metadata": {**said["metadata"], "name": f"e{when}"}}


def refused(about: str, message: str) -> Unstructured:
    return event(about, "FailedCreate", f"Error creating: {message}", "some-controller")


@pytest.mark.parametrize("message", REFUSALS)
@pytest.mark.parametrize("kind", ["Job", "ReplicaSet", "StatefulSet", "PyTorchJob", "LeaderWorkerSet"])
def test_a_refusal_is_read_whatever_the_kind(kind: str, message: str) -> None:
    owner = thing(kind, "asked", {"template": TEMPLATE, "replicas": 1})
    found = ask(f"{kind.lower()}/asked", node("g1", 4), owner, refused(f"{kind}/asked", message))
    assert found.code == REFUSALS[message], found.headline
    assert message[-20:] in "".join(found.evidence)


@pytest.mark.parametrize("message", REFUSALS)
def test_a_component_that_is_refused_is_the_cause_behind_its_absence(message: str) -> None:
    daemon = {**plugin("")[0]}
    said = refused("DaemonSet/nvidia-device-plugin", message)
    said["involvedObject"]["namespace"] = said["metadata"]["namespace"] = "kube-system"
    found = ask("pod/asked", node("g1", labels=PRESENT), daemon, said, pod("asked", 1))
    assert found.code == REFUSALS[message], found.headline
    assert "DEVICE_PLUGIN_ABSENT" in found.contributing


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}, "IMAGE_PULL_FAILED"),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "CONTAINER_OOM",
        ),
    ],
)
def test_a_component_fails_as_any_other_pod_does(status: dict[str, Any], code: str) -> None:
    daemon, there = plugin("g1")
    there["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "nvidia-device-plugin", "controller": True}]
    there["status"] = {"phase": "Pending", "containerStatuses": [{"name": "main", "restartCount": 3, **status}]}
    found = ask("pod/asked", node("g1", labels=PRESENT), daemon, there, pod("asked", 1))
    assert found.code == code, found.headline


def test_a_later_success_takes_the_refusal_back() -> None:
    owner = thing("ReplicaSet", "asked", {"template": TEMPLATE, "replicas": 2}, status={"replicas": 1})
    old = at(refused("ReplicaSet/asked", "exceeded quota: gpus, requested: 1"), "2026-03-01T11:00:00Z")
    made = at(
        event("ReplicaSet/asked", "SuccessfulCreate", "Created pod: asked-1", "some-controller"),
        "2026-03-01T11:30:00Z",
        "Normal",
    )
    still = ask("replicaset/asked", node("g1", 4), owner, old)
    assert still.code == "RESOURCE_QUOTA_EXCEEDED"
    assert ask("replicaset/asked", node("g1", 4), owner, old, made).code != "RESOURCE_QUOTA_EXCEEDED"


def test_a_condition_that_means_well_is_no_complaint() -> None:
    well = {"type": "Available", "status": "True", "message": "the exceeded quota: gpus is raised"}
    bad = {"type": "Available", "status": "False", "message": "exceeded quota: gpus, requested: 1"}
    for condition, code in ((well, "UNKNOWN"), (bad, "RESOURCE_QUOTA_EXCEEDED")):
        owner = thing(
            "InferenceService", "asked", {"template": TEMPLATE}, "x.io/v1", status={"conditions": [condition]}
        )
        assert ask("inferenceservice/asked", node("g1", 4), owner).code == code


def test_a_log_names_the_object_by_itself_or_with_its_namespace() -> None:
    """`asked` is a word as well; with the namespace before it, it is the object."""
    operator = pod("operator-7", on="g1", namespace="ops")
    owner = thing("TFJob", "asked", {"template": TEMPLATE}, "kubeflow.org/v1")
    line = 'reconcile {}: pods "x" is forbidden: exceeded quota: gpus'
    named = ask("tfjob/asked", node("g1", 4), operator, owner, logs={"ops/operator-7": line.format("team/asked")})
    assert named.code == "RESOURCE_QUOTA_EXCEEDED"
    another = ask("tfjob/asked", node("g1", 4), operator, owner, logs={"ops/operator-7": line.format("it was asked")})
    assert another.code == "GANG_INCOMPLETE", another.headline


def test_the_object_that_a_message_names_is_followed() -> None:
    failing = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    holder = pod("gpu-holder-g1-77", on="g1", namespace="sched", status=failing)
    said = event("Pod/asked", "BindingFailed", "failed to bind: timed out waiting for gpu-holder-g1-77", "binder")
    log = {"sched/gpu-holder-g1-77": "could not load NVML library: libnvidia-ml.so.1 not found"}
    found = ask("pod/asked", node("g1", 4), holder, said, pod("asked", 1), logs=log)
    assert (found.code, found.confidence) == ("RUNTIME_NOT_CONFIGURED", "high"), found.headline
    blind = ask("pod/asked", node("g1", 4), said, pod("asked", 1))
    assert (blind.code, blind.confidence) == ("UNKNOWN", "low"), blind.headline
    assert blind.next_commands


def test_what_its_scheduler_refuses_is_not_fine_because_we_find_a_node() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ""}
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, status={"conditions": [condition]}))
    assert (found.code, found.confidence) == ("UNKNOWN", "low"), found.headline


def test_its_schedulers_other_words_lower_the_confidence() -> None:
    full = [node("g1", 1), pod("busy", 1, on="g1"), pod("asked", 1)]
    words = "0/1 nodes are available: 1 {}."
    agrees = ask("pod/asked", *full, event("Pod/asked", "FailedScheduling", words.format(f"Insufficient {GPU}")))
    assert (agrees.code, agrees.confidence) == ("GPU_FULL", "high")
    other = event("Pod/asked", "FailedScheduling", words.format("node(s) had volume node affinity conflict"))
    differs = ask("pod/asked", *full, other)
    assert differs.confidence == "low" or differs.code == "STORAGE_INSUFFICIENT"
    more = event("Pod/asked", "FailedScheduling", f"0/9 nodes are available: 9 Insufficient {GPU}.")
    assert ask("pod/asked", *full, more).confidence == "low"


def test_a_program_that_ends_well_for_ever_is_named_but_not_its_init_container() -> None:
    loops = {"waiting": {"reason": "CrashLoopBackOff"}}
    well, badly = ({"terminated": {"exitCode": code}} for code in (0, 1))
    ends = [{"name": "main", "restartCount": 5, "state": loops, "lastState": well}]
    found = ask("pod/asked", node("g1", 1), pod("asked", 1, on="g1", status={"containerStatuses": ends}))
    assert (found.code, found.confidence) == ("APP_ERROR", "high")
    assert "exit code 0" in found.headline
    fails = [{"name": "main", "restartCount": 5, "state": loops, "lastState": badly}]
    init = [{"name": "setup", "restartCount": 0, "state": well}]
    status = {"containerStatuses": fails, "initContainerStatuses": init}
    assert ask("pod/asked", node("g1", 1), pod("asked", 1, on="g1", status=status)).code == "UNKNOWN"
