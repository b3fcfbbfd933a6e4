"""A cohort's quota on a real API server while many Jobs come at once: at no moment is more given away than it has."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU
from tests.live.test_live_queues import KUEUE, install_crds, job
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
NODES, QUOTA, JOBS = 40, {"red": 120, "green": 100, "blue": 100}, 120
WORKLOADS = f"{KUEUE}/workloads"


def cohort() -> list[Object]:
    version = "kueue.x-k8s.io/v1beta1"
    found: list[Object] = [{"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}]
    for name, quota in QUOTA.items():
        flavor = {"name": "any", "resources": [{"name": GPU, "nominalQuota": quota}]}
        groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
        spec = {"cohort": "all", "namespaceSelector": {}, "resourceGroups": groups}
        local = {"name": name, "namespace": "default"}
        found += [
            {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
            {"apiVersion": version, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}},
        ]
    return found


def queued(name: str, queue: str, size: int, gpus: int) -> Object:
    made = job(name, size, gpus)
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    return made


def reserved_by(workload: Object) -> int:
    admission = workload.get("status", {}).get("admission") or {}
    return sum(int(one["resourceUsage"][GPU]) for one in admission.get("podSetAssignments", ()))


class Reserved:
    """What is reserved, and the most that it ever was when somebody looked."""

    def __init__(self, api: Api) -> None:
        self._api, self.most = api, 0

    def now(self) -> int:
        found = sum(map(reserved_by, self._api.items(WORKLOADS)))
        self.most = max(self.most, found)
        return found


def test_many_jobs_at_once(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api, draw = cluster.api, random.Random(1)
    install_crds(api)
    api.create(*(node(f"n{i:02}", {GPU: "8"}) for i in range(NODES)), *cohort())
    jobs = [
        queued(f"j{i:03}", draw.choice([*QUOTA]), draw.randint(1, 4), draw.choice((1, 2, 4, 8))) for i in range(JOBS)
    ]
    seen = Reserved(api)
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        with ThreadPoolExecutor(8) as pool:
            creating = [pool.submit(api.create, each) for each in jobs]
            until(lambda: seen.now() >= 0 and all(each.done() for each in creating), 120)
        until(lambda: seen.now() >= 300, 60, f"the cohort fills up\n{one.last_lines(5)}")
        until(lambda: seen.now() >= 0 and len(api.items(WORKLOADS)) == JOBS, 60)
    assert seen.most <= sum(QUOTA.values())
