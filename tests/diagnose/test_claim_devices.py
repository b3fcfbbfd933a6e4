"""Claims that find no device: too many at once, an attribute that none has, devices that their driver has tainted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import ask, node, pod, thing

from windlass.model.unstructured import Unstructured

VERSION = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
PRODUCT = 'device.attributes["gpu.example.com"].productName == "{}"'


def published(on: str, count: int, product: str = "L40S", **more: Any) -> Unstructured:
    devices = [
        {"name": f"gpu-{place}", "attributes": {"productName": {"string": product}}, **more} for place in range(count)
    ]
    return thing("ResourceSlice", f"slice-{on}", {"driver": DRIVER, "pool": {"name": on}, "devices": devices}, VERSION)


def waiting(count: int = 1, expression: str = "", **more: Any) -> list[Unstructured]:
    request: Unstructured = {"deviceClassName": DRIVER, "count": count, **more}
    if expression:
        request["selectors"] = [{"cel": {"expression": expression}}]
    claim = thing("ResourceClaim", "mine", {"devices": {"requests": [{"name": "r", "exactly": request}]}}, VERSION)
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    asked = pod("asked", spec={"resourceClaims": [{"name": "r", "resourceClaimName": "mine"}]})
    return [thing("DeviceClass", DRIVER, {"selectors": selectors}, VERSION), claim, asked]


def taken(on: str, *names: str) -> Unstructured:
    results = [{"driver": DRIVER, "pool": on, "device": name} for name in names]
    status = {"allocation": {"devices": {"results": results}}}
    return thing("ResourceClaim", f"taken-{on}", {}, VERSION, status=status)


def test_more_devices_than_any_node_has() -> None:
    found = ask("pod/asked", node("g1"), node("g2"), published("g1", 2), published("g2", 3), *waiting(4))
    assert (found.code, found.confidence) == ("REQUEST_EXCEEDS_CLUSTER", "high")
    assert "asks for 4 devices of gpu.example.com at once, and no node has more than 3" in found.headline


def test_an_attribute_that_no_device_has() -> None:
    found = ask("pod/asked", node("g1"), published("g1", 2), *waiting(1, PRODUCT.format("H100")))
    assert found.code == "DRA_CLAIM_INVALID"
    assert "whose productName is H100; the published ones have L40S" in found.headline


@pytest.mark.parametrize(
    "expression",
    [
        PRODUCT.format("L40S"),
        f"{PRODUCT.format('H100')} || {PRODUCT.format('L40S')}",
        'device.attributes["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    ],
)
def test_what_is_not_sure_to_fail_excludes_no_device(expression: str) -> None:
    found = ask("pod/asked", node("g1"), published("g1", 2), *waiting(1, expression))
    assert found.code not in ("DRA_CLAIM_INVALID", "REQUEST_EXCEEDS_CLUSTER", "GPU_FULL")


TAINT = {"taints": [{"key": "example.com/xid", "value": "79", "effect": "NoExecute"}]}


def test_a_tainted_device_is_named_where_the_others_are_taken() -> None:
    parts = (published("g1", 1), published("g2", 1, **TAINT), taken("g1", "gpu-0"))
    found = ask("pod/asked", node("g1"), node("g2"), *parts, *waiting(1))
    assert found.code == "DEVICE_UNHEALTHY"
    assert "gpu-0 of pool g2 (example.com/xid=79)" in found.headline


def test_a_taint_that_is_tolerated_is_no_cause() -> None:
    tolerates = [{"operator": "Exists"}]
    parts = (published("g2", 1, **TAINT), *waiting(1, tolerations=tolerates))
    assert ask("pod/asked", node("g2"), *parts).code != "DEVICE_UNHEALTHY"


def test_free_devices_of_several_nodes_are_not_enough_for_one_pod() -> None:
    parts = (published("g1", 2), published("g2", 2), taken("g1", "gpu-0"), taken("g2", "gpu-1"))
    found = ask("pod/asked", node("g1"), node("g2"), *parts, *waiting(2))
    assert found.code == "GPU_FRAGMENTED"


def test_a_device_that_several_claims_may_have_is_never_taken() -> None:
    parts = (published("g1", 1, allowMultipleAllocations=True), taken("g1", "gpu-0"))
    assert ask("pod/asked", node("g1"), *parts, *waiting(1)).code != "GPU_FULL"


# Whose kubelet plugin a DaemonSet is


def driver(name: str, log: str) -> tuple[list[Unstructured], dict[str, str]]:
    crash = {"name": "main", "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    template = {"template": {"spec": {"containers": [{"name": "main", "image": "registry/x:1"}]}}}
    daemon = thing("DaemonSet", name, template, namespace="dra")
    status = {"containerStatuses": [crash]}
    return [daemon, pod(f"{name}-1", on="g1", namespace="dra", owner=("DaemonSet", name), status=status)], {
        f"dra/{name}-1": log
    }


def test_a_driver_is_known_by_what_its_log_calls_it() -> None:
    parts, logs = driver("agent", f'"Starting" driver="{DRIVER}"\nfailed to run: context deadline exceeded')
    found = ask("pod/asked", node("g1"), *parts, *waiting(1), logs=logs)
    assert found.code == "DEVICE_PLUGIN_FAILING"
    assert "DaemonSet dra/agent, which publishes the devices of gpu.example.com" in found.headline


def test_another_daemon_that_crashes_is_not_its_driver() -> None:
    parts, logs = driver("agent", "failed to run: context deadline exceeded")
    assert ask("pod/asked", node("g1"), *parts, *waiting(1), logs=logs).code == "UNKNOWN"


# What keeps the pod off its devices' nodes, whatever its claims get


def test_the_taint_of_the_node_that_has_the_devices() -> None:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    others = node("cp", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])
    found = ask("pod/asked", others, node("g1", taints=taints), published("g1", 1), *waiting(1))
    assert found.code == "TAINT_NOT_TOLERATED"
    assert "team=a:NoSchedule" in found.headline
    assert "g1" in found.headline


def test_the_memory_of_the_node_that_has_the_devices() -> None:
    asked = pod(
        "asked",
        cpu="64",
        spec={"resourceClaims": [{"name": "r", "resourceClaimName": "mine"}]},
    )
    *objects, _ = waiting(1)
    found = ask("pod/asked", node("m1", cpu="128"), node("g1", cpu="32"), published("g1", 1), *objects, asked)
    assert found.code == "CPU_MEM_INSUFFICIENT"
    assert "g1" in found.headline


def test_where_the_node_would_take_it_nothing_is_known() -> None:
    assert ask("pod/asked", node("g1"), published("g1", 1), *waiting(1)).code == "UNKNOWN"
