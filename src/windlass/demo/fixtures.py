"""Lookups that the demo's checks use, and the manifests that its steps share."""

from __future__ import annotations

from datetime import datetime

from windlass.demo.api import ApiClient
from windlass.model.digits import is_digits
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION, RACK_LABEL
from windlass.model.unstructured import Unstructured

PODS_PATH = "/api/v1/namespaces/default/pods"
JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"
KUEUE_PATH = "/apis/kueue.x-k8s.io/v1beta2"
TOLERATION = "tolerations: [{key: nvidia.com/gpu, operator: Exists}]"
ENDED = ("Succeeded", "Failed")


def active_pods(api: ApiClient, prefix: str = "") -> dict[str, Unstructured]:
    """Those that have not ended, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in api.items(PODS_PATH)
        if pod["metadata"]["name"].startswith(prefix) and pod["status"].get("phase") not in ENDED
    }


def running_pods(api: ApiClient, prefix: str = "") -> dict[str, str]:
    """Pod → node of those that run."""
    return {
        name: pod["spec"]["nodeName"]
        for name, pod in active_pods(api, prefix).items()
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def pod_wait_message(api: ApiClient, name: str) -> str:
    """Why the pod waits, as its condition has it."""
    for condition in (active_pods(api).get(name, {}).get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def job_wait_message(api: ApiClient, name: str) -> str:
    """Why a queued job waits, as its Workload says."""
    for condition in (_workload(api, name).get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition.get("message") or "")
    return ""


def workload_of(api: ApiClient, job_name: str) -> str:
    """The name of the Workload that stands for a queued job."""
    return str(_workload(api, job_name)["metadata"]["name"])


def queued_at(api: ApiClient, job_name: str) -> float:
    """Since when a queued job waits, in seconds since 1970."""
    created = _workload(api, job_name)["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(created).timestamp()


def _workload(api: ApiClient, job_name: str) -> Unstructured:
    for workload in api.items(f"{KUEUE_PATH}/namespaces/default/workloads"):
        if workload["metadata"].get("ownerReferences", [{}])[0].get("name") == job_name:
            return workload
    return {}


def is_suspended(api: ApiClient, job: str) -> bool:
    return bool((api.get(f"{JOBS_PATH}/{job}").get("spec") or {}).get("suspend"))


def node_racks(api: ApiClient) -> dict[str, str]:
    """Node → rack."""
    nodes = api.items("/api/v1/nodes")
    return {node["metadata"]["name"]: node["metadata"]["labels"].get(RACK_LABEL, "") for node in nodes}


def allocated_devices(pod: Unstructured) -> list[int]:
    notes = pod["metadata"].get("annotations") or {}
    text = notes.get(ALLOCATED_DEVICES_ANNOTATION) or notes.get(DEVICES_ANNOTATION) or ""
    return [int(part) for part in text.split(",") if is_digits(part.strip())]


def job_manifest(
    name: str, parallelism: int, gpus: int, *, queue: str = "", duration: str = "forever", **more: str
) -> str:
    """A Job's manifest. `more`: `limit` (declared run time), `priority` (class), `topology` (required domain)."""
    labels = f"{{story: demo{f', kueue.x-k8s.io/queue-name: {queue}' if queue else ''}}}"
    notes = [f"sandbox.windlass.dev/duration: {duration}"]
    if more.get("topology"):
        notes.append(f"kueue.x-k8s.io/podset-required-topology: {more['topology']}")
    suspend = "\n  suspend: true" if queue else ""
    limit = f"\n  annotations: {{windlass.dev/duration: {more['limit']}}}" if more.get("limit") else ""
    spec = [TOLERATION]
    if more.get("priority"):
        spec.append(f"priorityClassName: {more['priority']}")
    lines = "\n      ".join(spec)
    return f"""\
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {labels}{limit}
spec:
  parallelism: {parallelism}
  completions: {parallelism}{suspend}
  template:
    metadata:
      labels: {{story: demo}}
      annotations: {{{", ".join(notes)}}}
    spec:
      restartPolicy: Never
      {lines}
      containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""


def queue_manifest(name: str, quota: int, cohort: str = "", preemption: str = "") -> str:
    """A ClusterQueue with one flavor, and the LocalQueue of the same name that leads to it."""
    group = f"\n  cohort: {cohort}" if cohort else ""
    rules = f"\n  preemption: {{{preemption}}}" if preemption else ""
    return f"""\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: {name}, labels: {{story: demo}}}}
spec:
  namespaceSelector: {{}}{group}{rules}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{{name: any, resources: [{{name: nvidia.com/gpu, nominalQuota: {quota}}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: {name}, namespace: default, labels: {{story: demo}}}}
spec: {{clusterQueue: {name}}}
"""


FLAVOR_MANIFEST = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any, labels: {story: demo}}
spec: {}
"""

RACK_TOPOLOGY_MANIFEST = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: racks, labels: {story: demo}}
spec: {levels: [{nodeLabel: windlass.dev/rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any, labels: {story: demo}}
spec: {topologyName: racks, nodeLabels: {nvidia.com/gpu.present: "true"}}
"""
