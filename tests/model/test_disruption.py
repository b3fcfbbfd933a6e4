"""PodDisruptionBudgets, counted as the disruption controller counts them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.model.codec import decode_object
from windlass.model.disruption import Budgets, DisruptionTracker, PodDisruptionBudget, disruptions_allowed
from windlass.model.pod import Pod
from windlass.model.workload import PodSet, Workload


def budget(name: str = "b", status: dict[str, Any] | None = None, **spec: Any) -> PodDisruptionBudget:
    selector = spec.pop("selector", {"matchLabels": {"app": "web"}})
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"selector": selector, **spec},
        "status": status or {},
    }
    made = decode_object(tree)
    assert isinstance(made, PodDisruptionBudget)
    return made


def pod(name: str, *, bound: bool = True, space: str = "team", leaving: bool = False, app: str = "web") -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": space, "labels": {"app": app}}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "n" if bound else ""}}
    made = decode_object(tree)
    assert isinstance(made, Pod)
    return made


def pods(count: int) -> list[Pod]:
    return [pod(f"p{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("spec", "there", "allowed"),
    [
        ({"minAvailable": 2}, 3, 1),
        ({"minAvailable": 5}, 3, 0),
        ({"minAvailable": "50%"}, 3, 1),  # two of three have to stay: shares of a pod are rounded up
        ({"minAvailable": "100%"}, 3, 0),
        ({"minAvailable": 0}, 3, 3),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": "50%"}, 3, 2),
        ({"maxUnavailable": 0}, 3, 0),
        ({"maxUnavailable": "10%"}, 3, 1),
        ({}, 3, 0),
    ],
)
def test_what_is_allowed_is_counted_from_the_pods(spec: dict[str, Any], there: int, allowed: int) -> None:
    assert disruptions_allowed(budget(**spec), pods(there)) == allowed


def test_the_status_knows_better() -> None:
    one = budget(minAvailable=1, status={"disruptionsAllowed": 0})
    assert disruptions_allowed(one, pods(5)) == 0


def test_who_waits_or_is_going_is_not_available() -> None:
    there = [*pods(2), pod("waits", bound=False), pod("going", leaving=True)]
    assert disruptions_allowed(budget(maxUnavailable=2), there) == 0
    assert disruptions_allowed(budget(minAvailable=1), there) == 1


def test_other_namespaces_and_other_labels_are_none_of_its_business() -> None:
    there = [*pods(2), pod("far", space="other"), pod("different", app="db")]
    assert disruptions_allowed(budget(minAvailable=1), there) == 1
    assert Budgets([budget(minAvailable=1)], there).count_by_budget(["other/far", "team/different"]) == {}


def test_a_budget_without_a_selector_covers_nothing_and_an_empty_one_everything() -> None:
    there = [*pods(1), pod("different", app="db")]
    assert Budgets([budget(selector=None, minAvailable=1)], there).count_by_budget(["team/p0"]) == {}
    found = Budgets([budget(selector={}, minAvailable=1)], there).count_by_budget(["team/p0", "team/different"])
    assert found == {0: 2}


def workload(*names: str) -> Workload:
    keys = tuple(f"team/{name}" for name in names)
    return Workload("team/w", "Job", (PodSet("main", len(keys), pod("template"), pod_keys=keys),))


def test_every_budget_of_a_pod_has_to_allow_that_it_goes() -> None:
    both = Budgets([budget("wide", minAvailable=1), budget("tight", maxUnavailable=0)], pods(3))
    disruptions = DisruptionTracker(both)
    assert not disruptions.allow(disruptions.count_by_budget(workload("p0")), {})
    wide = DisruptionTracker(Budgets([budget("wide", minAvailable=1)], pods(3)))
    assert wide.allow(wide.count_by_budget(workload("p0", "p1")), {})
    assert not wide.allow(wide.count_by_budget(workload("p0", "p1", "p2")), {})


def test_those_who_go_already_use_the_budget_up() -> None:
    disruptions = DisruptionTracker(Budgets([budget(minAvailable=1)], pods(3)))
    disruptions.record(disruptions.count_by_budget(workload("p0")))
    assert disruptions.allow(disruptions.count_by_budget(workload("p1")), {})
    assert not disruptions.allow(
        disruptions.count_by_budget(workload("p1")), disruptions.count_by_budget(workload("p2"))
    )


def test_who_is_leaving_or_was_granted_its_eviction_takes_nothing_more() -> None:
    status = {"disruptionsAllowed": 0, "disruptedPods": {"p0": "2026-01-01T00:00:00Z"}}
    budgets = Budgets([budget(minAvailable=1, status=status)], [*pods(2), pod("going", leaving=True)])
    assert budgets.count_by_budget(["team/p0", "team/going"]) == {}
    assert budgets.count_by_budget(["team/p1"]) == {0: 1}


def test_extra_members_that_go_along_count() -> None:
    budgets = Budgets([budget(minAvailable=1)], pods(3))
    disruptions = DisruptionTracker(budgets, {"team/w": ["team/p1", "team/p2"]})
    assert disruptions.count_by_budget(workload("p0")) == {0: 3}


def ready(name: str, status: str = "True", phase: str = "Running") -> Pod:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": {"app": "web"}},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": status}],
        },
    }
    made = decode_object(tree)
    assert isinstance(made, Pod)
    return made


COUNTED: dict[str, Any] = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
"""One of two is ready, and one has to be."""


@pytest.mark.parametrize(
    ("spec", "status", "pod_is", "goes"),
    [
        pytest.param({}, COUNTED, ready("p"), False, id="ready"),
        pytest.param({}, COUNTED, ready("p", "False"), True, id="those that are ready suffice"),
        pytest.param({}, {**COUNTED, "currentHealthy": 0}, ready("p", "False"), False, id="none is ready"),
        pytest.param({}, {**COUNTED, "desiredHealthy": 0}, ready("p", "False"), False, id="none has to be"),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
            {**COUNTED, "currentHealthy": 0},
            ready("p", "False"),
            True,
            id="AlwaysAllow",
        ),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, COUNTED, ready("p"), False, id="AlwaysAllow, ready"
        ),
        pytest.param({}, COUNTED, ready("p", "False", "Pending"), True, id="has not started"),
        pytest.param({}, {**COUNTED, "disruptionsAllowed": 1}, ready("p"), True, id="allowed"),
    ],
)
def test_one_pod_goes_where_the_api_server_would_let_it(
    spec: dict[str, Any], status: dict[str, Any], pod_is: Pod, goes: bool
) -> None:
    one = budget(minAvailable=1, status=status, **spec)
    assert may_go([one], pod_is) is goes


def may_go(budgets: list[PodDisruptionBudget], *there: Pod) -> bool:
    """Whether the first of the pods may."""
    counted = Budgets(budgets, there)
    return DisruptionTracker(counted).allow(counted.count_by_budget([there[0].key]), {})


def test_a_budget_that_was_changed_allows_nothing_until_it_is_counted_anew() -> None:
    one = budget(minAvailable=1, status={"disruptionsAllowed": 3, "observedGeneration": 1})
    assert may_go([one], ready("p"))
    newer = msgspec.structs.replace(one.metadata, generation=2)
    assert not may_go([msgspec.structs.replace(one, metadata=newer)], ready("p"))


def test_a_pod_that_two_budgets_cover_is_never_evicted() -> None:
    """The API server refuses it whatever they allow, unless it has not started."""
    both = [budget(name, status={"disruptionsAllowed": 5}) for name in ("b1", "b2")]
    assert not may_go(both, ready("p"))
    assert may_go(both, ready("p", "False", "Pending"))


def test_only_readiness_is_kept_of_a_pods_conditions() -> None:
    kept = [(one.type, one.status) for one in ready("p", "False").status.conditions]
    assert kept == [("Ready", "False")]
    assert not ready("p", "False").is_ready
    assert pod("p").is_ready, "nobody says anything else"
