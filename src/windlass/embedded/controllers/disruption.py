"""PodDisruptionBudgets: how many pods may be evicted now. The eviction subresource relies on the status written
here.

`reconcile_budget` is pure; `DisruptionController` collects its input. `expected` is the number of pods that there
should be, which a percentage and maxUnavailable need from the pods' owners. If it is unknown, no eviction is
allowed, and the condition says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.api.timestamps import parse_time
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.executor import ActionExecutor
from windlass.embedded.controllers.objects import (
    condition,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    scaled_int_or_percent,
    with_condition,
)
from windlass.embedded.controllers.pod_state import is_finished, is_ready
from windlass.embedded.controllers.reconcile_result import (
    EmitEvent,
    ReconcileResult,
    ReconcileResultBuilder,
    UpdateStatus,
)
from windlass.model.unstructured import Unstructured

RESOURCE = "poddisruptionbudgets.policy"
DELETION_TIMEOUT_SECONDS = 120.0
"""An allowed eviction whose pod was not deleted stops counting after this time, as in Kubernetes."""
_SCALED = {
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "Deployment": "deployments.apps",
}
_UNSCALED = {"Job": "jobs.batch", "DaemonSet": "daemonsets.apps"}
"""Owners without a scale subresource."""


class ExpectedPodsUnknown(Exception):
    """The number of pods that there should be is unknown."""


def reconcile_budget(budget: Unstructured, pods: Sequence[Unstructured], expected: int, now: float) -> ReconcileResult:
    """`pods` are those that the budget selects."""
    if is_deleting(budget):
        return ReconcileResult()
    plan = ReconcileResultBuilder()
    spec = budget["spec"]
    status = dict(budget.get("status") or {})
    disrupted = _still_disrupted(status.get("disruptedPods") or {}, pods, now)
    healthy = sum(is_ready(pod) and not is_deleting(pod) and name_of(pod) not in disrupted for pod in pods)
    if spec.get("maxUnavailable") is not None:
        desired = expected - scaled_int_or_percent(spec["maxUnavailable"], expected, round_up=True)
    else:
        desired = scaled_int_or_percent(spec.get("minAvailable", 1), expected, round_up=True)
    desired = max(0, desired)
    allowed = max(0, healthy - desired) if expected else 0
    status |= {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptedPods": disrupted or None,
    }
    outcome = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    _set_condition(status, condition("DisruptionAllowed", *outcome, ""), budget, now)
    plan.add(UpdateStatus(RESOURCE, budget, status))
    plan.requeue(min((parse_time(at) + DELETION_TIMEOUT_SECONDS for at in disrupted.values()), default=None))
    return plan.build()


def reconcile_expected_unknown(budget: Unstructured, why: str, now: float) -> ReconcileResult:
    """Allows no eviction."""
    if is_deleting(budget):
        return ReconcileResult()
    status = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, **(budget.get("status") or {})}
    status["disruptionsAllowed"] = 0
    _set_condition(status, condition("DisruptionAllowed", "False", "SyncFailed", why), budget, now)
    message = f"Failed to calculate the number of expected pods: {why}"
    event = EmitEvent(budget, "CalculateExpectedPodCountFailed", message, "Warning")
    return ReconcileResult((UpdateStatus(RESOURCE, budget, status), event))


def _set_condition(status: Unstructured, new: Unstructured, budget: Unstructured, now: float) -> None:
    new["observedGeneration"] = budget["metadata"].get("generation", 1)
    status["conditions"] = with_condition(status.get("conditions") or (), new, now)


def _still_disrupted(disrupted: dict[str, str], pods: Sequence[Unstructured], now: float) -> dict[str, str]:
    """Pods whose eviction was allowed and that are not being deleted yet."""
    not_deleting = {name_of(pod) for pod in pods if not is_deleting(pod)}
    return {
        name: at
        for name, at in disrupted.items()
        if name in not_deleting and now < parse_time(at) + DELETION_TIMEOUT_SECONDS
    }


class DisruptionController:
    name = "disruption-controller"
    resources = (RESOURCE, "pods", *_SCALED.values())

    def __init__(self, client: Client, cache: Cache) -> None:
        self._cache = cache
        self._executor = ActionExecutor(client, self.name)

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == RESOURCE:
            yield key_of(new)
            return
        for budget in self._cache.all(RESOURCE):
            if namespace_of(budget) != namespace_of(new):
                continue
            selector = budget["spec"].get("selector")
            if resource != "pods" or any(
                matches_selector(selector, labels_of(state)) for state in (new, old) if state is not None
            ):
                yield key_of(budget)

    def sync(self, key: str, now: float) -> float | None:
        budget = self._cache.get(RESOURCE, key)
        if budget is None:
            return None
        pods = [
            pod
            for pod in self._cache.all("pods")
            if namespace_of(pod) == namespace_of(budget)
            and matches_selector(budget["spec"].get("selector"), labels_of(pod))
            and not is_finished(pod)
        ]
        try:
            result = reconcile_budget(budget, pods, self._expected_pods(budget, pods), now)
        except ExpectedPodsUnknown as error:
            result = reconcile_expected_unknown(budget, str(error), now)
        self._executor.execute(result, now)
        return result.requeue_at

    def _expected_pods(self, budget: Unstructured, pods: Sequence[Unstructured]) -> int:
        spec = budget["spec"]
        if spec.get("maxUnavailable") is None and not str(spec.get("minAvailable", 1)).endswith("%"):
            return len(pods)
        total, seen = 0, set()
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                continue  # no controller would replace it, so it does not count
            if reference.get("kind") in _UNSCALED:
                resource = _UNSCALED[reference["kind"]]
                raise ExpectedPodsUnknown(f"{resource} does not implement the scale subresource")
            owner = self._top_owner(pod)
            if owner is None:
                total += 1
            elif key_of(owner) + owner["kind"] not in seen:
                seen.add(key_of(owner) + owner["kind"])
                size = owner["spec"].get("replicas")
                total += 1 if size is None else int(size)
        return total

    def _top_owner(self, obj: Unstructured) -> Unstructured | None:
        """The owner with a scale: the Deployment above a ReplicaSet, else the ReplicaSet itself."""
        reference = controller_of(obj)
        resource = _SCALED.get((reference or {}).get("kind", ""))
        if reference is None or resource is None:
            return None
        owner = self._cache.get(resource, f"{namespace_of(obj)}/{reference['name']}")
        if owner is None:
            return None
        return self._top_owner(owner) or owner
