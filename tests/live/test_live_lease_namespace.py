"""The scheduler in a cluster that lacks the namespace of its lease: made where that is allowed, else one message."""

from __future__ import annotations

from pathlib import Path

from tests.live.replica import Replica, replica
from tests.live.rights import USER
from tests.live.scenes import GPU, bound, pod
from tests.real_cluster.api import until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

from windlass.cli.install_manifests import InstallOptions, manifests

NAMESPACE = "/api/v1/namespaces/windlass-system"


def test_whoever_may_create_namespaces_gets_it(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    assert not api.exists(NAMESPACE)
    api.create(node("n0", {GPU: "8"}), pod("p"))
    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log", "--lease-seconds=3") as one:
        until(lambda: bound(api, "p"), 60, one.last_lines)
    assert api.exists(NAMESPACE)


def test_whoever_may_not_is_told_and_stops(control_plane: ControlPlane, tmp_path: Path) -> None:
    """With the installed ClusterRole and no namespace, in which the Role would be."""
    api = control_plane.api
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    for one in manifests(InstallOptions()):
        if one["kind"] == "ClusterRole":
            api.create(one)
        elif one["kind"] == "ClusterRoleBinding":
            api.create({**one, "subjects": [subject]})
    running = Replica(control_plane.user(USER), tmp_path / "log", "--lease-seconds=3")
    assert running.process.wait(120) == 3, running.last_lines()
    last = running.last_lines(1)
    assert last.startswith("error: namespace windlass-system doesn't exist"), running.last_lines()
    assert "kubectl create namespace windlass-system" in last
