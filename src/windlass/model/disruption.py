"""PodDisruptionBudgets: how many pods of a selection may be gone at once.

Decoded by `model.objects`; preemption and defragmentation honour them.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.errors import InputError
from windlass.model.labels import check_selector, matches_selector
from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.pod import Pod


class BudgetSpec(KubeStruct, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class BudgetStatus(KubeStruct, frozen=True):
    disruptions_allowed: int | None = None
    expected_pods: int = 0


class PodDisruptionBudget(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    def covers(self, pod: Pod) -> bool:
        same = (pod.metadata.namespace or "default") == self.namespace
        return same and matches_selector(self.spec.selector, pod.metadata.labels)


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


def disruptions_allowed(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> int:
    """How many of the pods it covers may go now: as its status says, or counted where the status is empty."""
    if budget.status.disruptions_allowed is not None:
        return max(0, budget.status.disruptions_allowed)
    covered = [pod for pod in pods if budget.covers(pod) and not pod.is_over]
    healthy = sum(1 for pod in covered if pod.is_bound and not pod.metadata.deletion_timestamp)
    expected = max(len(covered), budget.status.expected_pods)
    spec = budget.spec
    if spec.max_unavailable is not None:
        desired = expected - _resolve(spec.max_unavailable, expected)
    else:
        desired = _resolve(spec.min_available if spec.min_available is not None else 1, expected)
    return max(0, healthy - desired)


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
        good = (
            value.endswith("%")
            and digits.isascii()
            and digits.isdigit()
            and len(digits) <= 3
            and int(digits) <= 100
        )
    if not good:
        raise InputError(
            f"{value!r} is neither a number nor a percentage", path=path, remedy='use 1 or "50%"'
        )
