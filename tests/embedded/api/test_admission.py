"""Quotas, limit ranges and the rest of admission: what is refused, what is counted, and the messages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.api.desk import Desk, refusal
from tests.embedded.api.samples import container, made, pod

from windlass.embedded.api import resource_quota
from windlass.model.unstructured import Unstructured


def _gpu(name: str, count: int, **spec: Any) -> Unstructured:
    return pod(name, containers=[container(resources={"limits": {"nvidia.com/gpu": count}})], **spec)


def _quota(hard: Unstructured, **spec: Any) -> Unstructured:
    return made("v1", "ResourceQuota", "q", spec={"hard": hard, **spec})


def _used(desk: Desk) -> Unstructured:
    used: Unstructured = desk.objects["resourcequotas", "default", "q"]["status"]["used"]
    return used


def test_gpus_beyond_the_quota_are_refused() -> None:
    desk = Desk()
    desk.create(_quota({"requests.nvidia.com/gpu": "8"}))
    desk.create(_gpu("a", 7))
    assert _used(desk) == {"requests.nvidia.com/gpu": "7"}
    assert refusal(lambda: desk.create(_gpu("b", 2))) == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=2, '
        "used: requests.nvidia.com/gpu=7, limited: requests.nvidia.com/gpu=8"
    )
    assert _used(desk) == {"requests.nvidia.com/gpu": "7"}
    desk.create(_gpu("c", 1))
    assert _used(desk) == {"requests.nvidia.com/gpu": "8"}


def test_several_limits_are_named_together() -> None:
    desk = Desk()
    desk.create(_quota({"pods": "0", "requests.nvidia.com/gpu": "1"}))
    assert refusal(lambda: desk.create(_gpu("b", 2))) == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1,requests.nvidia.com/gpu=2, '
        "used: pods=0,requests.nvidia.com/gpu=0, limited: pods=0,requests.nvidia.com/gpu=1"
    )


def test_cpu_and_memory_must_be_specified() -> None:
    desk = Desk()
    desk.create(_quota({"limits.cpu": "4", "requests.memory": "1Gi"}))
    assert refusal(lambda: desk.create(pod("b"))) == (
        'pods "b" is forbidden: failed quota: q: must specify limits.cpu for: main; requests.memory for: main'
    )
    fitting = container(resources={"limits": {"cpu": "500m", "memory": "512Mi"}})
    desk.create(pod("c", containers=[fitting]))
    assert _used(desk) == {"limits.cpu": "500m", "requests.memory": "512Mi"}


def test_finished_pods_use_nothing() -> None:
    desk = Desk()
    desk.create(_quota({"pods": "9", "count/pods": "9", "requests.nvidia.com/gpu": "9"}))
    done = desk.create(_gpu("a", 2))
    done["status"]["phase"] = "Succeeded"
    desk.objects["pods", "default", "a"] = done
    stored = desk.objects["resourcequotas", "default", "q"]
    assert resource_quota.usage(stored, desk) == {
        "pods": "0",
        "count/pods": "1",
        "requests.nvidia.com/gpu": "0",
    }


def test_init_containers_count_by_the_largest() -> None:
    desk = Desk()
    desk.create(_quota({"requests.cpu": "9"}))
    asks = [container(str(n), resources={"requests": {"cpu": n}}) for n in (3, 5)]
    desk.create(pod("a", containers=[container(resources={"requests": {"cpu": "1500m"}})], initContainers=asks))
    assert _used(desk) == {"requests.cpu": "5"}


def test_objects_are_counted() -> None:
    desk = Desk()
    desk.create(_quota({"configmaps": "1", "count/jobs.batch": "0"}))
    desk.create(made("v1", "ConfigMap", "a"))
    assert "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1" in refusal(
        lambda: desk.create(made("v1", "ConfigMap", "b"))
    )
    job = made("batch/v1", "Job", "j", spec={"template": {"spec": {**pod()["spec"], "restartPolicy": "Never"}}})
    assert 'jobs.batch "j" is forbidden: exceeded quota' in refusal(lambda: desk.create(job))


def _classes(operator: str) -> Unstructured:
    term = {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}
    return {"scopeSelector": {"matchExpressions": [term]}}


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        (_classes("In"), True),
        (_classes("NotIn"), False),
    ],
)
def test_scopes(spec: Unstructured, counts: bool) -> None:
    desk = Desk()
    desk.create(made("scheduling.k8s.io/v1", "PriorityClass", "high", value=5))
    desk.create(_quota({"pods": "5"}, **spec))
    desk.create(pod("a", containers=[container(resources={"requests": {"cpu": "1"}})], priorityClassName="high"))
    stored = desk.objects["resourcequotas", "default", "q"]
    assert resource_quota.usage(stored, desk) == {"pods": "1" if counts else "0"}


def test_an_update_is_charged_for_the_difference() -> None:
    desk = Desk()
    desk.create(_quota({"requests.storage": "3Gi"}))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    small = desk.create(made("v1", "PersistentVolumeClaim", "c", spec=spec))
    large = {**small, "spec": {**spec, "resources": {"requests": {"storage": "2Gi"}}}}
    kind = desk.kind_of(small)
    (changed,) = resource_quota.charge(kind, large, small, desk)
    assert changed["status"]["used"] == {"requests.storage": "2Gi"}


# ---- limit ranges


def _range(**item: Any) -> Unstructured:
    return made("v1", "LimitRange", "l", spec={"limits": [{"type": "Container", **item}]})


def test_limit_ranges_fill_in_what_is_missing() -> None:
    desk = Desk()
    desk.create(_range(default={"cpu": "500m"}, defaultRequest={"cpu": "100m"}))
    resources = desk.create(pod("a"))["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}


def test_limit_ranges_refuse_what_is_outside() -> None:
    desk = Desk()
    desk.create(_range(max={"cpu": "1"}, min={"cpu": "100m"}))
    much = pod("a", containers=[container(resources={"limits": {"cpu": "2"}})])
    little = pod("b", containers=[container(resources={"requests": {"cpu": "50m"}})])
    head = 'pods "{}" is forbidden: '
    assert (
        refusal(lambda: desk.create(much)) == head.format("a") + "maximum cpu usage per Container is 1, but limit is 2"
    )
    assert refusal(lambda: desk.create(little)) == head.format("b") + (
        "minimum cpu usage per Container is 100m, but request is 50m"
    )


# ---- priority, accounts, runtime classes


def test_priority_is_resolved() -> None:
    desk = Desk()
    assert refusal(lambda: desk.create(pod("a", priorityClassName="x"))) == (
        'pods "a" is forbidden: no PriorityClass with name x was found'
    )
    desk.create(made("scheduling.k8s.io/v1", "PriorityClass", "x", value=7, preemptionPolicy="Never"))
    desk.create(made("scheduling.k8s.io/v1", "PriorityClass", "usual", value=3, globalDefault=True))
    chosen, usual = desk.create(pod("a", priorityClassName="x"))["spec"], desk.create(pod("b"))["spec"]
    assert (chosen["priority"], chosen["preemptionPolicy"]) == (7, "Never")
    assert (usual["priority"], usual["priorityClassName"]) == (3, "usual")
    other = made("scheduling.k8s.io/v1", "PriorityClass", "other", value=4, globalDefault=True)
    assert "PriorityClass usual is already marked as default" in refusal(lambda: desk.create(other))


def test_system_classes_are_always_there() -> None:
    assert Desk().create(pod("a", priorityClassName="system-node-critical"))["spec"]["priority"] == 2000001000


def test_pods_tolerate_a_silent_node_for_five_minutes() -> None:
    tolerations = Desk().create(pod("a"))["spec"]["tolerations"]
    assert {toleration["key"]: toleration["tolerationSeconds"] for toleration in tolerations} == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }
    everything = [{"operator": "Exists"}]
    assert Desk().create(pod("a", tolerations=everything))["spec"]["tolerations"] == everything


def test_accounts_and_runtime_classes_must_exist() -> None:
    desk = Desk()
    assert 'serviceaccount "robot" not found' in refusal(lambda: desk.create(pod("a", serviceAccountName="robot")))
    assert 'pod rejected: RuntimeClass "nvidia" not found' in refusal(
        lambda: desk.create(pod("a", runtimeClassName="nvidia"))
    )
    scheduling = {"nodeSelector": {"gpu": "yes"}}
    desk.create(made("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia", scheduling=scheduling))
    spec = desk.create(pod("a", runtimeClassName="nvidia"))["spec"]
    assert spec["nodeSelector"] == {"gpu": "yes"}
    assert spec["serviceAccountName"] == "default"
