"""PodDisruptionBudgets, counted as the disruption controller counts them."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.model.disruption import Budgets, Disruptions, PodDisruptionBudget, disruptions_allowed
from windlass.model.objects import decode_object
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


def pod(
    name: str, *, bound: bool = True, space: str = "team", leaving: bool = False, app: str = "web"
) -> Pod:
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
    assert Budgets([budget(minAvailable=1)], there).covering(["other/far", "team/different"]) == {}


def test_a_budget_without_a_selector_covers_nothing_and_an_empty_one_everything() -> None:
    there = [*pods(1), pod("different", app="db")]
    assert Budgets([budget(selector=None, minAvailable=1)], there).covering(["team/p0"]) == {}
    found = Budgets([budget(selector={}, minAvailable=1)], there).covering(["team/p0", "team/different"])
    assert found == {0: 2}


def workload(*names: str) -> Workload:
    keys = tuple(f"team/{name}" for name in names)
    return Workload("team/w", "Job", (PodSet("main", len(keys), pod("template"), pods=keys),))


def test_every_budget_of_a_pod_has_to_allow_that_it_goes() -> None:
    both = Budgets([budget("wide", minAvailable=1), budget("tight", maxUnavailable=0)], pods(3))
    disruptions = Disruptions(both)
    assert not disruptions.allow(disruptions.of(workload("p0")), {})
    wide = Disruptions(Budgets([budget("wide", minAvailable=1)], pods(3)))
    assert wide.allow(wide.of(workload("p0", "p1")), {})
    assert not wide.allow(wide.of(workload("p0", "p1", "p2")), {})


def test_those_who_go_already_use_the_budget_up() -> None:
    disruptions = Disruptions(Budgets([budget(minAvailable=1)], pods(3)))
    disruptions.note(disruptions.of(workload("p0")))
    assert disruptions.allow(disruptions.of(workload("p1")), {})
    assert not disruptions.allow(disruptions.of(workload("p1")), disruptions.of(workload("p2")))


def test_who_is_leaving_or_was_granted_its_eviction_takes_nothing_more() -> None:
    status = {"disruptionsAllowed": 0, "disruptedPods": {"p0": "2026-01-01T00:00:00Z"}}
    budgets = Budgets([budget(minAvailable=1, status=status)], [*pods(2), pod("going", leaving=True)])
    assert budgets.covering(["team/p0", "team/going"]) == {}
    assert budgets.covering(["team/p1"]) == {0: 1}


def test_extra_members_that_go_along_count() -> None:
    budgets = Budgets([budget(minAvailable=1)], pods(3))
    disruptions = Disruptions(budgets, {"team/w": ["team/p1", "team/p2"]})
    assert disruptions.of(workload("p0")) == {0: 3}
