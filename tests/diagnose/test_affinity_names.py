"""Which pod stands in the way of a rule between pods, or is missing for one."""

from __future__ import annotations

from typing import Any

from tests.diagnose.objects import ask, node, pod

HERE = node("g1", 4)


def rule(kind: str, labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_a_pod_that_it_has_to_be_near_and_that_does_not_run() -> None:
    found = ask("pod/asked", HERE, pod("asked", 1, spec=rule("podAffinity", {"app": "cache"})))
    assert found.code == "POD_AFFINITY_CONFLICT"
    assert "with a pod that has app=cache, and no running pod has" in found.headline


def test_a_pod_that_it_may_not_be_beside_is_named() -> None:
    other = pod("web-1", 1, on="g1", labels={"app": "web"})
    found = ask("pod/asked", HERE, other, pod("asked", 1, spec=rule("podAntiAffinity", {"app": "web"})))
    assert found.code == "POD_AFFINITY_CONFLICT"
    assert "may not share its kubernetes.io/hostname with Pod team/web-1 of node g1 (app=web)" in found.headline


def test_the_rule_of_another_pod_is_not_called_its_own() -> None:
    other = pod("web-1", 1, on="g1", spec=rule("podAntiAffinity", {"app": "mine"}))
    found = ask("pod/asked", HERE, other, pod("asked", 1, labels={"app": "mine"}))
    assert found.code == "POD_AFFINITY_CONFLICT"
    assert "may not share" not in found.headline
