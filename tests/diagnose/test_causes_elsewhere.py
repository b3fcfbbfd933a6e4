"""Causes that lie in another object than the one that shows the symptom, each also without the evidence that decides.

A controller that is refused its pods, a device that is gone, a service that does not answer, a peer that failed first.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.causal_scenes import PRESENT, crashing, running
from tests.diagnose.objects import NOW, ask, event, evidence, node, pod, thing

from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.why import why
from windlass.model.unstructured import Unstructured

CRASHES: Unstructured = {"waiting": {"reason": "CrashLoopBackOff"}}
TEMPLATE: Unstructured = {"template": {"spec": {"containers": [{"name": "c"}]}}}
READY = node("g1", 4, labels=PRESENT)


def failing(state: Unstructured, last: Unstructured | None = None, **more: Any) -> Unstructured:
    """The asked pod on g1, whose container is in this state, was in that one before."""
    container = {"name": "main", "ready": False, "restartCount": 3, "state": state, "lastState": last or {}}
    status = {"containerStatuses": [container], **more.pop("status", {})}
    return pod(more.pop("name", "asked"), more.pop("gpus", 1), on="g1", status=status, **more)


def ended(code: int = 1, message: str = "", **more: Any) -> Unstructured:
    return failing({"terminated": {"exitCode": code, "reason": "Error", "message": message}}, **more)


def about(kind: str, namespace: str, name: str, reason: str, message: str) -> Unstructured:
    found = event(f"{kind}/{name}", reason, message, "controller")
    found["involvedObject"]["namespace"] = namespace
    return found | {"type": "Warning"}


# A controller that is refused its pods explains the absence of all that they would make

REFUSED = 'Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'
NFD = ("DaemonSet", "gpu-operator-node-feature-discovery-worker")
PCI = "[ 1.9] pci 0000:17:00.0: [10de:2237] type 00 class 0x030200"
AMD_PCI = "[ 1.9] pci 0000:17:00.0: [1002:740f] type 00 class 0x038000"


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
@pytest.mark.parametrize(
    "refused", [NFD, ("Deployment", "gpu-operator"), ("DaemonSet", "gpu-feature-discovery")], ids=lambda row: row[1]
)
def test_a_refused_controller_explains_missing_labels_plugins_and_devices(
    refused: tuple[str, str], resource: str
) -> None:
    kind, name = refused
    objects = [node("g1"), thing(kind, name, TEMPLATE, namespace="ops"), pod("asked", 1, resource=resource)]
    said = about(kind, "ops", name, "FailedCreate", REFUSED)
    host = {"g1": PCI if resource.startswith("nvidia") else AMD_PCI}
    found = ask("pod/asked", *objects, said, hosts=host)
    assert (found.code, found.confidence) == ("POLICY_DENIED", "high")
    assert name in found.headline
    assert "RESOURCE_NAME_MISMATCH" in [link.code for link in found.chain] + list(found.contributing)
    # Nothing shows that any node has a GPU: the same, but not for sure
    assert ask("pod/asked", *objects, said).confidence == "low"
    # The refusal is not known, only that there are no pods
    objects[1] |= {"status": {"desiredNumberScheduled": 3, "numberReady": 0}}
    unsaid = ask("pod/asked", *objects, hosts=host)
    assert (unsaid.code, unsaid.confidence) == ("DEVICE_PLUGIN_ABSENT", "low")


def test_a_discovery_that_works_is_not_blamed() -> None:
    worker = running("nfd-worker-1", "g1", "2026-03-01T09:00:00Z")
    worker["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": NFD[1], "controller": True}]
    daemon = thing("DaemonSet", NFD[1], TEMPLATE, namespace="gpu-operator")
    old = about("DaemonSet", "gpu-operator", NFD[1], "FailedCreate", REFUSED)
    found = ask("pod/asked", node("g1"), daemon, worker, old, pod("asked", 1), hosts={"g1": PCI})
    assert found.code == "DEVICE_PLUGIN_ABSENT"


# Devices that are gone

OLD, NEW = "GPU-11111111-2222-3333-4444-555555555555", "GPU-99999999-2222-3333-4444-555555555555"


def with_smi(*objects: Unstructured, smi: str = "") -> Diagnosis:
    world = evidence(objects)
    if smi:
        world.add_host_log("g1", "nvidia-smi", smi.splitlines())
    return why(world, "pod/asked", "", NOW)


@pytest.mark.parametrize(
    "message",
    [
        f"nvidia-container-cli: device error: {OLD}: unknown device: unknown",
        f"hook: could not resolve the requested device {OLD}",
    ],
)
def test_a_device_that_its_node_does_not_have_is_stale_in_any_words(message: str) -> None:
    asked = ended(128, message)
    gone = with_smi(READY, asked, smi=f"GPU 0: NVIDIA A100 (UUID: {NEW})")
    assert (gone.code, gone.confidence) == ("DEVICE_ID_STALE", "high")
    assert OLD in gone.headline
    there = with_smi(READY, asked, smi=f"GPU 0: NVIDIA A100 (UUID: {OLD})")
    assert (there.code, there.confidence) == ("UNKNOWN", "low")


def test_a_list_of_gpus_says_nothing_about_mig_instances() -> None:
    instance = ended(128, f"could not resolve the requested device {OLD.replace('GPU', 'MIG')}")
    assert with_smi(READY, instance, smi=f"GPU 0: NVIDIA A100 (UUID: {NEW})").code == "UNKNOWN"


def slices(*devices: str) -> Unstructured:
    spec = {"driver": "gpu.nvidia.com", "nodeName": "g1", "pool": {"name": "g1"}}
    rows = [{"name": name} for name in devices]
    return thing("ResourceSlice", "g1-gpus", {**spec, "devices": rows}, "resource.k8s.io/v1")


def claim(device: str = "") -> Unstructured:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    results = [{"driver": "gpu.nvidia.com", "pool": "g1", "device": device}]
    status = {"allocation": {"devices": {"results": results}}} if device else {}
    return thing("ResourceClaim", "one", {"devices": {"requests": requests}}, "resource.k8s.io/v1", status=status)


CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}


def test_a_claim_whose_device_its_driver_no_longer_publishes_is_stale() -> None:
    asked = failing({"waiting": {"reason": "ContainerCreating"}}, gpus=0, spec=CLAIMS, phase="Pending")
    assert ask("pod/asked", READY, asked, claim("gpu-3"), slices("gpu-0")).code == "DEVICE_ID_STALE"
    assert ask("pod/asked", READY, asked, claim("gpu-0"), slices("gpu-0")).code != "DEVICE_ID_STALE"
    assert ask("pod/asked", READY, asked, claim("gpu-3")).code != "DEVICE_ID_STALE"


# A kubelet plugin that does not publish its node's devices

DRA = "nvidia-dra-driver-gpu-kubelet-plugin"
NO_LIBRARY = "Error: error creating driver: error initializing NVML: ERROR_LIBRARY_NOT_FOUND"


def dra(log: str = NO_LIBRARY, smi: str = "", *more: Unstructured) -> Diagnosis:
    daemon = thing("DaemonSet", DRA, TEMPLATE, namespace="gpu-operator")
    crashed = crashing(f"{DRA}-x", "g1", owner=("DaemonSet", DRA))
    logs = {f"gpu-operator/{DRA}-x": log} if log else {}
    world = evidence([node("g1", labels=PRESENT), daemon, crashed, claim(), pod("asked", spec=CLAIMS), *more], logs)
    if smi:
        world.add_host_log("g1", "nvidia-smi", [smi])
    return why(world, "pod/asked", "", NOW)


def test_a_kubelet_plugin_that_finds_no_library_fails_by_itself_where_the_driver_works() -> None:
    found = dra(smi="NVIDIA-SMI 580.95   Driver Version: 580.95   CUDA Version: 13.0")
    assert (found.code, found.confidence) == ("DEVICE_PLUGIN_FAILING", "high")
    assert "nvidia-smi works on host g1" in found.evidence


@pytest.mark.parametrize("log", [NO_LIBRARY, ""])
def test_without_a_look_at_the_driver_or_the_log_that_is_not_sure(log: str) -> None:
    found = dra(log)
    assert (found.code, found.confidence) == ("DEVICE_PLUGIN_FAILING", "low")
    assert found.next_commands


def test_a_node_whose_plugin_fails_counts_where_all_published_devices_are_taken() -> None:
    taken = claim("gpu-0") | {"metadata": {"name": "theirs", "namespace": "team"}}
    elsewhere = slices("gpu-0")
    elsewhere["spec"] |= {"nodeName": "g2"}
    smi = "NVIDIA-SMI 580.95   Driver Version: 580.95   CUDA Version: 13.0"
    assert dra(NO_LIBRARY, smi, node("g2", labels=PRESENT), taken, elsewhere).code == "DEVICE_PLUGIN_FAILING"
    served = slices("gpu-0")
    assert dra(NO_LIBRARY, smi, taken, served).code == "GPU_FULL"


# The program's own entry point, probe and end


@pytest.mark.parametrize(
    ("said", "named", "remedy"),
    [
        ('exec: "--epochs=3": executable file not found in $PATH: unknown', "--epochs=3", "put them into args"),
        ('exec: "/entry.sh": permission denied: unknown', "/entry.sh", "correct command"),
        ('exec: "/app/run": stat /app/run: no such file or directory: unknown', "/app/run", "correct command"),
    ],
)
def test_a_program_that_cannot_be_executed_is_the_pods_own_fault(said: str, named: str, remedy: str) -> None:
    xid = {"g1": "[ 9.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."}
    found = ask("pod/asked", READY, ended(127, f"OCI runtime create failed: {said}"), hosts=xid)
    assert (found.code, found.confidence) == ("APP_ERROR", "high")
    assert named in found.headline
    assert remedy in found.headline


def test_a_hook_or_a_tool_of_the_toolkit_that_is_missing_is_no_entry_point() -> None:
    hook = 'error running hook: exec: "/usr/bin/nvidia-ctk": no such file or directory'
    assert ask("pod/asked", READY, ended(128, hook)).code != "APP_ERROR"
    probe = 'Liveness probe errored: OCI runtime exec failed: exec: "curl": executable file not found in $PATH'
    assert ask("pod/asked", READY, ended(1), about("Pod", "team", "asked", "Unhealthy", probe)).code == "UNKNOWN"
    tool = 'exec: "nvidia-smi": executable file not found in $PATH: unknown'
    assert ask("pod/asked", READY, ended(128, tool)).code == "RUNTIME_NOT_CONFIGURED"


def test_an_image_for_another_architecture() -> None:
    arm = node("g1", 4, labels=PRESENT | {"kubernetes.io/arch": "arm64"})
    found = ask("pod/asked", arm, ended(1), logs={"team/asked": "exec /usr/bin/python: exec format error"})
    assert (found.code, found.confidence) == ("APP_ERROR", "high")
    assert "arm64" in found.headline


def test_a_common_exit_code_without_a_log_is_explained_but_names_no_cause() -> None:
    found = ask("pod/asked", READY, ended(127))
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "its command was not found" in found.headline


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_a_container_that_its_probe_kills(probe: str) -> None:
    asked = failing(CRASHES, {"terminated": {"exitCode": 137, "reason": "Error"}})
    killing = about("Pod", "team", "asked", "Killing", f"Container main failed {probe} probe, will be restarted")
    log = {"team/asked": "INFO loading checkpoint shards: 43%"}
    found = ask("pod/asked", READY, asked, killing, logs=log)
    assert (found.code, found.confidence) == ("APP_ERROR", "high")
    assert f"its {probe} probe fails" in found.headline
    assert ask("pod/asked", READY, asked, logs=log).confidence == "low"


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("Evicted", "The node was low on resource: memory. Threshold: 100Mi", "CPU_MEM_INSUFFICIENT"),
        ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", "DURATION_EXCEEDED"),
        ("NodeShutdown", "Pod was terminated in response to imminent node shutdown.", "NODE_UNSCHEDULABLE"),
        ("NodeAffinity", "Predicate NodeAffinity failed", "SELECTOR_MISMATCH"),
        ("Preempting", "Preempted in order to admit critical pod", "UNKNOWN"),
    ],
)
def test_a_pod_that_was_ended_for_a_reason_that_its_status_names(reason: str, message: str, code: str) -> None:
    found = ask(
        "pod/asked", READY, pod("asked", 1, on="g1", phase="Failed", status={"reason": reason, "message": message})
    )
    assert found.code == code
    assert message in " ".join([found.headline, *found.evidence])


# What a message says is missing


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_a_mounted_object_that_does_not_exist_is_no_fault_of_storage(kind: str) -> None:
    asked = failing({"waiting": {"reason": "ContainerCreating"}}, phase="Pending")
    said = f'MountVolume.SetUp failed for volume "v" : {kind.lower()} "settings" not found'
    mount = about("Pod", "team", "asked", "FailedMount", said)
    found = ask("pod/asked", READY, asked, mount)
    assert (found.code, found.confidence) == ("INVALID_OBJECT", "high")
    assert '"settings" not found' in found.headline
    since = thing(kind, "settings", {}, "v1")
    assert "INVALID_OBJECT" in [entry.code for entry in ask("pod/asked", READY, asked, mount, since).ruled_out]


# What a program depends on

PULL: Unstructured = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}


def served(namespace: str, name: str, ready: bool, state: Unstructured) -> list[Unstructured]:
    """A Deployment behind a service of its name."""
    owner = thing("Deployment", name, TEMPLATE, namespace=namespace, status={"readyReplicas": int(ready)})
    behind = failing(state, name=f"{name}-1", gpus=0, namespace=namespace, owner=("Deployment", name))
    return [owner, thing("Service", name, {"selector": {"app": name}}, "v1", namespace=namespace), behind]


@pytest.mark.parametrize(
    "line", ["Error 111 connecting to redis.team.svc:6379. Connection refused.", "error: dial redis:6379: refused"]
)
def test_a_service_that_the_program_cannot_reach_is_asked_why(line: str) -> None:
    log = {"team/asked": line}
    found = ask("pod/asked", READY, ended(), *served("team", "redis", False, PULL), logs=log)
    assert found.code == "IMAGE_PULL_FAILED"
    assert "depends on Deployment team/redis" in found.headline
    well = ask("pod/asked", READY, ended(), *served("team", "redis", True, {"running": {}}), logs=log)
    assert well.code == "APP_ERROR"
    other = ask("pod/asked", READY, ended(), *served("team", "cache", False, PULL), logs=log)
    assert other.code == "APP_ERROR"


def test_name_resolution_that_fails_with_the_clusters_own() -> None:
    log = {"team/asked": "ConnectionError: Failed to resolve 'host': Temporary failure in name resolution"}
    down = ask("pod/asked", READY, ended(), *served("kube-system", "coredns", False, CRASHES), logs=log)
    assert "Deployment kube-system/coredns" in down.headline
    assert down.confidence == "low"  # nothing says why that crashes


# Peers


def peers(asked_ended: str, peer_ended: str, line: str = "ncclRemoteError: remote process exited") -> Diagnosis:
    def worker(name: str, reason: str, at: str) -> Unstructured:
        state = {"terminated": {"exitCode": 137, "reason": reason, "finishedAt": at}}
        return failing(state, name=name, owner=("PyTorchJob", "train"))

    job = thing("PyTorchJob", "train", {}, "kubeflow.org/v1")
    asked, peer = worker("asked", "Error", asked_ended), worker("train-1", "OOMKilled", peer_ended)
    return ask("pod/asked", READY, job, asked, peer, logs={"team/asked": line})


EARLY, LATE = "2026-03-01T11:00:00Z", "2026-03-01T11:00:09Z"


def test_the_peer_that_failed_first_is_the_cause() -> None:
    found = peers(LATE, EARLY)
    assert (found.code, found.confidence) == ("CONTAINER_OOM", "high")
    assert "Pod team/asked lost Pod team/train-1" in found.headline
    assert peers("", "").confidence == "low"


@pytest.mark.parametrize(("ends", "line"), [((EARLY, LATE), "ncclRemoteError"), ((LATE, EARLY), "ValueError: shape")])
def test_a_peer_that_failed_later_or_is_not_spoken_of_is_no_cause(ends: tuple[str, str], line: str) -> None:
    assert peers(*ends, line).code == "APP_ERROR"


def test_two_pods_that_complain_of_each_other_end() -> None:
    lost = {"exitCode": 1, "reason": "Error"}
    workers = [failing({"terminated": lost}, name=name, owner=("PyTorchJob", "train")) for name in ("asked", "train-1")]
    logs = {f"team/{name}": "socket closed by peer" for name in ("asked", "train-1")}
    job = thing("PyTorchJob", "train", {}, "kubeflow.org/v1")
    assert ask("pod/asked", READY, job, *workers, logs=logs).code == "APP_ERROR"


# Schedulers


def untouched(scheduler: str, **more: Any) -> Unstructured:
    found = pod("asked", 1, spec={"schedulerName": scheduler} if scheduler else {}, **more)
    found["metadata"]["uid"] = "u-asked"
    return found


LEASE = thing("Lease", "kube-scheduler", {}, "coordination.k8s.io/v1", namespace="kube-system")


def test_a_scheduler_that_nobody_runs_comes_before_what_a_gang_controller_says() -> None:
    group = {"scheduling.k8s.io/group-name": "g"}
    gang = thing("PodGroup", "g", {"minMember": 2}, "scheduling.volcano.sh/v1beta1")
    placed = pod("placed", 1, on="g1", spec={"schedulerName": "volcano"})
    found = ask("pod/asked", READY, LEASE, gang, placed, untouched("vocalno", annotations=group))
    assert (found.code, found.confidence) == ("WRONG_SCHEDULER", "high")
    assert "schedulerName: volcano" in found.headline
    assert found.changed_by == "you, in the manifest"
    assert [patch.patch["spec"]["schedulerName"] for patch in found.patches] == ["volcano"]
    right = ask("pod/asked", READY, LEASE, gang, placed, untouched("volcano", annotations=group))
    assert right.code == "GANG_INCOMPLETE"


def test_a_scheduler_that_crashes_is_not_the_manifests_fault() -> None:
    crashed = crashing("volcano-scheduler-1", "g1")
    crashed["metadata"]["namespace"] = "volcano-system"
    found = ask("pod/asked", READY, crashed, untouched("volcano"))
    assert (found.code, found.changed_by) == ("WRONG_SCHEDULER", "a cluster administrator")
    assert not found.patches


@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(["kube-scheduler-test", "default-scheduler-1", "volcano-scheduler-0", "my-volcano-scheduler"]),
    state=st.sampled_from([CRASHES, {"running": {}}]),
    scheduler=st.sampled_from(["", "volcano"]),
)
def test_what_a_tenant_calls_its_pods_changes_no_answer(name: str, state: Unstructured, scheduler: str) -> None:
    theirs = failing(state, name=name, gpus=0)
    alone = ask("pod/asked", READY, LEASE, untouched(scheduler))
    beside = ask("pod/asked", READY, LEASE, untouched(scheduler), theirs)
    assert (beside.code, beside.confidence) == (alone.code, alone.confidence)


# Plugins of all vendors


@pytest.mark.parametrize("name", ["amdgpu-device-plugin", "intel-gpu-plugin", "habanalabs-device-plugin"])
def test_a_plugin_of_any_vendor_that_is_refused_its_pods(name: str) -> None:
    daemon = thing("DaemonSet", name, TEMPLATE, namespace="ops")
    refused = about("DaemonSet", "ops", name, "FailedCreate", REFUSED)
    found = ask("pod/asked", node("g1", labels=PRESENT), daemon, refused, pod("asked", 1))
    assert (found.code, found.confidence) == ("POLICY_DENIED", "high")
