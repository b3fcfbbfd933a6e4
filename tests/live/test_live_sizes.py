"""Jobs whose size, flavor and template change, on a real API server: its rules for what may change when hold here."""

from __future__ import annotations

import copy
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, pods
from tests.live.test_live_queues import KUEUE, Kubelets, install_crds, job, queues, workload
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import node
from tests.real_cluster.fixtures import Cluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
TAINT = {"key": "example.com/spot", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "example.com/spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def ground() -> list[Object]:
    """A tainted node of eight GPUs, whose flavor tolerates the taint."""
    spot = node("n0", {GPU: "8"}, labels={"pool": "spot"})
    spot["spec"] = {**spot.get("spec", {}), "taints": [TAINT]}
    flavor, *others = queues(8)
    flavor["spec"] = {"nodeLabels": {"pool": "spot"}, "tolerations": [TOLERATION], "nodeTaints": [TAINT]}
    return [spot, flavor, *others]


def spec_of(api: Api, name: str) -> Object:
    """Without what the Job controller writes."""
    spec = copy.deepcopy(api.get(f"{JOBS}/{name}")["spec"])
    return {**spec, "suspend": None}


def admitted(api: Api, name: str) -> int:
    found = workload(api, name)
    parts = ((found.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    gone = sum(part["count"] for part in (found.get("status") or {}).get("reclaimablePods") or ())
    return sum(min(part["count"], found["spec"]["podSets"][0]["count"] - gone) for part in parts)


def activate(api: Api, name: str, active: bool) -> None:
    path = f"{KUEUE}/namespaces/default/workloads/{workload(api, name)['metadata']['name']}"
    api.patch(path, {"spec": {"active": active}})


def test_a_template_is_changed_by_admission_and_restored(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(*ground())
    partial = job("train", 12, 1)
    partial["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    api.create(partial)
    written = spec_of(api, "train")
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: len(bound(api, "train")) == 8, 60, one.last_lines)
        running = spec_of(api, "train")
        assert (running["parallelism"], running["completions"]) == (8, 12)
        template = running["template"]["spec"]
        assert (template["nodeSelector"], template["tolerations"]) == ({"pool": "spot"}, [TOLERATION])
        activate(api, "train", False)
        until(lambda: spec_of(api, "train") == written, 60, f"restored\n{one.last_lines()}")
        assert api.get(f"{JOBS}/train")["metadata"].get("annotations") == partial["metadata"]["annotations"]
        activate(api, "train", True)
        until(lambda: len(bound(api, "train")) == 8, 60, f"started again\n{one.last_lines()}")


def test_jobs_change_their_size(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(*ground())
    elastic, plain = job("elastic", 2, 1), job("plain", 4, 1)
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    for tree in (elastic, plain):
        del tree["spec"]["completions"]
    api.create(elastic, plain)
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: (len(bound(api, "elastic")), len(bound(api, "plain"))) == (2, 4), 60, one.last_lines)
        first = set(bound(api, "elastic"))
        api.patch(f"{JOBS}/elastic", {"spec": {"parallelism": 5}})
        until(lambda: len(bound(api, "elastic")) == 4, 60, f"all that there is quota for\n{one.last_lines()}")
        assert admitted(api, "elastic") == 4
        assert first < set(bound(api, "elastic"))
        api.patch(f"{JOBS}/plain", {"spec": {"parallelism": 1}})
        until(lambda: (admitted(api, "plain"), len(bound(api, "elastic"))) == (1, 5), 60, one.last_lines)
        before = {pod["metadata"]["uid"] for pod in pods(api, "plain").values()}
        api.patch(f"{JOBS}/plain", {"spec": {"parallelism": 3}})
        until(lambda: (admitted(api, "plain"), len(bound(api, "plain"))) == (3, 3), 60, one.last_lines)
        assert not before & {pod["metadata"]["uid"] for pod in pods(api, "plain").values()}


def test_a_job_created_unsuspended_runs_with_what_was_admitted(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(*ground())
    partial = job("train", 12, 1)
    partial["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    partial["spec"]["suspend"] = False
    partial["spec"]["template"]["spec"]["tolerations"] = [TOLERATION]
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(partial)
        until(lambda: len(bound(api, "train")) == 8, 60, one.last_lines())
        until(lambda: spec_of(api, "train")["parallelism"] == len(pods(api, "train")) == 8, 60, one.last_lines())
        assert admitted(api, "train") == 8
