"""Converts single queue objects from Kueue's API to `model.queue`, checked as Kueue's webhooks check them.

`model.codec` runs these when it decodes, so that a wrong value is refused with its path; `model.kueue.queue_system`
runs them again to build the `QueueSystem`. A field which Kueue accepts and Windlass doesn't implement is not an
error: the queue becomes inactive and names the field.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.errors import InputError
from windlass.model.flavor_offer import read_offer
from windlass.model.kueue.queue_wire import (
    AdmissionChecksStrategy,
    ClusterQueueObject,
    CohortObject,
    FlavorQuotasSpec,
    FungibilitySpec,
    LocalQueueObject,
    PreemptionSpec,
    ResourceFlavorObject,
    ResourceGroupSpec,
    ResourceQuotaSpec,
    TopologyObject,
)
from windlass.model.labels import check_selector
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.pod import RawQuantity
from windlass.model.quantity import milli_value
from windlass.model.queue import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    FlavorResourceQuota,
    Fungibility,
    LocalQueue,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from windlass.model.queue_policy import read_queue_policy
from windlass.model.quota import parse_quota
from windlass.model.taints import check_taints, check_tolerations
from windlass.model.times import parse_timestamp

STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
STRATEGIES = ("BestEffortFIFO", "StrictFIFO")
ADMISSION_MODES = ("NoAdmissionFairSharing", "UsageBasedAdmissionFairSharing")
USAGE_BASED = "UsageBasedAdmissionFairSharing"
MAX_LEVELS = 16

_CHECKS_PATH = "spec.admissionChecksStrategy.admissionChecks"
_NO_CHECKS = "admission checks are not implemented"
_BORROW = {"Borrow": "MayStopSearch", "MayStopSearch": "MayStopSearch", "TryNextFlavor": "TryNextFlavor"}
_PREEMPT = {"Preempt": "MayStopSearch", "MayStopSearch": "MayStopSearch", "TryNextFlavor": "TryNextFlavor"}
_PREFERENCES = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
_WITHIN_QUEUE = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIM = ("Never", "LowerPriority", "Any")
_BORROW_WITHIN = ("Never", "LowerPriority")


def cluster_queue_from_object(wire: ClusterQueueObject) -> ClusterQueue:
    spec = wire.spec
    _check_name(wire.name)
    check_selector(spec.namespace_selector, "spec.namespaceSelector")
    cohort = _renamed(spec.cohort_name, spec.cohort, "cohortName", "cohort")
    groups = resource_groups(spec.resource_groups)
    _check_limits_need_cohort(spec.resource_groups, cohort)
    policy, unreadable_policy = read_queue_policy(wire.metadata.annotations)
    return ClusterQueue(
        name=wire.name,
        cohort=cohort,
        resource_groups=_under_checks(groups, spec.admission_checks_strategy),
        queueing_strategy=_choice(spec.queueing_strategy, STRATEGIES, "spec.queueingStrategy"),
        fungibility=_fungibility(spec.flavor_fungibility),
        preemption=_preemption(spec.preemption),
        fair_weight_milli=_weight(spec.fair_sharing.weight),
        namespace_selector=spec.namespace_selector,
        stop_policy=_choice(spec.stop_policy, STOP_POLICIES, "spec.stopPolicy"),
        usage_based=_choice(spec.admission_scope.admission_mode, ADMISSION_MODES, "spec.admissionScope.admissionMode")
        == USAGE_BASED,
        inactive_reason=_not_implemented(wire) or unreadable_policy,
        policy=policy,
    )


def _not_implemented(wire: ClusterQueueObject) -> str:
    """Why the queue can't be used; empty if it can."""
    if wire.spec.admission_checks:
        return f"spec.admissionChecks: {_NO_CHECKS}"
    unread = unimplemented_fields_message(wire.unread_fields)
    for index, check in enumerate(wire.spec.admission_checks_strategy.admission_checks):
        if not check.on_flavors:
            return f"{_CHECKS_PATH}[{index}]: {_NO_CHECKS}"
    return unread


def _under_checks(groups: tuple[ResourceGroup, ...], strategy: AdmissionChecksStrategy) -> tuple[ResourceGroup, ...]:
    """Marks flavors with an admission check as unusable; the queue's other flavors can be used."""
    guarded = {
        flavor: f"{_CHECKS_PATH}[{index}]: {_NO_CHECKS}"
        for index, check in enumerate(strategy.admission_checks)
        for flavor in check.on_flavors
    }
    if not guarded:
        return groups
    return tuple(
        ResourceGroup(
            group.resources,
            tuple(
                FlavorQuotas(flavor.flavor, flavor.quotas, guarded.get(flavor.flavor, "")) for flavor in group.flavors
            ),
        )
        for group in groups
    )


def unimplemented_fields_message(fields: tuple[str, ...]) -> str:
    if not fields:
        return ""
    return f"{', '.join(fields)} {'are' if len(fields) > 1 else 'is'} not implemented"


def cohort_from_object(wire: CohortObject) -> Cohort:
    _check_name(wire.name)
    return Cohort(
        name=wire.name,
        parent=_renamed(wire.spec.parent_name, wire.spec.parent, "parentName", "parent"),
        resource_groups=resource_groups(wire.spec.resource_groups),
        fair_weight_milli=_weight(wire.spec.fair_sharing.weight),
    )


def local_queue_from_object(wire: LocalQueueObject) -> LocalQueue:
    spec = wire.spec
    _check_name(wire.name)
    if not spec.cluster_queue:
        raise InputError("a LocalQueue names its ClusterQueue", path="spec.clusterQueue", remedy="add it")
    history = wire.status.fair_sharing.admission_fair_sharing_status
    where = "status.fairSharing.admissionFairSharingStatus.consumedResources"
    return LocalQueue(
        key=f"{wire.metadata.namespace or 'default'}/{wire.name}",
        cluster_queue=spec.cluster_queue,
        stop_policy=_choice(spec.stop_policy, STOP_POLICIES, "spec.stopPolicy"),
        fair_weight_milli=_weight(spec.fair_sharing.weight),
        consumed={name: _units(name, raw, f"{where}.{name}") for name, raw in history.consumed_resources.items()},
        consumed_at=parse_timestamp(history.last_update),
        inactive_reason=unimplemented_fields_message(wire.unread_fields),
    )


def resource_flavor_from_object(wire: ResourceFlavorObject) -> ResourceFlavor:
    spec = wire.spec
    _check_name(wire.name)
    check_taints(spec.node_taints, "spec.nodeTaints")
    check_tolerations(spec.tolerations, "spec.tolerations")
    return ResourceFlavor(
        wire.name,
        dict(spec.node_labels),
        spec.node_taints,
        spec.tolerations,
        spec.topology_name,
        offer=read_offer(wire.metadata.annotations),
    )


def topology_from_object(wire: TopologyObject) -> Topology:
    _check_name(wire.name)
    levels = tuple(level.node_label for level in wire.spec.levels)
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise InputError(f"{len(levels)} levels", path="spec.levels", remedy=f"use 1 to {MAX_LEVELS}")
    for index, label in enumerate(levels):
        where = f"spec.levels[{index}].nodeLabel"
        if not label:
            raise InputError("a level is a node label", path=where, remedy="name one")
        if label in levels[:index]:
            raise InputError(f"{label} is a level twice", path=where, remedy="keep one of them")
        if label == HOSTNAME_LABEL and index != len(levels) - 1:
            raise InputError(f"{HOSTNAME_LABEL} is the narrowest level", path=where, remedy="put it last")
    return Topology(wire.name, levels)


def resource_groups(groups: tuple[ResourceGroupSpec, ...]) -> tuple[ResourceGroup, ...]:
    resources: set[str] = set()
    flavors: set[str] = set()
    made = []
    for index, group in enumerate(groups):
        where = f"spec.resourceGroups[{index}]"
        if not group.flavors:
            raise InputError("a group has flavors", path=f"{where}.flavors", remedy="name at least one")
        _once(group.covered_resources, resources, f"{where}.coveredResources", "resource")
        _once((flavor.name for flavor in group.flavors), flavors, f"{where}.flavors", "flavor")
        quotas = tuple(
            _flavor_quotas(flavor, group.covered_resources, f"{where}.flavors[{at}]")
            for at, flavor in enumerate(group.flavors)
        )
        made.append(ResourceGroup(tuple(group.covered_resources), quotas))
    return tuple(made)


def _flavor_quotas(flavor: FlavorQuotasSpec, covered: tuple[str, ...], where: str) -> FlavorQuotas:
    cells: dict[str, FlavorResourceQuota] = {}
    for index, quota in enumerate(flavor.resources):
        path = f"{where}.resources[{index}]"
        if quota.name not in covered or quota.name in cells:
            raise InputError(
                f"{quota.name!r} is {'given twice' if quota.name in cells else 'not covered by its group'}",
                path=f"{path}.name",
                remedy=f"the resources of every flavor are those of coveredResources: {', '.join(covered)}",
            )
        cells[quota.name] = _cell(quota, path)
    missing = [name for name in covered if name not in cells]
    if missing:
        raise InputError(
            f"flavor {flavor.name} has no quota of {missing[0]}",
            path=f"{where}.resources",
            remedy="every flavor gives a quota of every covered resource; 0 is one",
        )
    return FlavorQuotas(flavor.name, cells)


def _cell(quota: ResourceQuotaSpec, path: str) -> FlavorResourceQuota:
    def units(field: str, raw: RawQuantity | None) -> int | None:
        return None if raw is None else _units(quota.name, raw, f"{path}.{field}")

    return FlavorResourceQuota(
        _units(quota.name, quota.nominal_quota, f"{path}.nominalQuota"),
        units("borrowingLimit", quota.borrowing_limit),
        units("lendingLimit", quota.lending_limit),
    )


def _check_limits_need_cohort(groups: tuple[ResourceGroupSpec, ...], cohort_name: str) -> None:
    if cohort_name:
        return
    for index, group in enumerate(groups):
        for at, flavor in enumerate(group.flavors):
            for position, quota in enumerate(flavor.resources):
                if quota.borrowing_limit is None and quota.lending_limit is None:
                    continue
                field = "borrowingLimit" if quota.borrowing_limit is not None else "lendingLimit"
                raise InputError(
                    f"{field} without a cohort",
                    path=f"spec.resourceGroups[{index}].flavors[{at}].resources[{position}].{field}",
                    remedy="name a cohort, or remove the limit",
                )


def _fungibility(spec: FungibilitySpec) -> Fungibility:
    path = "spec.flavorFungibility"
    borrow = _BORROW[_choice(spec.when_can_borrow, _BORROW, f"{path}.whenCanBorrow")]
    preempt = _PREEMPT[_choice(spec.when_can_preempt, _PREEMPT, f"{path}.whenCanPreempt")]
    preference = spec.preference or "BorrowingOverPreemption"
    return Fungibility(borrow, preempt, _choice(preference, _PREFERENCES, f"{path}.preference"))


def _preemption(spec: PreemptionSpec) -> PreemptionPolicy:
    path = "spec.preemption"
    borrow = spec.borrow_within_cohort
    reclaim = _choice(spec.reclaim_within_cohort, _RECLAIM, f"{path}.reclaimWithinCohort")
    policy = "Never"
    if borrow is not None:
        policy = _choice(borrow.policy, _BORROW_WITHIN, f"{path}.borrowWithinCohort.policy")
    if policy != "Never" and reclaim == "Never":
        raise InputError(
            "borrowWithinCohort has no meaning while reclaimWithinCohort is Never",
            path=f"{path}.borrowWithinCohort.policy",
            remedy="set reclaimWithinCohort to LowerPriority or Any",
        )
    return PreemptionPolicy(
        within_cluster_queue=_choice(spec.within_cluster_queue, _WITHIN_QUEUE, f"{path}.withinClusterQueue"),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=policy,
        max_priority_threshold=borrow.max_priority_threshold if borrow is not None else None,
    )


def _units(resource: str, raw: RawQuantity, path: str) -> int:
    try:
        return parse_quota(resource, raw)
    except InputError as error:
        raise error.with_context(path=path) from None


def _weight(raw: RawQuantity) -> int:
    try:
        weight = milli_value(raw)
    except InputError as error:
        raise error.with_context(path="spec.fairSharing.weight") from None
    if weight < 0:
        raise InputError(f"{raw!r} is negative", path="spec.fairSharing.weight", remedy="use 0 or more")
    return weight


def _renamed(name: str, old_name: str, field: str, old_field: str) -> str:
    """The value of a field that was renamed between API versions."""
    if name and old_name and name != old_name:
        raise InputError(
            f"{old_field} is the old name of {field}, and they differ",
            path=f"spec.{old_field}",
            remedy=f"keep {field}",
        )
    return name or old_name


def _once(names: Iterable[str], seen: set[str], path: str, what: str) -> None:
    """Kueue refuses a resource or a flavor that stands in a queue twice."""
    for index, name in enumerate(names):
        if not name or name in seen:
            problem = f"{what} {name} is there twice" if name else f"a {what} needs a name"
            raise InputError(problem, path=f"{path}[{index}]", remedy="name every one once")
        seen.add(name)


def _check_name(name: str) -> None:
    if not name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")


def _choice(value: str, known: Iterable[str], path: str) -> str:
    if value not in known:
        raise InputError(f"unknown value {value!r}", path=path, remedy=f"use one of {', '.join(known)}")
    return value
