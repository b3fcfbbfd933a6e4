"""What the API server refuses teaches the scheduler: it takes another victim or another node, at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.replica import replica
from tests.live.scenes import GPU, PODS, bound, condition, pod
from tests.live.test_live_preemption import priority_class
from tests.real_cluster.api import Api, ApiError, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
VERSION = "admissionregistration.k8s.io/v1"
BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"


def budget(**spec: object) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": selector, **spec},
    }


def set_up_victims(api: Api) -> None:
    """Two that would do; by priority `kept` goes first."""
    api.create(priority_class("lowest", 5), priority_class("low", 10), priority_class("high", 1000))
    api.create(node("n0", {GPU: "8"}), node("n1", {GPU: "8"}))
    api.create(pod("kept", 8, priorityClassName="lowest", labels={"app": "web"}))
    api.create(pod("other", 8, priorityClassName="low"))
    until(lambda: len(bound(api)) == 2 and all(map(is_running, (api.get(f"{PODS}/{one}") for one in bound(api)))))


def is_running(one: Object) -> bool:
    return one["status"].get("phase") == "Running"


def set_ready(api: Api, name: str, status: str) -> None:
    conditions = [{"type": "Ready", "status": status}]
    api.patch(f"{PODS}/{name}/status", {"status": {"conditions": conditions}}, "strategic")


@pytest.mark.parametrize("policy", ["IfHealthyBudget", "AlwaysAllow"])
def test_a_budget_over_a_pod_that_is_not_ready(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path, policy: str
) -> None:
    kubelets()
    api = cluster.api
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        set_up_victims(api)
        set_ready(api, "kept", "False")
        api.create(budget(unhealthyPodEvictionPolicy=policy))
        until(lambda: api.get(BUDGET).get("status", {}).get("observedGeneration") == 1, 60)
        api.create(pod("urgent", 8, priorityClassName="high"))
        until(lambda: bound(api, "urgent"), 20, f"it takes the place of another\n{one.last_lines()}")
        stays = "kept" if policy == "IfHealthyBudget" else "other"
        assert set(bound(api)) == {"urgent", stays}


def deny(api: Api, resource: str, expression: str, probe: Callable[[], bool]) -> None:
    """Refuses what makes the expression false; returns when that is so."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    use = {"policyName": "no", "validationActions": ["Deny"]}
    kind, meta = "ValidatingAdmissionPolicy", {"name": "no"}
    api.create(
        {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": {**spec, "failurePolicy": "Fail"}},
        {"apiVersion": VERSION, "kind": f"{kind}Binding", "metadata": meta, "spec": use},
    )
    until(probe, 60, "the policy is in force")


def is_refused(api: Api, path: str, body: Object) -> bool:
    try:
        api.post(f"{path}?dryRun=All", body)
    except ApiError as error:
        return error.code == 422
    return False


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return control_plane.api


def test_an_eviction_that_a_policy_forbids(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    with (
        FakeKubelet(api),
        replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one,
    ):
        set_up_victims(api)
        question = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "kept"}}
        deny(
            api,
            "pods/eviction",
            "object.metadata.name != 'kept'",
            lambda: is_refused(api, f"{PODS}/kept/eviction", question),
        )
        api.create(pod("urgent", 8, priorityClassName="high"))
        until(lambda: bound(api, "urgent"), 20, f"it takes the place of the other\n{one.last_lines()}")
        assert set(bound(api)) == {"urgent", "kept"}
        assert one.metrics()['windlass_refusals_total{kind="eviction"}'] == 1


def test_a_bind_that_a_policy_forbids(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    api.create(node("n0", {GPU: "8"}), node("n1", {GPU: "8"}), pod("probe", 0, "nobody"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}, "target": target}
    deny(
        api,
        "pods/binding",
        "object.target.name != 'n0'",
        lambda: is_refused(api, f"{PODS}/probe/binding", binding),
    )
    with (
        FakeKubelet(api),
        replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one,
    ):
        api.create(*(pod(f"p{i}", 8) for i in range(2)))
        until(lambda: list(bound(api, "p").values()) == ["n1"], 30, one.last_lines)
        (waits,) = {"p0", "p1"} - set(bound(api))

        def message() -> str:
            return str(condition(api.get(f"{PODS}/{waits}")).get("message", ""))

        until(lambda: "binding it to n0 was refused" in message(), 60, one.last_lines)
