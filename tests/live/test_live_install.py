"""In and out of a real API server: the manifests apply, wrong queues are refused, nobody else is touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.live.replica import replica
from tests.live.scenes import GPU, bound, gang, pod, pods
from tests.live.test_live_queues import install_crds, job, queues
from tests.real_cluster.api import ApiError, Object, until
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

PROGRAM = str(Path(sys.executable).with_name("windlass"))
DEPLOYMENT = "/apis/apps/v1/namespaces/windlass-system/deployments/windlass-scheduler"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def windlass(control_plane: ControlPlane) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *arguments, f"--kubeconfig={control_plane.kubeconfig}"]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    return run


@pytest.fixture
def apply(control_plane: ControlPlane, binaries: Binaries) -> Callable[[str], str]:
    kubectl = [str(binaries.path("kubectl")), f"--kubeconfig={control_plane.kubeconfig}"]

    def send(text: str) -> str:
        command = [*kubectl, "apply", "--server-side", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return send


def test_install_upgrade_run_and_uninstall(
    control_plane: ControlPlane, windlass: Run, apply: Callable[[str], str], tmp_path: Path
) -> None:
    """Beside a running default scheduler and running pods, of which none is touched."""
    api = control_plane.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)))
    peer = control_plane.scheduler()
    peer.start()
    with FakeKubelet(api):
        try:
            api.create(pod("old", 1, "default-scheduler"))
            until(lambda: bound(api) == {"old": bound(api).get("old", "")})
            text = windlass("install").stdout
            printed = list(yaml.safe_load_all(text))
            applied = apply(text)
            assert all(f"{one['metadata']['name']} serverside-applied" in applied for one in printed)
            with replica(control_plane.kubeconfig, tmp_path / "one.log"):
                until(lambda: api.items("/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases"))
                api.create(*queues(8), job("queued", 1, 8), *gang("g", 2))
                until(lambda: len(bound(api)) == 4)
            before = {name: one["metadata"]["uid"] for name, one in pods(api).items()}
            apply(windlass("install", "--scheduler-name=windlass", "--replicas=3").stdout)
            assert api.get(DEPLOYMENT)["spec"]["replicas"] == 3
            said = windlass("uninstall").stderr
            assert "Deployment windlass-scheduler removed" in said
            assert "clusterqueues.kueue.x-k8s.io stays" in said
            assert not api.exists(DEPLOYMENT)
            for crd in ("topologies.kueue.x-k8s.io", "reservations.windlass.dev"):
                path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
                until(lambda path=path: not api.exists(path))
            assert api.items("/apis/kueue.x-k8s.io/v1beta2/clusterqueues")
            windlass("uninstall", "--crds")
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterqueues.kueue.x-k8s.io"
            until(lambda: not api.exists(path))
            rights = "/apis/rbac.authorization.k8s.io/v1/clusterroles/windlass-scheduler"
            assert not api.exists(rights)
            after = {name: one["metadata"]["uid"] for name, one in pods(api).items() if name in before}
            assert after == before, "no running pod is touched"
            assert len(bound(api)) == 4
        finally:
            peer.stop()


def test_kinds_of_another_release_are_left_alone(control_plane: ControlPlane, windlass: Run) -> None:
    api = control_plane.api
    text = windlass("install").stdout
    mine = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] == "cohorts.kueue.x-k8s.io"]
    mine[0]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    api.create(*mine)
    again = windlass("install")
    names = {one["metadata"]["name"] for one in yaml.safe_load_all(again.stdout)}
    assert "cohorts.kueue.x-k8s.io" not in names
    assert "workloads.kueue.x-k8s.io" in names
    assert "left out" in again.stderr
    windlass("uninstall", "--crds")
    assert api.exists("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cohorts.kueue.x-k8s.io")


def cluster_queue(**spec: object) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"queueingStrategy": "Random"}, "spec.queueingStrategy"),
        (
            {"resourceGroups": [{"coveredResources": [], "flavors": []}]},
            "spec.resourceGroups[0].coveredResources",
        ),
        (
            {
                "resourceGroups": [
                    {
                        "coveredResources": [GPU],
                        "flavors": [{"name": "a", "resources": [{"name": GPU, "nominalQuota": "many"}]}],
                    }
                ]
            },
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        ({"preemption": {"reclaimWithinCohort": "Always"}}, "spec.preemption.reclaimWithinCohort"),
    ],
)
def test_a_wrong_queue_is_refused_with_its_path(
    control_plane: ControlPlane, spec: dict[str, object], path: str
) -> None:
    install_crds(control_plane.api)
    with pytest.raises(ApiError) as refused:
        control_plane.api.create(cluster_queue(**spec))
    assert refused.value.code == 422
    assert path in str(refused.value)


def test_both_spellings_are_kept_in_both_versions(control_plane: ControlPlane) -> None:
    api = control_plane.api
    install_crds(api)
    api.create(cluster_queue(cohort="old", flavorFungibility={"whenCanBorrow": "Borrow"}, namespaceSelector={}))
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q"
    assert api.get(path)["spec"]["cohort"] == "old"
    api.patch(path, {"spec": {"cohortName": "new", "cohort": None}})
    assert api.get(path.replace("v1beta2", "v1beta1"))["spec"]["cohortName"] == "new"
