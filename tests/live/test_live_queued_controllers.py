"""Deployments, StatefulSets and KAI's queues on a real API server with real controllers: quota holds for all pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.owner_kinds import QUEUE, install_kinds_of_others, template
from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.live.test_live_queues import install_crds, queues
from tests.real_cluster.api import Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node


def controller(kind: str, name: str, replicas: int, labels: dict[str, str]) -> Object:
    made = template(1)
    made["metadata"] = {"labels": {"app": name}}
    made["spec"] = {**made["spec"], "restartPolicy": "Always"}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": made}
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
    }


def test_the_queues_name_on_the_owner_alone(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(node("n1", {GPU: "16"}), *queues(2))
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    kai = {"quota": 1, "limit": 1, "overQuotaWeight": 1}
    resources = {"gpu": kai, "cpu": free, "memory": free}
    api.create(
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"resources": resources},
        }
    )
    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect"):
        api.create(controller("Deployment", "web", 3, {QUEUE: "main"}))
        until(lambda: len(bound(api, "web")) == 2, 60, "as many as the quota")
        until(lambda: [one for one in pods(api, "web").values() if "quota" in str(condition(one))], 60, "one is told")
        api.create(controller("StatefulSet", "store", 2, {QUEUE: "main"}))
        api.create(*(pod(f"kai-{index}", 1, labels={"kai.scheduler/queue": "team"}) for index in range(2)))
        until(lambda: len(bound(api, "kai")) == 1, 60, "KAI's limit")
        api.create(pod("free", 1))
        until(lambda: bound(api, "free"), 60, "what is in no queue starts")
        assert (len(bound(api, "web")), len(bound(api, "store")), len(bound(api, "kai"))) == (2, 0, 1)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_size_that_changes(kind: str, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Each pod has quota of its own: a larger size waits for what is left, a smaller one gives it back."""
    api = control_plane.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(node("n1", {GPU: "16"}), *queues(4))

    def run(web: int, store: int) -> Callable[[], bool]:
        def look() -> bool:
            found = (len(bound(api, "web")), len(bound(api, "store")))
            assert sum(found) <= 4, "quota was lent twice"
            return found == (web, store)

        return look

    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        (web,) = api.create(controller(kind, "web", 2, {QUEUE: "main"}))
        until(run(2, 0), 60, one.last_lines())
        api.create(controller("Deployment", "store", 2, {QUEUE: "main"}))
        until(run(2, 2), 60, one.last_lines())
        api.patch(api.path_of(web), {"spec": {"replicas": 3}})
        until(lambda: [found for found in pods(api, "web").values() if "quota" in str(condition(found))], 60, "is told")
        assert run(2, 2)()
        api.patch(api.path_of(web), {"spec": {"replicas": 1}})
        until(run(1, 2), 60, one.last_lines())
        api.patch(api.path_of(web), {"spec": {"replicas": 2}})
        until(run(2, 2), 60, one.last_lines())
        api.delete(api.path_of(web), propagationPolicy="Background")
        until(run(0, 2), 60, one.last_lines())
