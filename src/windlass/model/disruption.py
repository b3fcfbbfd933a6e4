"""PodDisruptionBudgets: how many pods of a selection may be unavailable at once.

Decoded by `model.codec`; preemption and defragmentation respect them. `Budgets` knows which pods all budgets cover and
how many of those may be evicted; `DisruptionTracker` counts the evictions of one decision. Both count as the API
server's eviction subresource does, so that no victim is chosen which it would refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from windlass.model.errors import InputError
from windlass.model.labels import check_selector, matches_selector
from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.pod import Pod
from windlass.model.workload import Workload

ALWAYS_ALLOW = "AlwaysAllow"


class BudgetMeta(ObjectMeta, frozen=True):
    generation: int = 0


class BudgetSpec(KubeStruct, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class BudgetStatus(KubeStruct, frozen=True):
    disruptions_allowed: int | None = None
    """None before the disruption controller has written it: then the pods are counted."""
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] = msgspec.field(default_factory=dict)
    """Pods whose eviction the API server has granted, by name: the status counts them already."""


class PodDisruptionBudget(KubeStruct, frozen=True):
    metadata: BudgetMeta = BudgetMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    def covers(self, pod: Pod) -> bool:
        same = (pod.metadata.namespace or "default") == self.namespace
        return same and matches_selector(self.spec.selector, pod.metadata.labels)


class Budgets:
    """All budgets of a cluster and the pods that they cover; computed when the first victim is considered."""

    def __init__(self, budgets: Sequence[PodDisruptionBudget] = (), pods: Iterable[Pod] = ()) -> None:
        self._budgets, self._pods = tuple(budgets), pods
        self.names = tuple(f"{budget.namespace}/{budget.metadata.name}" for budget in budgets)

    def __bool__(self) -> bool:
        return bool(self._budgets)

    @cached_property
    def _covered(self) -> list[list[Pod]]:
        """The pods of each budget."""
        spaces: dict[str, list[int]] = {}
        for number, budget in enumerate(self._budgets):
            spaces.setdefault(budget.namespace, []).append(number)
        found: list[list[Pod]] = [[] for _ in self._budgets]
        for pod in self._pods if self._budgets else ():
            for number in spaces.get(pod.metadata.namespace or "default", ()):
                if self._budgets[number].covers(pod):
                    found[number].append(pod)
        return found

    @cached_property
    def _healthy(self) -> tuple[HealthyPodCounts, ...]:
        return tuple(map(healthy_pods, self._budgets, self._covered))

    @cached_property
    def allowed(self) -> tuple[int, ...]:
        """Evictions allowed now, per budget. One more entry of 0 is for pods that several budgets cover."""
        return (*map(_allowed, self._budgets, self._healthy), 0)

    @cached_property
    def _by_pod(self) -> dict[str, tuple[int, ...]]:
        """Pod → the budget that its eviction counts against. The API server never evicts a pod that several cover."""
        found: dict[str, tuple[int, ...]] = {}
        for number, (budget, pods) in enumerate(zip(self._budgets, self._covered, strict=True)):
            for pod in pods:
                if _counts(budget, pod):
                    found[pod.key] = (*found.get(pod.key, ()), number)
        several = (len(self._budgets),)
        covered_once = {key: numbers for key, numbers in found.items() if len(numbers) == 1}
        free = {
            pod.key
            for number, pods in enumerate(self._covered)
            for pod in pods
            if covered_once.get(pod.key) == (number,) and is_exempt(self._budgets[number], pod, self._healthy[number])
        }
        return {key: numbers if key in covered_once else several for key, numbers in found.items() if key not in free}

    def budget_against(self, pods: Sequence[str]) -> str:
        """Name of a budget that doesn't let all of these pods go at once; empty where there is none."""
        several = len(self._budgets)
        for number, count in self.count_by_budget(pods).items():
            if number == several:  # several budgets cover a pod, so the API server never evicts it
                return self.names[next(i for i, budget in enumerate(self._covered) if _has_any(budget, pods))]
            if count > self.allowed[number]:
                return self.names[number]
        return ""

    def count_by_budget(self, pods: Iterable[str]) -> Counter[int]:
        """Budget → number of the pods that it covers."""
        found: Counter[int] = Counter()
        for key in pods if self._budgets else ():
            found.update(self._by_pod.get(key, ()))
        return found


def _has_any(covered: Iterable[Pod], names: Sequence[str]) -> bool:
    return any(pod.key in names for pod in covered)


NO_BUDGETS = Budgets()


class DisruptionTracker:
    """The evictions of one decision, counted by budget."""

    def __init__(
        self, budgets: Budgets = NO_BUDGETS, pods_evicted_with: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """`pods_evicted_with`: workload → other pods that are evicted together with it."""
        self.budgets = budgets
        self._pods_evicted_with = pods_evicted_with or {}
        self._used: Counter[int] = Counter()

    def count_by_budget(self, *workloads: Workload) -> Counter[int]:
        """Budget → number of the workloads' pods that it covers, each counted once."""
        pods: dict[str, None] = {}
        for workload in workloads if self.budgets else ():
            pods.update((key, None) for pod_set in workload.pod_sets for key in pod_set.pod_keys)
            pods.update(dict.fromkeys(self._pods_evicted_with.get(workload.key, ())))
        return self.budgets.count_by_budget(pods)

    def allow(self, covered: Mapping[int, int], besides: Mapping[int, int]) -> bool:
        """Whether so many more pods may be evicted, in addition to those of `besides`."""
        return all(
            self._used[number] + count + besides.get(number, 0) <= self.budgets.allowed[number]
            for number, count in covered.items()
        )

    def left(self, budget: int) -> int:
        """How many more pods of the budget may be evicted."""
        return self.budgets.allowed[budget] - self._used[budget]

    def record(self, covered: Mapping[int, int]) -> None:
        """Counts these evictions."""
        self._used.update(covered)


def check_budget(budget: PodDisruptionBudget) -> None:
    spec = budget.spec
    check_selector(spec.selector, "spec.selector")
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise InputError(
            "minAvailable and maxUnavailable can't both be set",
            path="spec.maxUnavailable",
            remedy="keep one of them",
        )
    for field, value in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if value is not None:
            _check_amount(value, f"spec.{field}")


class HealthyPodCounts(NamedTuple):
    """Healthy pods of a budget, and how many there must be."""

    current: int
    desired: int


def healthy_pods(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> HealthyPodCounts:
    """From the status, or counted if there is none.

    A budget with neither minAvailable nor maxUnavailable allows no eviction, as in the disruption controller.
    """
    if budget.status.disruptions_allowed is not None:
        return HealthyPodCounts(budget.status.current_healthy, budget.status.desired_healthy)
    covered = [pod for pod in pods if budget.covers(pod) and not pod.is_terminal]
    fit = [pod for pod in covered if pod.is_bound and pod.is_ready and not pod.metadata.deletion_timestamp]
    expected = max(len(covered), budget.status.expected_pods)
    spec = budget.spec
    if spec.max_unavailable is not None:
        return HealthyPodCounts(len(fit), max(0, expected - _resolve(spec.max_unavailable, expected)))
    if spec.min_available is not None:
        return HealthyPodCounts(len(fit), max(0, _resolve(spec.min_available, expected)))
    return HealthyPodCounts(len(fit), len(covered) + 1)


def disruptions_allowed(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> int:
    """How many of the covered pods may be evicted now."""
    return _allowed(budget, healthy_pods(budget, pods))


def _allowed(budget: PodDisruptionBudget, healthy: HealthyPodCounts) -> int:
    status = budget.status
    if status.disruptions_allowed is None:
        return max(0, healthy.current - healthy.desired)
    if status.observed_generation < budget.metadata.generation:
        return 0  # the disruption controller has not counted for the changed budget yet
    return max(0, status.disruptions_allowed)


def is_exempt(budget: PodDisruptionBudget, pod: Pod, healthy: HealthyPodCounts) -> bool:
    """Whether its eviction does not count: the pod is not ready, and enough other pods are."""
    if pod.is_ready:
        return False
    if budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    return healthy.current >= healthy.desired > 0


def _counts(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether its eviction counts: the pod has started (the API server evicts pending pods without a budget) and is not
    being evicted already."""
    leaves = pod.metadata.deletion_timestamp or pod.metadata.name in budget.status.disrupted_pods
    return pod.is_bound and not pod.is_terminal and pod.status.phase != "Pending" and not leaves


def _resolve(value: int | str, total: int) -> int:
    """A number, or a share of the total rounded up as the disruption controller rounds it."""
    if isinstance(value, int):
        return value
    return -(-total * int(value[:-1]) // 100)


def _check_amount(value: int | str, path: str) -> None:
    if isinstance(value, int):
        good = 0 <= value < 2**31
    else:
        digits = value.removesuffix("%")
        good = value.endswith("%") and digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= 100
    if not good:
        raise InputError(f"{value!r} is neither a number nor a percentage", path=path, remedy='use 1 or "50%"')
