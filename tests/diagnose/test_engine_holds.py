"""`why` about what only the engine knows: its message, and the remedy of its reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.diagnose.objects import GPU, NOW, ask, evidence, node, pod, thing

from windlass.apply.executor import BIND_REFUSED_SECONDS
from windlass.cli.why_text import diagnosis_text
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.engine_view import queueing_finding
from windlass.diagnose.why import why
from windlass.dump.configuration import Configuration
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Limit, Verdict

VOLCANO = "scheduling.volcano.sh/v1beta1"
GROUP = {"scheduling.k8s.io/group-name": "ring"}


def test_a_field_that_is_not_implemented_has_a_remedy() -> None:
    group = thing("PodGroup", "ring", {"minMember": 1, "subGroupPolicy": [{"name": "x"}]}, VOLCANO)
    found = ask("pod/asked", node("g1", 4), group, pod("asked", 1, annotations=GROUP))
    assert found.code == "NOT_IMPLEMENTED"
    assert "spec.subGroupPolicy" in found.headline
    assert "set spec.schedulerName to a scheduler that supports it" in found.headline
    assert "topology level" not in found.headline


def test_the_word_topology_does_not_make_it_a_topology_problem() -> None:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    group = thing("PodGroup", "ring", {"minMember": 1, "networkTopology": topology}, VOLCANO)
    found = ask("pod/asked", node("g1", 4), group, pod("asked", 1, annotations=GROUP))
    assert "spec.networkTopology" in found.headline
    assert "preferred" not in found.headline


def test_a_missing_pod_group_is_to_be_created() -> None:
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, annotations=GROUP))
    assert found.code == "GANG_INCOMPLETE"
    assert "create the PodGroup" in found.headline


def test_plan_and_why_describe_fragments_in_the_same_words() -> None:
    nodes = [node(name, 4) for name in ("g1", "g2")]
    busy = [pod(f"busy-{name}", 2, on=name) for name in ("g1", "g2")]
    found = ask("pod/asked", *nodes, *busy, pod("asked", 4))
    words = "4 GPUs are free, but spread over 2 nodes (2, 2): no node has room for a pod with 4 GPUs"
    assert found.headline.startswith(words)


def shares(*taken: str) -> list[Unstructured]:
    """Pods with a part of a GPU each, on one node."""
    notes = [{"gpu-fraction": part, "windlass.dev/devices": f"{i}"} for i, part in enumerate(taken)]
    return [pod(f"busy-{i}", on="g1", annotations=note) for i, note in enumerate(notes)]


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        ("0.5", "1 GPU is free, all on one node: no GPU has 0.6 free"),
        ("0.9", "No matching GPU has enough left for the requested share"),
    ],
)
def test_a_share_by_annotation_says_what_is_left(taken: str, words: str) -> None:
    asked = pod("asked", annotations={"gpu-fraction": "0.6"})
    assert ask("pod/asked", node("g1", 2), *shares(taken, taken), asked).headline.startswith(words)


def test_shares_by_annotation_are_not_counted_as_zero_devices() -> None:
    template = {"spec": pod("x")["spec"]}
    job = thing("Job", "asked", {"parallelism": 2, "template": template}, "batch/v1")
    pods = [pod(f"asked-{i}", annotations={"gpu-fraction": "0.6"}, owner=("Job", "asked")) for i in range(2)]
    found = ask("job/asked", node("g1", 3), *shares("0.4", "0.5", "0.5"), job, *pods)
    assert found.code == "GPU_FRAGMENTED"
    assert "0  are free" not in found.headline
    assert "1 of" in found.headline


def test_cpu_pods_are_not_told_of_free_gpus() -> None:
    assert "GPU" not in CAUSES["CPU_MEM_INSUFFICIENT"].meaning


def test_no_remedy_is_empty_or_only_to_wait() -> None:
    for code, cause in CAUSES.items():
        assert cause.remedy or code == "NONE", code
        assert cause.remedy != "wait", code


def test_the_retry_time_of_a_refused_binding_is_the_schedulers() -> None:
    assert f"after {BIND_REFUSED_SECONDS} s" in CAUSES["POLICY_DENIED"].remedy


def test_the_quota_key_is_right_for_any_resource() -> None:
    assert "requests.<resource>" in CAUSES["QUOTA_KEY_INVALID"].remedy
    assert GPU in CAUSES["QUOTA_KEY_INVALID"].remedy


@pytest.mark.parametrize("subject", ["job/grown", "pod/grown-1"])
def test_pods_above_the_admission_of_an_elastic_job_wait_for_quota(subject: str) -> None:
    """One of two pods is admitted: queue and node are full, and the engine asks the queue first."""
    kueue = "kueue.x-k8s.io/v1beta2"
    containers = {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}
    template = {"spec": containers}
    job = thing("Job", "grown", {"parallelism": 2, "template": template}, "batch/v1")
    job["metadata"] |= {
        "labels": {"kueue.x-k8s.io/queue-name": "q"},
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
    }
    part = {"name": "main", "count": 1, "flavors": {GPU: "any"}, "resourceUsage": {GPU: "1"}}
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 2, "template": template}]}
    workload = thing("Workload", "w", spec, kueue)
    workload["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "grown",
            "uid": job["metadata"].get("uid", ""),
            "controller": True,
        }
    ]
    conditions = [{"type": kind, "status": "True", "reason": kind} for kind in ("QuotaReserved", "Admitted")]
    workload["status"] = {"admission": {"clusterQueue": "q", "podSetAssignments": [part]}, "conditions": conditions}
    cells = [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 1}]}]
    groups = [{"coveredResources": [GPU], "flavors": cells}]
    queues = [
        thing("ResourceFlavor", "any", {}, kueue),
        thing("ClusterQueue", "q", {"namespaceSelector": {}, "resourceGroups": groups}, kueue),
        thing("LocalQueue", "q", {"clusterQueue": "q"}, kueue),
    ]
    pods = [pod(f"grown-{i}", on="" if i else "g1", spec=containers, owner=("Job", "grown")) for i in range(2)]
    found = ask(subject, node("g1", 1), *queues, job, workload, *pods)
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"


# Names that match nothing: `why` says what the plan says


KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"


def queued_job(**spec: object) -> list[Unstructured]:
    """A suspended Job in a queue that has room for it, with a WorkloadPriorityClass that nobody has created."""
    resources = [{"name": GPU, "nominalQuota": 8}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": resources}]}]
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    labels = {QUEUE: "main", "kueue.x-k8s.io/priority-class": "urgent"}
    return [
        thing("ResourceFlavor", "any", {}, KUEUE, namespace=""),
        thing("ClusterQueue", "main", {"namespaceSelector": {}, "resourceGroups": groups}, KUEUE, namespace=""),
        thing("LocalQueue", "main", {"clusterQueue": "main"}, KUEUE),
        thing("Job", "train", {"suspend": True, "parallelism": 1, "template": template}, "batch/v1", labels=labels),
    ]


def test_the_text_promises_a_patch_only_where_one_is_printed() -> None:
    halves = [pod("busy-1", 2, on="g1"), pod("busy-2", 2, on="g2")]
    found = ask("pod/asked", node("g1", 4), node("g2", 4), *halves, pod("asked", 4))
    assert found.printed_patch == found.patches[0]
    assert "--patch prints the first" in " ".join(diagnosis_text(found, wide=False).split())
    late = tuple(replace(patch, runs_after=False) for patch in found.patches)
    waits = replace(found, patches=late)
    assert waits.printed_patch is None
    assert "--patch" not in diagnosis_text(waits, wide=False)


@pytest.mark.parametrize("busy", [False, True])
def test_why_names_a_missing_workload_priority_class(busy: bool) -> None:
    running = [pod("busy", 4, on="g1")] if busy else []
    found = ask("job/train", node("g1", 4), *queued_job(), *running)
    assert found.code == "INVALID_OBJECT"
    assert "WorkloadPriorityClass urgent doesn't exist: create it" in found.headline


def test_why_names_the_node_selector_of_the_configuration() -> None:
    objects = [node("g1", 4), pod("asked", 1)]
    configured = Configuration(settings=Settings(node_selector={"pool": "gpu"}))
    found = why(evidence(objects, None, None), "pod/asked", "", NOW, configured)
    assert found.headline.startswith("The scheduler's nodeSelector pool=gpu matches no node")
    assert "label the nodes that the scheduler should use" in found.headline


def test_why_names_a_claim_in_the_template_of_a_queued_job() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = queued_job(volumes=volumes)
    del objects[-1]["metadata"]["labels"]["kueue.x-k8s.io/priority-class"]
    found = ask("job/train", node("g1", 4), *objects)
    assert found.code == "STORAGE_INSUFFICIENT"
    assert found.headline.startswith('Persistentvolumeclaim "data" not found')


def test_every_quota_that_lacks_is_named() -> None:
    limits = (Limit("quota", "over quota: 4 cpu left"), Limit("quota", "over quota: 0 nvidia.com/gpu left"))
    found = queueing_finding(Hold("team/w", Verdict("KUEUE_QUOTA_INSUFFICIENT", 1, limits=limits)))
    assert found is not None
    assert found.headline == "over quota: 4 cpu left; over quota: 0 nvidia.com/gpu left"


def test_a_deactivated_workload_has_the_code_that_the_engine_gives_it() -> None:
    """Also where Kueue has evicted it, and the engine holds it for spec.active."""
    version, template = "kueue.x-k8s.io/v1beta1", {"spec": pod("x", 1)["spec"]}
    evicted = {"type": "Evicted", "status": "True", "reason": "Deactivated", "message": "The workload is deactivated"}
    spec = {"queueName": "q", "active": False, "podSets": [{"name": "main", "count": 1, "template": template}]}
    workload = thing("Workload", "w", spec, version, status={"conditions": [evicted]})
    found = ask("workload/w", node("g1", 8), workload)
    assert found.code == "JOB_SUSPENDED"


def test_work_that_a_drain_has_stopped_waits_and_needs_nobody() -> None:
    version, template = "kueue.x-k8s.io/v1beta1", {"spec": pod("x", 1)["spec"]}
    evicted = {"type": "Evicted", "status": "True", "reason": "Deactivated", "message": "The workload is deactivated"}
    spec = {"queueName": "q", "active": False, "podSets": [{"name": "main", "count": 1, "template": template}]}
    workload = thing("Workload", "w", spec, version, status={"conditions": [evicted]})
    workload["metadata"]["annotations"] = {"windlass.dev/stopped-for": "change r590"}
    found = ask("workload/w", node("g1", 8), workload)
    assert found.code == "REQUEUE_BACKOFF"
    assert "was stopped so that its node can be worked on (change r590); it is queued again at once" in found.headline
    assert "spec.active" not in diagnosis_text(found, wide=True)
