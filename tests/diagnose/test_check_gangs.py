"""`check` on gangs, topology, quotas, queues and images: what can't start together, or not here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.diagnose.test_check import MANIFESTS
from tests.diagnose.test_check_guides import of, said

from windlass.diagnose.check.manifest import STDIN, read_manifests
from windlass.diagnose.check.pod_counts import pod_count
from windlass.diagnose.check.rule import CheckFinding, check_all
from windlass.diagnose.evidence import load_evidence


@pytest.mark.parametrize(
    ("file", "rule", "line", "words"),
    [
        ("gang-too-few.yaml", "gang-complete", 5, "needs at least 8 pods, but only 4"),
        ("gang-minimum-above-replicas.yaml", "gang-complete", 7, "needs at least 9 pods but creates 8"),
        ("gang-total-differs.yaml", "gang-complete", 7, "has 2 of 3 members"),
        ("launcher-counts-wrong.yaml", "launcher-agrees", 11, "waits for 4 nodes"),
        ("topology-two-ways.yaml", "topology-satisfiable", 12, "only one"),
    ],
)
def test_numbers_that_do_not_agree(file: str, rule: str, line: int, words: str) -> None:
    found = [finding for finding in of(said(file), rule) if words in finding.message]
    assert [finding.line for finding in found] == [line], of(said(file), rule)


@pytest.mark.parametrize(
    ("change", "with_"),
    [
        ("gang-too-few.yaml", ("minMember: 8", "minMember: 4")),
        ("gang-minimum-above-replicas.yaml", ("minAvailable: 9", "minAvailable: 8")),
        ("gang-total-differs.yaml", ('"3"', '"2"')),
        ("launcher-counts-wrong.yaml", ("--nnodes=4, --nproc-per-node=8", "--nnodes=2, --nproc-per-node=4")),
    ],
)
def test_numbers_that_agree_are_fine(change: str, with_: tuple[str, str]) -> None:
    text = (MANIFESTS / change).read_text().replace(*with_)
    rules = {finding.rule for finding in check_all(read_manifests([STDIN], text), None, 0)}
    assert not rules & {"gang-complete", "launcher-agrees"}


COUNTS = {
    "{kind: Deployment, spec: {replicas: 3, template: T}}": [3],
    "{kind: Job, spec: {parallelism: 8, completions: 2, template: T}}": [2],
    "{kind: Job, spec: {template: T}}": [1],
    "{kind: JobSet, spec: {replicatedJobs: [{replicas: 2, template: {spec: {parallelism: 3, template: T}}}]}}": [6],
    "{kind: PyTorchJob, spec: {pytorchReplicaSpecs: {M: {template: T}, W: {replicas: 4, template: T}}}}": [1, 4],
    "{kind: LeaderWorkerSet, spec: {replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: T}}}": [8],
    "{kind: RayCluster, spec: {headGroupSpec: {template: T}, workerGroupSpecs: [{replicas: 5, template: T}]}}": [1, 5],
}  # fmt: skip


@pytest.mark.parametrize("text", COUNTS)
def test_how_many_pods_a_manifest_makes(text: str) -> None:
    written = text.replace("T}", "{spec: {containers: [{name: c}]}}}")
    (manifest,) = read_manifests([STDIN], written)
    assert [pod_count(manifest, view) for view in manifest.pods] == COUNTS[text]


def dump(folder: Path, *objects: dict[str, object]) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return file


def node(name: str, rack: str = "", gpus: int = 8, images: list[dict[str, object]] | None = None) -> dict[str, object]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"rack": rack} if rack else {}},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images or []},
    }


def checked(text: str, cluster: Path | None = None) -> list[CheckFinding]:
    return check_all(read_manifests([STDIN], text), load_evidence(cluster) if cluster else None, 0)


def test_a_level_that_no_node_has_and_a_domain_that_is_too_small(tmp_path: Path) -> None:
    text = (MANIFESTS / "topology-two-ways.yaml").read_text()
    text = text.replace("        kueue.x-k8s.io/podset-preferred-topology: zone\n", "")
    plain = of(checked(text, dump(tmp_path, node("a"))), "topology-satisfiable")
    assert "no node has the label rack" in plain[0].message
    small = dump(tmp_path, *[node(f"n{number}", f"r{number % 2}") for number in range(6)])
    found = of(checked(text, small), "topology-satisfiable")
    assert "the largest fits 3" in found[0].message
    large = dump(tmp_path, *[node(f"n{number}", f"r{number % 2}") for number in range(8)])
    assert not of(checked(text, large), "topology-satisfiable")
    topology: dict[str, object] = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": "block"}]},
    }
    other = of(checked(text, dump(tmp_path, node("a", "r0"), topology)), "topology-satisfiable")
    assert "no Topology has the level rack" in other[0].message


QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: lab}
spec: {hard: {requests.nvidia.com/gpu: HARD}}
status: {used: {requests.nvidia.com/gpu: USED}}
"""


@pytest.mark.parametrize(("hard", "used", "level"), [("16", "0", "error"), ("32", "8", "warning"), ("40", "8", None)])
def test_a_resource_quota_admits_all_pods_or_says_so(tmp_path: Path, hard: str, used: str, level: str | None) -> None:
    quota = yaml.safe_load(QUOTA.replace("HARD", f'"{hard}"').replace("USED", f'"{used}"'))
    text = (MANIFESTS / "topology-two-ways.yaml").read_text()
    found = of(checked(text, dump(tmp_path, node("a"), quota)), "resource-quota-admits")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_a_quota_for_memory_wants_every_pod_to_say_it() -> None:
    text = """
{apiVersion: v1, kind: ResourceQuota, metadata: {name: all}, spec: {hard: {requests.memory: 10Gi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}
"""
    assert "requests no memory" in of(checked(text), "resource-quota-admits")[0].message


QUEUES = """
{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: f}}
---
{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: q, namespace: lab}, spec: {clusterQueue: cq}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: f
      resources:
      - {name: cpu, nominalQuota: 64}
      - {name: memory, nominalQuota: 1Ti}
      - {name: nvidia.com/gpu, nominalQuota: GPUS}
"""


def test_a_queue_that_can_never_give_so_much_is_named_offline() -> None:
    job = (MANIFESTS / "topology-two-ways.yaml").read_text()
    few = of(checked(QUEUES.replace("GPUS", "16") + "---\n" + job), "queue-admits")
    assert [finding.level for finding in few] == ["error"]
    assert "admits at most 16" in few[0].message
    assert not of(checked(QUEUES.replace("GPUS", "32") + "---\n" + job), "queue-admits")
    borrows = QUEUES.replace("GPUS", "16").replace("  namespaceSelector", "  cohort: all\n  namespaceSelector")
    assert not of(checked(borrows + "---\n" + job), "queue-admits")


def test_on_a_cluster_the_engine_says_whether_it_would_start(tmp_path: Path) -> None:
    job = (MANIFESTS / "topology-two-ways.yaml").read_text()
    job = "\n".join(line for line in job.splitlines() if "topology:" not in line and "annotations:" not in line)
    queues = list(yaml.safe_load_all(QUEUES.replace("GPUS", "32")))
    four = [node(f"n{number}") for number in range(4)]
    assert not of(checked(job, dump(tmp_path, *four, *queues)), "fits-now")
    waits = of(checked(job, dump(tmp_path, *four[:3], *queues)), "fits-now")
    assert len(waits) == 1
    assert waits[0].message.startswith("would wait (")


def test_a_job_that_would_preempt_fits_now(tmp_path: Path) -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"low-{n}", "namespace": "lab", "uid": f"u{n}"}}
        | {"spec": {"nodeName": f"n{n}", "priority": 0, "containers": [EIGHT_GPUS]}, "status": {"phase": "Running"}}
        for n in range(2)
    ]
    cluster = dump(tmp_path, node("n0"), node("n1"), *pods)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "urgent", "namespace": "lab"}}
    template = {"spec": {"priority": 9, "restartPolicy": "Never", "containers": [EIGHT_GPUS]}}
    two, three = ({**job, "spec": {"parallelism": n, "completions": n, "template": template}} for n in (2, 3))
    assert not of(checked(yaml.safe_dump(two), cluster), "fits-now")
    found = of(checked(yaml.safe_dump(three), cluster), "fits-now")
    assert [finding.message for finding in found] == ["2 of 3 pods would start; the others would wait"]


EIGHT_GPUS = {"name": "c", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
IMAGE = {
    "names": ["docker.io/library/train@sha256:1", "registry.example/train:1"],
    "sizeBytes": 12_000_000_000,
}


def test_a_large_image_that_some_nodes_lack(tmp_path: Path) -> None:
    text = (MANIFESTS / "guide-two-gpus-plain.yaml").read_text().replace("train:2.1-cuda12.1", "train:1")
    here = dump(tmp_path, node("a", images=[IMAGE]), node("b"))
    found = of(checked(text, here), "image-pre-pulled")
    assert [finding.level for finding in found] == ["warning"]
    assert "12 GB" in found[0].message
    assert "such as b" in found[0].message
    both = dump(tmp_path, node("a", images=[IMAGE]), node("b", images=[IMAGE]))
    assert not of(checked(text, both), "image-pre-pulled")
    silent = dump(tmp_path, node("a"), node("b"))
    assert not of(checked(text, silent), "image-pre-pulled")


def test_a_job_on_machines_that_may_be_taken_back_can_be_tried_again() -> None:
    text = """
apiVersion: batch/v1
kind: Job
metadata: {name: cheap}
spec:
  backoffLimit: 0
  template:
    spec:
      nodeSelector: {karpenter.sh/capacity-type: spot}
      containers: [{name: c}]
"""
    assert [finding.line for finding in of(checked(text), "restartable-when-preemptible")] == [6]
    assert not of(checked(text.replace(": spot", ": on-demand")), "restartable-when-preemptible")


def test_a_size_that_is_no_text_is_a_finding_and_no_crash() -> None:
    size = "kueue.x-k8s.io/pod-group-total-count"
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": {size: value}},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        }
        for name, value in (("a", "2"), ("b", {"count": 2}))
    ]
    assert of(checked(yaml.safe_dump_all(pods)), "gang-complete")
