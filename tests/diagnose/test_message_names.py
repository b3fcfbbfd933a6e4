"""Sentences with the names that their messages lead to: which volume and who has it, which LimitRange, which queue."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, YOUNG, ask, event, node, pod, thing

from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.immutability import refused_fields
from windlass.model.unstructured import Unstructured

MULTI_ATTACH = (
    'Multi-Attach error for volume "pvc-9" Volume is already exclusively attached to one node '
    "and can't be attached to another"
)
CREATING = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
HOME = {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]}


def starting(message: str, reason: str, *others: Unstructured, spec: Unstructured | None = None) -> Diagnosis:
    """A pod that a node has, which does not start for what the kubelet says."""
    asked = pod("asked", 1, on="g2", phase="Pending", status=CREATING, spec=spec or {})
    return ask(
        "pod/asked", node("g1", 1), node("g2", 1), *others, asked, event("Pod/asked", reason, message, "kubelet")
    )


def held_volume() -> list[Unstructured]:
    claim = thing("PersistentVolumeClaim", "home", {"volumeName": "pvc-9"}, "v1", status={"phase": "Bound"})
    source = {"persistentVolumeName": "pvc-9"}
    attachment = thing(
        "VolumeAttachment",
        "csi-1",
        {"nodeName": "g1", "source": source},
        "storage.k8s.io/v1",
        status={"attached": True},
    )
    return [claim, attachment]


def test_a_volume_that_another_node_has_is_named_with_its_claim_and_the_stale_attachment() -> None:
    found = starting(MULTI_ATTACH, "FailedAttachVolume", *held_volume(), spec=HOME)
    assert found.code == "STORAGE_INSUFFICIENT"
    assert "volume pvc-9 of claim home is attached to node g1" in found.headline.lower()
    assert "kubectl delete volumeattachment csi-1" in found.headline


def test_where_a_pod_uses_it_there_that_pod_is_named() -> None:
    user = pod("other", on="g1", spec=HOME)
    found = starting(MULTI_ATTACH, "FailedAttachVolume", *held_volume(), user, spec=HOME)
    assert "delete Pod team/other, which uses it there" in found.headline


def test_without_the_attachment_nothing_is_made_up() -> None:
    found = starting(MULTI_ATTACH, "FailedAttachVolume", spec=HOME)
    assert "attached to another node" in found.headline


def test_a_node_without_addresses_has_not_reached_its_number_of_pods() -> None:
    said = 'plugin type="aws-cni" failed (add): add cmd: failed to assign an IP address to container'
    found = starting(f"Failed to create pod sandbox: {said}", "FailedCreatePodSandBox")
    assert found.code == "POD_COUNT_LIMIT"
    assert found.headline.startswith("Node g2 has no IP address left for Pod team/asked")


@pytest.mark.parametrize(("kind", "bound"), [("Container", "max"), ("Container", "min")])
def test_a_limit_range_is_named(kind: str, bound: str) -> None:
    limits = thing("LimitRange", "sizes", {"limits": [{"type": kind, bound: {"memory": "4Gi"}}]}, "v1")
    said = f'Error creating: pods "web-1-" is forbidden: {bound}imum memory usage per {kind} is 4Gi, but limit is 8Gi'
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1", "memory": "8Gi"}}}]}}
    owner = thing("ReplicaSet", "web-1", {"replicas": 1, "template": template})
    found = ask("rs/web-1", node("g1", 1), limits, owner, event("ReplicaSet/web-1", "FailedCreate", said))
    assert found.code == "POLICY_DENIED"
    assert found.headline.startswith(f"LimitRange team/sizes: {bound}imum memory usage per {kind} is 4Gi")


def test_the_registrys_words_are_said_and_not_that_the_kubelet_waits() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nvcr.io/nim:1"'}
    status = {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]}
    asked = pod("asked", 1, on="g1", phase="Pending", status=status)
    said = 'Failed to pull image "nvcr.io/nim:1": unable to retrieve auth token: authentication required'
    found = ask("pod/asked", node("g1", 1), asked, event("Pod/asked", "Failed", said, "kubelet"))
    assert found.code == "IMAGE_PULL_FAILED"
    assert "authentication required" in found.headline


def test_an_autoscaler_that_fails_before_it_looks_is_the_cause() -> None:
    log = (
        "I0310 klogx.go:87] Pod team/asked is unschedulable\n"
        "E0310 static_autoscaler.go:560] Failed to scale up: could not create quotas tracker: node g1 has no GPU"
    )
    scaler = pod("cluster-autoscaler-0", on="c1", namespace="kube-system")
    objects = [node("c1", cpu="4"), pod("busy", on="c1", cpu="4"), scaler, pod("asked", cpu="2")]
    found = ask("pod/asked", *objects, logs={"kube-system/cluster-autoscaler-0": log})
    assert found.code == "AUTOSCALER_NO_MATCHING_GROUP"
    assert "could not create quotas tracker" in found.headline
    assert ask("pod/asked", *objects).code == "CPU_MEM_INSUFFICIENT"
    recovered = f"{log}\nI0310 klogx.go:87] Pod team/asked is unschedulable"
    later = ask("pod/asked", *objects, logs={"kube-system/cluster-autoscaler-0": recovered})
    assert later.code == "CPU_MEM_INSUFFICIENT", "an error before the last attempt is past"


def test_what_keeps_its_pods_has_not_completed() -> None:
    made = thing("StatefulSet", "web", {"replicas": 1}, status={"replicas": 1, "readyReplicas": 1})
    found = ask("sts/web", node("g1", 1), made, pod("web-0", on="g1", owner=("StatefulSet", "web")))
    assert found.code == "NONE"
    assert "completed" not in found.headline


def test_volcanos_short_name_finds_its_job() -> None:
    job = thing("Job", "train", {"tasks": []}, "batch.volcano.sh/v1alpha1", status={"state": {"phase": "Completed"}})
    assert ask("vcjob/train", node("g1", 1), {**job, "metadata": {**job["metadata"], "creationTimestamp": YOUNG}})


NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
PODS = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ({"affinity": {}}, {"affinity": NODES}, False),
        ({"affinity": PODS}, {"affinity": {}}, True),
        ({"tolerations": []}, {"tolerations": [{"operator": "Exists"}]}, False),
        ({"schedulerName": "a"}, {"schedulerName": "b"}, True),
    ],
)
def test_of_a_suspended_job_placement_may_change_but_for_rules_between_pods(
    before: Unstructured, after: Unstructured, is_refused: bool
) -> None:
    def job(spec: Unstructured, **metadata: Unstructured) -> Unstructured:
        template = {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}
        return {"spec": {"suspend": True, "template": template}}

    assert bool(refused_fields("Job", job(before), job(after))) == is_refused
    assert not refused_fields("Job", job({}), job({}, annotations={"topology": "rack"}, labels={"a": "b"}))


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "1", "b": "2"}}, False),
        ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "2"}}, True),
        ({"affinity": {}}, {"affinity": NODES}, False),
        ({"affinity": NODES}, {"affinity": {}}, True),
    ],
)
def test_a_pod_with_scheduling_gates_may_only_become_more_selective(
    before: Unstructured, after: Unstructured, is_refused: bool
) -> None:
    gates = {"schedulingGates": [{"name": "queue"}]}
    trees = [{"spec": {**gates, **spec}} for spec in (before, after)]
    assert bool(refused_fields("Pod", *trees)) == is_refused
