"""The cause behind the symptom: named first, with the chain to the engine's words, where the evidence supports it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.diagnose.causal_scenes import SCENES, Scene, World, noise, running
from tests.diagnose.objects import GPU, NOW, ask, ended, event, evidence, node, plugin, pod, thing

from windlass.diagnose.causes import CAUSES
from windlass.diagnose.explanations import CHANGED_BY, EXPLAINS, leads_to
from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.why import why


def asked(world: World, question: str = "pod/asked") -> Diagnosis:
    return why(evidence(world.objects, world.logs, world.hosts), question, "", NOW)


def scenes() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))


@scenes()
def test_the_deepest_cause_is_named(scene: Scene) -> None:
    found = asked(scene.broken)
    assert (found.code, found.chain[-1].code) == (scene.code, scene.code), found.headline


@scenes()
def test_other_names_and_words_change_nothing(scene: Scene) -> None:
    def renamed(text: str) -> str:
        for old, new in (*scene.words.items(), ("asked", "trainer-9"), ("g1", "node-eu-17"), ("a1", "edge-4")):
            text = text.replace(old, new)
        return text

    objects = json.loads(renamed(json.dumps(list(scene.broken.objects))))
    logs = {renamed(key): renamed(text) for key, text in scene.broken.logs.items()}
    hosts = {renamed(key): renamed(text) for key, text in scene.broken.hosts.items()}
    assert asked(World(objects, logs, hosts), "pod/trainer-9").code == scene.code


@scenes()
def test_troubles_of_others_change_nothing(scene: Scene) -> None:
    others = noise()
    world = World([*others.objects, *scene.broken.objects], {**others.logs, **scene.broken.logs}, scene.broken.hosts)
    assert asked(world).code == scene.code


@scenes()
def test_without_the_decisive_evidence_no_other_cause_is_claimed(scene: Scene) -> None:
    found = asked(scene.blind)
    assert found.code == scene.symptom or found.confidence == "low", found.headline


@scenes()
def test_once_it_is_repaired_nothing_is_wrong(scene: Scene) -> None:
    assert asked(scene.repaired).code == "NONE"


@scenes()
def test_the_first_link_is_what_the_engine_says_also_without_the_evidence_for_more(scene: Scene) -> None:
    found = asked(scene.broken)
    assert len({link.code for link in found.chain}) == len(found.chain)
    mute = World([obj for obj in scene.broken.objects if obj["kind"] != "ConfigMap"])
    if len(found.chain) > 1:
        assert found.chain[0].code == asked(mute).chain[0].code


def test_the_table_of_explanations_has_known_codes_and_no_circle() -> None:
    known = {*EXPLAINS, *(code for codes in EXPLAINS.values() for code in codes), *CHANGED_BY}
    assert known <= set(CAUSES)
    assert not [code for code in EXPLAINS if leads_to(code, code)]


# Evidence against


SMI = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |"
OLD_CUDA = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.8, please update your driver"


def with_smi(*objects: Any, logs: dict[str, str] | None = None) -> Diagnosis:
    known = evidence(objects, logs)
    known.add_host_log("g1", "nvidia-smi", [SMI])
    return why(known, "pod/asked", "", NOW)


def test_a_driver_that_works_is_not_missing() -> None:
    found = with_smi(node("g1", 1), ended(), logs={"team/asked": "Failed to initialize NVML: Driver Not Loaded"})
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert [entry.code for entry in found.ruled_out] == ["DRIVER_MISSING"]
    assert len(found.next_commands) == 3


def test_a_driver_that_is_new_enough_is_not_too_old() -> None:
    waiting = {"state": {"waiting": {"reason": "RunContainerError", "message": OLD_CUDA}}}
    held = pod("asked", 1, on="g1", phase="Pending", status={"containerStatuses": [{"name": "main", **waiting}]})
    found = with_smi(node("g1", 1), held)
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    older = ask("pod/asked", node("g1", 1, labels=CUDA_11_2), held)
    assert (older.code, older.confidence) == ("CUDA_DRIVER_TOO_OLD", "high")


CUDA_11_2 = {"nvidia.com/cuda.runtime.major": "11", "nvidia.com/cuda.runtime.minor": "2"}


def test_a_group_that_can_not_exist_is_ruled_out_by_a_node_that_matches() -> None:
    said = "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu, 1 Insufficient cpu"
    found = ask(
        "pod/asked",
        node("g1", 1, cpu="6"),
        pod("agent", on="g1", cpu="2", owner=("DaemonSet", "agent")),
        pod("asked", 1, cpu="5"),
        event("Pod/asked", "NotTriggerScaleUp", said, "cluster-autoscaler"),
    )
    assert found.code == "CPU_MEM_INSUFFICIENT"
    assert [entry.code for entry in found.ruled_out] == ["AUTOSCALER_NO_MATCHING_GROUP"]


def test_a_provider_that_has_nothing_left_is_named_where_its_answer_was_for_this_pod() -> None:
    scaler = pod("cluster-autoscaler-1", on="g1", namespace="kube-system")
    line = "Pod team/{} can be scheduled on gpu-a100\nscale-up failed: ZONE_RESOURCE_POOL_EXHAUSTED in zone eu-1b"
    world = [node("g1", 1), pod("busy", 1, on="g1"), scaler, pod("asked", 1)]
    for_it = ask("pod/asked", *world, logs={"kube-system/cluster-autoscaler-1": line.format("asked")})
    assert (for_it.code, for_it.chain[0].code) == ("CLOUD_CAPACITY", "GPU_FULL")
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in str(for_it.evidence)
    for_another = ask("pod/asked", *world, logs={"kube-system/cluster-autoscaler-1": line.format("other")})
    assert for_another.code == "GPU_FULL"


def test_a_volume_that_was_not_read_is_not_gone() -> None:
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    claim = thing("PersistentVolumeClaim", "data", {"volumeName": "pv-1"}, "v1", status={"phase": "Bound"})
    assert ask("pod/asked", node("g1", 1), claim, pod("asked", 1, spec=volume)).code == "NONE"


def test_a_fault_that_would_not_help_if_mended_is_ruled_out() -> None:
    sick = node("g1", 7, capacity={GPU: 8}, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    labels = {"nvidia.com/gpu.count": "8"}
    sick["metadata"]["labels"] |= labels
    found = ask("pod/asked", sick, node("g2", 8), pod("busy", 1, on="g2"), pod("asked", 8))
    assert found.code == "GPU_FULL"


def test_a_taint_that_stops_the_plugin_and_the_pod_is_one_cause() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    found = ask(
        "pod/asked", node("g1", taints=[taint], labels={"nvidia.com/gpu.present": "true"}), *plugin(""), pod("asked", 1)
    )
    assert found.code == "TAINT_NOT_TOLERATED"
    assert "DEVICE_PLUGIN_ABSENT" in found.contributing


# Time


def test_a_ready_pod_is_not_blamed_for_an_old_kill() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-02-26T03:00:00Z"}}
    ready = running("asked", "g1", "2026-02-26T03:00:10Z", lastState=killed, restartCount=1)
    assert ask("pod/asked", node("g1", 1), ready).code == "NONE"


def test_a_healed_gpu_is_not_blamed() -> None:
    fault = event("Node/g1", "GPUUnhealthy", "Xid 79: GPU has fallen off the bus", "npd")
    fault["type"], fault["lastTimestamp"] = "Warning", "2026-03-01T08:00:00Z"
    healed = event("Node/g1", "GPUHealthy", "all GPUs are healthy", "npd")
    world = [node("g1", 1), ended(), fault]
    assert ask("pod/asked", *world, logs={"team/asked": "Traceback: KeyError"}).code == "GPU_HW_FAULT"
    assert ask("pod/asked", *world, healed, logs={"team/asked": "Traceback: KeyError"}).code == "APP_ERROR"


def test_events_of_a_deleted_namesake_are_not_read() -> None:
    job = thing("Job", "asked", {"template": {"spec": {"containers": [{"name": "main"}]}}}, "batch/v1")
    job["metadata"]["uid"] = "new"
    denied = event(
        "Job/asked", "FailedCreate", 'admission webhook "limits" denied the request: no limits', "job-controller"
    )
    denied["involvedObject"]["uid"] = "old"
    assert ask("job/asked", node("g1", 1), job, denied).code != "POLICY_DENIED"
    denied["involvedObject"]["uid"] = "new"
    assert ask("job/asked", node("g1", 1), job, denied).code == "POLICY_DENIED"


# Objects and their controllers


def replica_set(**status: Any) -> list[Any]:
    template = {"spec": {"containers": [{"name": "main"}]}}
    deployment = thing("Deployment", "web", {"replicas": 3, "template": template}, status=status)
    made = thing(
        "ReplicaSet", "web-1", {"replicas": 3, "template": template}, owner=("Deployment", "web"), status=status
    )
    return [deployment, made, *(pod(f"web-{at}", on="g1", owner=("ReplicaSet", "web-1")) for at in range(2))]


def test_a_deployment_that_lacks_a_pod_for_quota_is_not_well() -> None:
    message = 'pods "web-3" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=2, limited: cpu=2'
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    found = ask("deploy/web", node("g1"), *replica_set(conditions=[refused]))
    assert found.code == "RESOURCE_QUOTA_EXCEEDED"
    assert "xceeded quota: team" in found.headline


def test_pods_that_were_never_created_are_missed() -> None:
    found = ask("deploy/web", node("g1"), *replica_set())
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "1 of the pods" in found.headline


def ray(**status: Any) -> Any:
    head = {"template": {"spec": {"containers": [{"name": "head"}]}}}
    workers = [{"replicas": 2, "template": {"spec": {"containers": [{"name": "worker"}]}}}]
    spec = {"headGroupSpec": head, "workerGroupSpecs": workers}
    return thing("RayCluster", "asked", spec, "ray.io/v1", status=status)


def test_what_an_operator_was_denied_is_said_by_its_object() -> None:
    reason = 'admission webhook "pods.policy" denied the request: image not allowed'
    found = ask("raycluster/asked", node("g1"), ray(state="failed", reason=reason))
    assert found.code == "POLICY_DENIED"


def test_what_an_operator_was_denied_is_said_by_its_log() -> None:
    operator = pod("kuberay-operator-1", on="g1", namespace="ray-system")
    line = 'ERROR reconcile "team/asked": pods "asked-head" is forbidden: violates PodSecurity "restricted:latest"'
    other = line.replace("asked", "other")
    world = [node("g1"), ray(), operator]
    assert ask("raycluster/asked", *world, logs={"ray-system/kuberay-operator-1": line}).code == "POLICY_DENIED"
    assert ask("raycluster/asked", *world, logs={"ray-system/kuberay-operator-1": other}).code != "POLICY_DENIED"


# Names


def test_who_holds_the_port_is_named() -> None:
    port = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    found = ask("pod/asked", node("g1"), pod("web", on="g1", spec=port), pod("asked", spec=port))
    assert found.code == "HOST_PORT_CONFLICT"
    assert "8080/TCP of node g1 is taken by Pod team/web" in found.headline


def test_which_volume_is_in_which_zone_is_named() -> None:
    zone = "topology.kubernetes.io/zone"
    terms = [{"matchExpressions": [{"key": zone, "operator": "In", "values": ["eu-1b"]}]}]
    spec = {
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "claimRef": {"namespace": "team", "name": "data"},
    }
    volume = thing("PersistentVolume", "pv-1", spec, "v1", namespace="", status={"phase": "Bound"})
    claim = thing("PersistentVolumeClaim", "data", {"volumeName": "pv-1"}, "v1", status={"phase": "Bound"})
    mounted = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    found = ask("pod/asked", node("g1", 1, labels={zone: "eu-1a"}), volume, claim, pod("asked", 1, spec=mounted))
    assert found.code == "STORAGE_INSUFFICIENT"
    assert f"claim data is bound to volume pv-1, which is only in {zone} eu-1b" in found.headline.lower()


# How sure it is


def test_where_an_autoscaler_runs_and_says_nothing_the_answer_is_not_sure() -> None:
    world = [node("c1"), pod("asked", 1)]
    scaler = pod("karpenter-7", on="c1", namespace="karpenter")
    said = event(
        "Pod/asked",
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 1 max node group size reached",
        "cluster-autoscaler",
    )
    assert ask("pod/asked", *world).confidence == "high"
    silent = ask("pod/asked", *world, scaler)
    assert (silent.confidence, len(silent.next_commands)) == ("low", 3)
    assert ask("pod/asked", *world, scaler, said).confidence == "high"


def test_a_pod_that_should_long_have_started_is_not_well() -> None:
    def placed(since: str) -> Diagnosis:
        scheduled = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]}
        return ask("pod/asked", node("g1", 1), pod("asked", 1, on="g1", phase="Pending", status=scheduled))

    assert placed("2026-03-01T11:58:00Z").code == "NONE"
    assert placed("2026-03-01T10:00:00Z").code == "UNKNOWN"


def test_labels_alone_do_not_prove_an_upgrade() -> None:
    paused = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
    found = ask("pod/asked", node("g1", labels=paused), pod("asked", 1))
    assert (found.code, found.confidence) == ("DRIVER_UPGRADE_BLOCKED", "low")
    driver = pod("nvidia-driver-daemonset-1", on="g1", namespace="gpu-operator")
    assert ask("pod/asked", node("g1", labels=paused), driver, pod("asked", 1)).confidence == "high"


def test_a_quota_of_limits_is_compared_without_any_event() -> None:
    containers = [{"name": "main", "resources": {"limits": {"cpu": "1", "memory": "4Gi"}}}]
    job = thing("Job", "asked", {"template": {"spec": {"containers": containers}}}, "batch/v1")
    hard = {"limits.cpu": "64", "limits.memory": "512Gi"}
    quota = thing("ResourceQuota", "team", {"hard": hard}, "v1", status={"used": {**hard, "limits.cpu": "64"}})
    found = ask("job/asked", node("g1"), job, quota)
    assert found.code == "RESOURCE_QUOTA_EXCEEDED"
    assert "1 cpu requested, 64 of 64 used" in found.headline
    quota["status"]["used"] = {"limits.cpu": "1", "limits.memory": "1Gi"}
    assert ask("job/asked", node("g1"), job, quota).code != "RESOURCE_QUOTA_EXCEEDED"
