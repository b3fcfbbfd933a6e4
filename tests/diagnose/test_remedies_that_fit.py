"""The answer's words fit what is there: a mounted volume, two zones, a lost node, an eviction, a spread constraint."""

from __future__ import annotations

from tests.diagnose.objects import GPU, ask, ended, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

ZONE = "topology.kubernetes.io/zone"


def test_a_memory_volume_that_is_too_small_is_raised_not_mounted_again() -> None:
    container = {
        "name": "main",
        "resources": {"limits": {GPU: "1"}},
        "volumeMounts": [{"name": "fast", "mountPath": "/dev/shm/"}],
    }
    volumes = [{"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}]
    asked = ended(spec={"containers": [container], "volumes": volumes})
    found = ask(
        "pod/asked", node("g1", 4), asked, logs={"team/asked": "RuntimeError: insufficient shared memory (shm)"}
    )
    assert found.code == "SHM_TOO_SMALL"
    assert "olume fast is mounted at /dev/shm and has a sizeLimit of 2Gi" in found.headline
    assert "raise the sizeLimit of volume fast" in found.headline
    assert not found.patches


def test_without_a_volume_the_default_is_too_small() -> None:
    found = ask("pod/asked", node("g1", 4), ended(), logs={"team/asked": "RuntimeError: insufficient shared memory"})
    assert "mount an emptyDir" in found.headline
    assert found.patches


def claim(name: str, zone: str) -> list[Unstructured]:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    volume = thing("PersistentVolume", f"pv-{name}", spec, "v1", status={"phase": "Bound"}, namespace="")
    bound = {
        "volumeName": f"pv-{name}",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return [volume, thing("PersistentVolumeClaim", name, bound, "v1", status={"phase": "Bound"})]


def mounting(*claims: str) -> Unstructured:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return pod("asked", 1, spec={"volumes": volumes})


def test_claims_in_two_zones_are_both_named() -> None:
    zones = [node("g1", 4, labels={ZONE: "a"}), node("g2", 4, labels={ZONE: "b"})]
    found = ask("pod/asked", *zones, *claim("home", "a"), *claim("data", "b"), mounting("home", "data"))
    assert found.code == "STORAGE_INSUFFICIENT"
    assert f"claim home is only in {ZONE} a, that of claim data only in b" in found.headline


def test_claims_in_one_zone_are_compared_with_the_node() -> None:
    found = ask("pod/asked", node("g1", 4, labels={ZONE: "a"}), *claim("x", "b"), *claim("y", "b"), mounting("x", "y"))
    assert "claim x is bound to volume pv-x" in found.headline.lower()


def test_a_pod_that_stays_terminating_on_a_lost_node_is_not_helped_by_uncordon() -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    asked = pod("asked", 1, on="g1")
    asked["metadata"]["deletionTimestamp"] = "2026-03-01T11:00:00Z"
    found = ask("pod/asked", node("g1", 4, taints=[taint]), asked)
    assert found.code == "NODE_UNSCHEDULABLE"
    assert "stays Terminating" in found.headline
    assert "out-of-service" in found.headline
    assert "uncordon" not in found.headline


def test_evictions_for_a_slow_start_are_counted() -> None:
    job = thing("Job", "train", {"template": {"spec": {"containers": []}}}, "batch/v1")
    status = {"admission": {"clusterQueue": "q"}, "requeueState": {"count": 3}}
    workload = thing("Workload", "w", {}, "kueue.x-k8s.io/v1beta1", owner=("Job", "train"), status=status)
    gone = event("Workload/w", "EvictedDueToPodsReadyTimeout", "Exceeded the PodsReady timeout", "kueue")
    pulling = event("Pod/asked", "Pulling", 'Pulling image "big"', "kubelet")
    asked = pod("asked", 1, on="g1", phase="Pending", owner=("Job", "train"))
    found = ask("pod/asked", node("g1", 4), job, workload, gone, asked, pulling)
    assert found.code == "IMAGE_PULL_SLOW"
    assert "waitForPodsReady has evicted it 3 times" in found.headline


def test_an_image_that_is_being_pulled_is_told_from_those_that_are_there() -> None:
    big, small = 'Pulling image "r/big:1"', 'Successfully pulled image "r/small:1" in 3s'
    states = [
        {"name": "main", "image": "r/big:1", "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "side", "image": "r/small:1", "state": {"running": {}}},
    ]
    asked = pod("asked", 1, on="g1", phase="Pending", status={"containerStatuses": states})
    others = [event("Pod/asked", reason, small, "kubelet") for reason in ("Pulled", "Created", "Started")]
    found = ask("pod/asked", node("g1", 4), asked, event("Pod/asked", "Pulling", big, "kubelet"), *others)
    assert found.code == "IMAGE_PULL_SLOW"
    assert "r/big:1" in found.headline
    there = event("Pod/asked", "Pulled", 'Successfully pulled image "r/big:1" in 300s', "kubelet")
    found = ask("pod/asked", node("g1", 4), asked, event("Pod/asked", "Pulling", big, "kubelet"), *others, there)
    assert found.code != "IMAGE_PULL_SLOW"


def test_a_tainted_node_of_others_is_doubted_where_the_autoscaler_has_another_reason() -> None:
    tainted = node("theirs", 4, taints=[{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}])
    said = "incompatible with nodepool gpu, no instance type has enough resources"
    refused = event("Pod/asked", "FailedScheduling", said, "karpenter")
    found = ask("pod/asked", tainted, pod("asked", 2), refused)
    assert (found.code, found.confidence) == ("TAINT_NOT_TOLERATED", "low")
    assert "its autoscaler says something else" in found.doubt
    assert ask("pod/asked", tainted, pod("asked", 2)).confidence == "high"


def test_nodes_that_only_a_spread_constraint_excludes_are_named_beside_a_cordoned_one() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "rank"}},
    }
    labels = {"app": "rank"}
    spec = {"topologySpreadConstraints": [spread]}
    running = [pod(f"r{n}", 1, on=f"g{n}", labels=labels) for n in (1, 2)]
    cluster = [node("g1", 4), node("g2", 4), node("g3", 4, cordoned=True)]
    found = ask("pod/asked", *cluster, *running, pod("asked", 1, labels=labels, spec=spec))
    assert {found.code, *found.contributing} >= {"NODE_UNSCHEDULABLE", "POD_SPREAD_CONFLICT"}
    assert "its topology spread constraint alone excludes g1, g2, where enough is free" in found.headline
    assert "maxSkew" in found.headline


def test_nvml_that_refuses_a_call_about_mig_is_not_answered_with_selinux() -> None:
    log = {"kube-system/nvidia-device-plugin-x": "error getting memory info of device: Insufficient Permissions"}
    mig = {"nvidia.com/mig.config": "all-1g.6gb", "nvidia.com/gpu.present": "true"}
    asked = pod("asked", 1, resource="nvidia.com/mig-1g.6gb")
    found = ask("pod/asked", node("g1", labels=mig), *plugin("g1", restarts=5), asked, logs=log)
    assert found.code == "DEVICE_PERMISSION"
    assert "NVIDIA_MIG_MONITOR_DEVICES" in found.headline
    assert "SELinux policy" not in found.headline
