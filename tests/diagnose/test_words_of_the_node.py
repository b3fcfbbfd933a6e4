"""What the kubelet and the runtime say about a pod with a node, in whatever words, and what must not be made of it."""

from __future__ import annotations

import pytest
from tests.diagnose.causal_scenes import PRESENT, crashing, running
from tests.diagnose.objects import GPU, ask, event, node, pod, thing

from windlass.model.unstructured import Unstructured

OLD = "2026-03-01T09:00:00Z"
THERE = node("g1", 4, labels=PRESENT)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": OLD}


def uncreated(message: str, gpus: int = 1) -> Unstructured:
    waiting = {"reason": "CreateContainerError", "message": message}
    states = [{"name": "main", "state": {"waiting": waiting}}]
    return pod("asked", gpus, on="g1", phase="Pending", status={"containerStatuses": states})


@pytest.mark.parametrize(
    ("message", "code", "confidence"),
    [
        (
            "error executing hook `/usr/bin/nvidia-container-runtime-hook` (exit: 1)",
            "RUNTIME_NOT_CONFIGURED",
            "low",
        ),
        ("nvidia-container-runtime: error adding seccomp filter rule", "RUNTIME_NOT_CONFIGURED", "low"),
        ("executable file `nvidia-smi` not found in $PATH: No such file", "RUNTIME_NOT_CONFIGURED", "high"),
        ("executable file `python4` not found in $PATH: No such file", "APP_ERROR", "high"),
        ("nvidia-container-cli: device error: unknown device id: no-gpu-has-8MiB", "DEVICE_PLUGIN_FAILING", "high"),
        ("nvidia-container-cli: device error: unknown device id: GPU-7", "DEVICE_ID_STALE", "high"),
        ('container init caused "write /proc/self/task/1/attr/exec: invalid argument"', "DEVICE_PERMISSION", "high"),
        ("failed to reserve container name main_0", "UNKNOWN", "low"),
    ],
)
def test_a_container_that_is_not_created_has_the_cause_that_its_runtime_names(
    message: str, code: str, confidence: str
) -> None:
    found = ask("pod/asked", THERE, uncreated(message))
    assert (found.code, found.confidence) == (code, confidence)


def test_an_unknown_cause_repeats_what_the_runtime_says() -> None:
    found = ask("pod/asked", THERE, uncreated("failed to reserve container name main_0"))
    assert "ontainer main can't be created: failed to reserve container name main_0" in found.headline


def unprepared(message: str, *more: Unstructured) -> list[Unstructured]:
    waiting = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
    spec = {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]}
    asked = pod("asked", on="g1", phase="Pending", spec=spec, status=waiting | {"conditions": [SCHEDULED]})
    return [asked, event("Pod/asked", "FailedPrepareDynamicResources", message, "kubelet"), *more]


NOT_REGISTERED = "prepare dynamic resources: DRA driver gpu.nvidia.com is not registered"


def kubelet_plugin(selector: dict[str, str]) -> Unstructured:
    template = {"template": {"spec": {"nodeSelector": selector, "containers": [{"name": "c"}]}}}
    return thing("DaemonSet", "dra-kubelet-plugin", template, namespace="gpu-operator")


def test_a_driver_that_is_not_registered_is_followed_to_its_plugin() -> None:
    away = ask("pod/asked", THERE, *unprepared(NOT_REGISTERED, kubelet_plugin({"dra": "on"})))
    assert (away.code, away.confidence) == ("DEVICE_PLUGIN_ABSENT", "high")
    assert "has no pod on node g1: label dra is absent" in away.headline
    failing = crashing("dra-kubelet-plugin-1", "g1", owner=("DaemonSet", "dra-kubelet-plugin"))
    broken = ask("pod/asked", THERE, *unprepared(NOT_REGISTERED, kubelet_plugin({}), failing))
    assert broken.code == "DEVICE_PLUGIN_FAILING"
    unseen = ask("pod/asked", THERE, *unprepared(NOT_REGISTERED))
    assert (unseen.code, unseen.confidence) == ("DEVICE_PLUGIN_ABSENT", "low")


def test_a_claim_that_the_kubelet_asks_for_in_another_version_is_told_from_a_missing_one() -> None:
    said = "failed to fetch ResourceClaim c referenced by pod asked: the server could not find the requested resource"
    found = ask("pod/asked", THERE, *unprepared(said))
    assert found.code == "DRA_CLAIM_INVALID"
    assert "bring both to one release" in found.headline


def test_a_driver_that_may_not_load_its_module_is_a_question_of_permission() -> None:
    driver = crashing("nvidia-driver-daemonset-1", "g1")
    waits = [node("g1", labels=PRESENT), driver, pod("asked", 1)]
    log = "modprobe: ERROR: could not insert 'nvidia': {}"
    denied = ask("pod/asked", *waits, logs={"gpu-operator/nvidia-driver-daemonset-1": log.format("Permission denied")})
    assert denied.code == "DEVICE_PERMISSION"
    assert "DRIVER_MISSING" in [link.code for link in denied.chain]
    absent = ask("pod/asked", *waits, logs={"gpu-operator/nvidia-driver-daemonset-1": log.format("No such device")})
    assert absent.code == "DRIVER_MISSING"
    # A denial on the host that is not the driver's does not explain a missing driver
    avc = {"g1": 'audit: avc:  denied  { read } for  pid=1 comm="cat" name="params"'}
    logs = {"gpu-operator/nvidia-driver-daemonset-1": "NVIDIA driver is not installed"}
    assert ask("pod/asked", *waits, logs=logs, hosts=avc).code == "DRIVER_MISSING"


def test_a_startup_taint_of_a_node_pool_is_not_to_be_tolerated() -> None:
    taint = {"key": "wait-for-me", "effect": "NoSchedule"}
    spec = {"template": {"spec": {"startupTaints": [taint]}}}
    pool = thing("NodePool", "gpus", spec, "karpenter.sh/v1", namespace="")
    objects = [node("g1", 4, taints=[taint]), pod("asked", 1)]
    found = ask("pod/asked", *objects, pool)
    assert found.code == "NODE_UNSCHEDULABLE"
    assert found.chain[0].code == "TAINT_NOT_TOLERATED"
    pool["spec"]["template"]["spec"]["startupTaints"] = []
    assert ask("pod/asked", *objects, pool).code == "TAINT_NOT_TOLERATED"
    assert ask("pod/asked", *objects).code == "TAINT_NOT_TOLERATED"


def test_what_an_object_says_of_itself_is_repeated_even_if_it_is_not_understood() -> None:
    said = {"conditions": [{"type": "Synchronized", "status": "False", "reason": "Odd", "message": "the moon is full"}]}
    found = ask("vmi/m", THERE, thing("VMI", "m", {}, "kubevirt.io/v1", status=said))
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "the moon is full" in found.headline
    said["conditions"][0]["message"] = "HostDevice nvidia.com/X is not permitted in permittedHostDevices configuration"
    refused = ask("vmi/m", THERE, thing("VMI", "m", {}, "kubevirt.io/v1", status=said))
    assert refused.code == "POLICY_DENIED"
    assert "HostDevice nvidia.com/X is not permitted" in refused.headline


def test_a_plugin_without_the_kernels_module_has_no_driver() -> None:
    plugin = running("amdgpu-device-plugin-1", "g1", OLD)
    line = "stat /sys/module/amdgpu/drivers: no such file or directory"
    amd = node("g1", labels={"feature.node.kubernetes.io/pci-1002.present": "true"})
    asked = pod("asked", 1, resource=GPU.replace("nvidia", "amd"))
    assert (
        ask("pod/asked", amd, plugin, asked, logs={"gpu-operator/amdgpu-device-plugin-1": line}).code
        == "DRIVER_MISSING"
    )


AMD = {"feature.node.kubernetes.io/pci-1002.present": "true"}


def test_a_gpu_of_another_vendor_counts_for_pods_that_ask_for_it() -> None:
    """Beside NVIDIA's nodes, too; most CPUs of AMD have one, and pods that ask for NVIDIA's do not wait for it."""
    plugin = running("amdgpu-device-plugin-1", "g2", OLD)
    full = [node("g1", 1, labels=PRESENT), node("g2", labels=AMD), plugin, pod("busy", 1, on="g1")]
    assert ask("pod/asked", *full, pod("asked", 1, resource="amd.com/gpu")).code == "DEVICE_PLUGIN_FAILING"
    assert ask("pod/asked", *full, pod("asked", 1)).code == "GPU_FULL"


def test_a_machine_that_was_asked_for_the_pod_comes_before_nodes_of_others() -> None:
    taint = {"key": "dedicated", "value": "others", "effect": "NoSchedule"}
    claim = thing("NodeClaim", "gpu-x7", {}, "karpenter.sh/v1", namespace="")
    nominated = event("Pod/asked", "Nominated", "Pod should schedule on: nodeclaim/gpu-x7", "karpenter")
    objects = [node("g1", 4, labels=PRESENT, taints=[taint]), pod("asked", 1), claim]
    found = ask("pod/asked", *objects, nominated)
    assert found.code == "NODE_UNSCHEDULABLE"
    assert "NodeClaim gpu-x7 was asked for" in found.headline
    assert ask("pod/asked", *objects).code == "TAINT_NOT_TOLERATED"


def test_no_node_has_refused_pods_that_do_not_exist() -> None:
    template = {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "64"}}}]}}}
    owner = thing("GameServer", "g", template, "agones.dev/v1")
    owner["metadata"] |= {"uid": "u-g", "creationTimestamp": OLD}
    found = ask("gameserver/g", THERE, owner)
    assert (found.code, found.confidence) == ("REQUEST_EXCEEDS_CLUSTER", "low")
    assert "has not made the pods" in found.doubt


def test_a_component_that_fails_without_saying_why_is_not_sure() -> None:
    driver, waits = crashing("nvidia-driver-daemonset-1", "g1"), [node("g1", labels=PRESENT), pod("asked", 1)]
    for log, confidence in (("Loading modules", "low"), ("error: no kernel headers", "high")):
        found = ask("pod/asked", *waits, driver, logs={"gpu-operator/nvidia-driver-daemonset-1": log})
        assert (found.code, found.confidence) == ("DRIVER_MISSING", confidence)


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ("nodefs", "EPHEMERAL_STORAGE"),
        ("imagefs", "EPHEMERAL_STORAGE"),
        ("ephemeral-storage", "EPHEMERAL_STORAGE"),
        ("cookies", "UNKNOWN"),
        ("memory", "CPU_MEM_INSUFFICIENT"),
        ("pids", "POD_COUNT_LIMIT"),
    ],
)
def test_an_evicted_pod_has_the_cause_that_its_kubelet_ran_out_of(resource: str, code: str) -> None:
    status = {"reason": "Evicted", "message": f"The node was low on resource: {resource}. "}
    assert ask("pod/asked", THERE, pod("asked", 1, on="g1", phase="Failed", status=status)).code == code


@pytest.mark.parametrize(
    ("why", "code"), [("permission denied", "DEVICE_PERMISSION"), ("timeout", "DEVICE_PLUGIN_FAILING")]
)
def test_a_plugin_that_restarts_is_quoted_and_a_denial_is_named(why: str, code: str) -> None:
    plugin = crashing("nvidia-device-plugin-daemonset-1", "g1")
    logs = {"gpu-operator/nvidia-device-plugin-daemonset-1": f"failed to listen on nvidia.sock: {why}"}
    found = ask("pod/asked", node("g1", labels=PRESENT), plugin, pod("asked", 1), logs=logs)
    assert found.code == code
    assert why in found.evidence[0]


@pytest.mark.parametrize("words", ["Gatekeeper rejected the request: a label", "[denied by team-limits]: too large"])
def test_a_refusal_is_a_policy_whoever_refuses(words: str) -> None:
    made = thing("ReplicaSet", "r", {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}})
    found = ask("rs/r", THERE, made, event("ReplicaSet/r", "FailedCreate", f"Error creating: {words}"))
    assert found.code == "POLICY_DENIED"
