"""The cluster fixture itself: what other tests build on must hold."""

from __future__ import annotations

import pytest
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


def bind(api: Api, pod: str, target: str) -> None:
    api.post(
        f"/api/v1/namespaces/default/pods/{pod}/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": target},
        },
    )


def phase(api: Api, pod: str) -> str:
    return str(api.get(f"/api/v1/namespaces/default/pods/{pod}")["status"].get("phase"))


def test_the_server_says_its_version(control_plane: ControlPlane) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == control_plane.binaries.version


def test_a_bound_pod_runs_and_a_deleted_one_goes(cluster, kubelets) -> None:
    kubelets()
    cluster.api.create(node("n1"), POD)
    bind(cluster.api, "one", "n1")
    until(lambda: phase(cluster.api, "one") == "Running")
    cluster.api.delete("/api/v1/namespaces/default/pods/one")
    until(lambda: not cluster.api.exists("/api/v1/namespaces/default/pods/one"))


def test_a_kubelet_may_refuse(cluster, kubelets) -> None:
    kubelets(refuse=lambda pod: "OutOfcpu")
    cluster.api.create(node("n1"), POD)
    bind(cluster.api, "one", "n1")
    until(lambda: phase(cluster.api, "one") == "Failed")


def test_nodes_are_not_tainted_behind_the_tests_back(cluster) -> None:
    (made,) = cluster.api.create(node("n1"))
    assert "taints" not in made["spec"]


def test_each_test_starts_empty(control_plane: ControlPlane) -> None:
    api = control_plane.api
    api.create(node("n1"), POD, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
    control_plane.wipe()
    until(lambda: not api.items("/api/v1/nodes") and not api.items("/api/v1/pods"))
    until(lambda: not api.exists("/api/v1/namespaces/mine"))
    api.create(node("n1"), POD)


def test_what_a_test_broke_is_whole_again(control_plane: ControlPlane) -> None:
    control_plane.restart_apiserver("--watch-cache=false")
    control_plane.api.create(node("n1"))
    control_plane.apiserver.pause()
    control_plane.controllers.kill()
    control_plane.restore()
    assert control_plane.controllers.running
    assert not control_plane.apiserver.more
    assert not control_plane.api.items("/api/v1/nodes")


def test_controllers_work(cluster) -> None:
    template = {"spec": {**POD["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    cluster.api.create(job)
    until(lambda: cluster.api.items("/api/v1/namespaces/default/pods", labelSelector="job-name=j"))


def test_a_user_may_do_what_its_role_says_and_nothing_else(control_plane) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}],
    }
    control_plane.api.create(role, binding)
    jo = Api(control_plane.user("jo"))
    until(lambda: jo.healthy("/api/v1/nodes"))
    with pytest.raises(ApiError) as refused:
        jo.get("/api/v1/pods")
    assert refused.value.code == 403


def test_history_can_be_lost(control_plane: ControlPlane) -> None:
    api = control_plane.api
    old = api.get("/api/v1/nodes")["metadata"]["resourceVersion"]
    api.create(node("n1"), node("n2"))
    control_plane.apiserver.stop()
    control_plane.etcd.compact()
    control_plane.apiserver.start()
    (event,) = list(api.watch("/api/v1/nodes", 5, resourceVersion=old))[:1]
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


def test_the_default_scheduler_can_be_started(control_plane: ControlPlane) -> None:
    api = control_plane.api
    scheduler = control_plane.scheduler()
    scheduler.start()
    try:
        api.create(node("n1"), POD)
        until(lambda: api.get("/api/v1/namespaces/default/pods/one")["spec"].get("nodeName") == "n1")
    finally:
        scheduler.stop()
