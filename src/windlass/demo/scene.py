"""What the demo's steps look at, in words that a check can use; and the manifests that they share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from windlass.demo.api import Api

Tree = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
TOLERATE = "tolerations: [{key: nvidia.com/gpu, operator: Exists}]"
ENDED = ("Succeeded", "Failed")


def pods(api: Api, prefix: str = "") -> dict[str, Tree]:
    """Those that have not ended, by name."""
    return {
        each["metadata"]["name"]: each
        for each in api.items(PODS)
        if each["metadata"]["name"].startswith(prefix) and each["status"].get("phase") not in ENDED
    }


def running(api: Api, prefix: str = "") -> dict[str, str]:
    """Pod → node of those that run."""
    return {
        name: each["spec"]["nodeName"]
        for name, each in pods(api, prefix).items()
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def said(api: Api, name: str) -> str:
    """Why the pod waits, as its condition has it."""
    for each in (pods(api).get(name, {}).get("status") or {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each.get("message", ""))
    return ""


def told(api: Api, name: str) -> str:
    """Why a queued job waits, as its Workload says."""
    for condition in (_workload(api, name).get("status") or {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition.get("message") or "")
    return ""


def workload_of(api: Api, job_name: str) -> str:
    """The name of the Workload that stands for a queued job."""
    return str(_workload(api, job_name)["metadata"]["name"])


def queued_at(api: Api, job_name: str) -> float:
    """Since when a queued job waits, in seconds since 1970."""
    made = _workload(api, job_name)["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(made).timestamp()


def _workload(api: Api, job_name: str) -> Tree:
    for each in api.items(f"{QUEUES}/namespaces/default/workloads"):
        if each["metadata"].get("ownerReferences", [{}])[0].get("name") == job_name:
            return each
    return {}


def is_suspended(api: Api, job: str) -> bool:
    return bool((api.get(f"{JOBS}/{job}").get("spec") or {}).get("suspend"))


def racks(api: Api) -> dict[str, str]:
    """Node → rack."""
    nodes = api.items("/api/v1/nodes")
    return {
        each["metadata"]["name"]: each["metadata"]["labels"].get("windlass.dev/rack", "") for each in nodes
    }


def devices(pod: Tree) -> list[int]:
    notes = pod["metadata"].get("annotations") or {}
    text = notes.get("windlass.dev/allocated-devices") or notes.get("windlass.dev/devices") or ""
    return [int(part) for part in text.split(",") if part.strip().isdigit()]


def job(
    name: str, pods_at_once: int, gpus: int, *, queue: str = "", runs: str = "forever", **more: str
) -> str:
    """A Job's manifest. `more`: `limit` (declared run time), `priority` (class), `topology` (required domain)."""
    labels = f"{{story: demo{f', kueue.x-k8s.io/queue-name: {queue}' if queue else ''}}}"
    notes = [f"sandbox.windlass.dev/duration: {runs}"]
    if more.get("topology"):
        notes.append(f"kueue.x-k8s.io/podset-required-topology: {more['topology']}")
    limit = f"\n  annotations: {{windlass.dev/duration: {more['limit']}}}" if more.get("limit") else ""
    spec = [TOLERATE]
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
  parallelism: {pods_at_once}
  completions: {pods_at_once}{
        '''
  suspend: true'''
        if queue
        else ""
    }
  template:
    metadata:
      labels: {{story: demo}}
      annotations: {{{", ".join(notes)}}}
    spec:
      restartPolicy: Never
      {lines}
      containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""


def queue(name: str, quota: int, cohort: str = "", preemption: str = "") -> str:
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


FLAVOR = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any, labels: {story: demo}}
spec: {}
"""

RACKS = """\
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
