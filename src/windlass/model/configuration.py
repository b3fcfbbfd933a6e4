"""What `--config` takes: our `SchedulerConfiguration`, or Kueue's `Configuration` as it is, as one `Settings`.

Decoded by `model.codec`. Our own kind is strict: a field that is not known is an error. Of Kueue's, the parts that
mean something here are read, and `ignored_fields` names the rest, so that a caller can say so. The way back, from
`Settings` to the document that says the same, is `model.configuration_document`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.model.errors import InputError
from windlass.model.labels import check_selector
from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import RawQuantity
from windlass.model.quantity import milli_value, parse_quantity
from windlass.model.quota import MILLI_PER_GPU
from windlass.model.times import parse_duration
from windlass.model.usage_prices import UsageSettings, check_currency, micro_prices

FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"
STRATEGY_LISTS = ((FINAL_SHARE, INITIAL_SHARE), (FINAL_SHARE,), (INITIAL_SHARE,))
PLACEMENT_STRATEGIES = ("pack", "spread", "balanced")
PLACEMENT_POLICIES = (
    "windlass",
    "fgd",
    "best-fit",
    "gpu-packing",
    "gpu-clustering",
    "dot-product",
    "random",
    "first-fit",
    "pack",
    "spread",
)
"""What `placement` may name; `placement.policies` has the rule of each."""
BUDGETS_YIELD_TO = ("reclaim", "fairShare", "priority")
DEFAULT_BUDGETS_YIELD_TO = ("reclaim", "fairShare")
"""Quota that was lent comes back to its owner, whatever the borrower writes into a budget of its own."""
KUEUE_FIELDS_READ = ("fairSharing", "admissionFairSharing", "waitForPodsReady", "resources")
_IN_THOUSANDTHS = ("cpu", GPU_RESOURCE)


class FairSharing(KubeStruct, frozen=True):
    enable: bool = True
    """Only in v1beta1; in v1beta2 the presence of the block enables it."""
    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharing(KubeStruct, frozen=True):
    usage_half_life_time: str = "0s"
    usage_sampling_interval: str = "5m"
    resource_weights: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class RequeuingStrategy(KubeStruct, frozen=True):
    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(KubeStruct, frozen=True):
    enable: bool = True
    timeout: str = "5m"
    block_admission: bool = False
    recovery_timeout: str = ""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class Transformation(KubeStruct, frozen=True):
    """Counts amounts of other resources for every unit of `input`, in addition to it or instead of it."""

    input: str
    strategy: str = "Retain"
    multiply_by: str = ""
    outputs: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class ResourceRules(KubeStruct, frozen=True):
    """How requests are converted before they count against quota."""

    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check_strategy: str = "BlockUndeclared"


class KueueConfiguration(KubeStruct, frozen=True):
    """Kueue's `Configuration`, v1beta1 or v1beta2."""

    api_version: str = ""
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    resources: ResourceRules = ResourceRules()


class StrictStruct(KubeStruct, frozen=True, forbid_unknown_fields=True):
    """Base of Windlass' own configuration: unknown fields are errors."""


class WorkloadClass(StrictStruct, frozen=True):
    """Workloads with a placement strategy of their own."""

    name: str
    selector: LabelSelector = LabelSelector()
    strategy: str = "pack"
    """pack, spread or balanced."""


class Defragmentation(StrictStruct, frozen=True):
    proactive: bool = False
    max_moves: int = 16


class BackfillSettings(StrictStruct, frozen=True):
    """How far ahead starts are planned."""

    depth: int = 32
    """Number of pending workloads, in order, that get a planned start which later ones must not delay; 0: none."""
    reservation_lead: str = "24h"
    """So long before a calendar reservation begins, its nodes take no work that would still run then."""
    run_times: dict[str, str] = msgspec.field(default_factory=dict)
    """LocalQueue (`namespace/name`) → longest expected run time of its workloads."""
    run_time_percentile: int = 95
    """For queues not in `runTimes`: a workload without a limit is planned with this percentile of the run times of its
    queue's earlier workloads; 0: earlier runs are not used."""


class SchedulerConfiguration(StrictStruct, frozen=True):
    """How a scheduler decides. `scheduler`, `up`, `plan`, `why`, `check` and `simulate` read it by `--config`."""

    api_version: str = ""
    """`windlass.dev/v1`."""
    kind: str = ""
    """`SchedulerConfiguration`."""
    metadata: ObjectMeta = ObjectMeta()
    """Ignored."""
    scheduler_names: tuple[str, ...] = ("windlass",)
    """Pods that name one of these in `schedulerName` are placed."""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    """Nodes without these labels are ignored."""
    placement: str = "windlass"
    """The placement policy, as in docs/policies.md."""
    seed: int = 0
    """Of the policy `random`."""
    classes: tuple[WorkloadClass, ...] = ()
    """The first class whose selector matches a workload's labels applies."""
    budgets_yield_to: tuple[str, ...] = DEFAULT_BUDGETS_YIELD_TO
    """Preemptions that may violate a PodDisruptionBudget as a last resort: reclaim, fairShare, priority."""
    min_run_time: str = "0s"
    """Workloads that have run for less are not evicted."""
    restart_cost: str = "0s"
    """Time lost by a restart, if it is neither declared nor measured."""
    lost_work_cap: str = "168h"
    """The lost run time of a victim is capped to this."""
    lost_work_caps: dict[str, str] = msgspec.field(default_factory=dict)
    """The same by ClusterQueue."""
    ask_deadline: str = "1m"
    """How long work that asks to be asked before it is preempted gets for a checkpoint, where it declares nothing."""
    max_ask_deadline: str = "10m"
    """The most that it gets, whatever it declares."""
    gang_grace: str = "5m"
    """How long a gang may stay below its minimum before it is stopped."""
    defrag: Defragmentation = Defragmentation()
    backfill: BackfillSettings = BackfillSettings()
    topology_levels: tuple[str, ...] = ()
    """Node labels from the widest domain to the narrowest; empty: the default list."""
    fair_sharing: FairSharing | None = None
    """Kueue's: queues are ordered, and victims chosen, by their weighted share."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Kueue's: within a ClusterQueue, LocalQueues are ordered by what they have used."""
    wait_for_pods_ready: WaitForPodsReady | None = None
    """Kueue's: how long an admitted workload may take to have its pods ready, and what happens then."""
    resources: ResourceRules = ResourceRules()
    """Kueue's: how requests are converted before they count against quota."""
    usage: UsageSettings = UsageSettings()


class Settings(msgspec.Struct, frozen=True):
    """The checked configuration, with durations in seconds."""

    scheduler_names: tuple[str, ...] = ("windlass",)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    placement: str = "windlass"
    seed: int = 0
    classes: tuple[WorkloadClass, ...] = ()
    budgets_yield_to: tuple[str, ...] = DEFAULT_BUDGETS_YIELD_TO
    min_run_seconds: int = 0
    restart_seconds: int = 0
    lost_seconds_cap: int = 7 * 86_400
    lost_seconds_caps: dict[str, int] = msgspec.field(default_factory=dict)
    run_time_seconds: dict[str, int] = msgspec.field(default_factory=dict)
    run_time_percentile: int = 95
    ask_seconds: int = 60
    max_ask_seconds: int = 600
    gang_grace_seconds: int = 300
    defrag: Defragmentation = Defragmentation()
    backfill_depth: int = 32
    reservation_lead_seconds: int = 86_400
    topology_levels: tuple[str, ...] = ()
    fair_sharing: bool = False
    preemption_strategies: tuple[str, ...] = STRATEGY_LISTS[0]
    usage_half_life_seconds: int | None = None
    """None: usage history doesn't order anything."""
    usage_sampling_seconds: int = 300
    resource_weights_milli: dict[str, int] = msgspec.field(default_factory=dict)
    resources: ResourceRules = ResourceRules()
    ready_seconds: int | None = None
    """How long an admitted workload may take to have its pods ready; None: no limit."""
    recovery_seconds: int | None = None
    """How long it may take to have them ready again after one was lost; None: no limit."""
    requeue_limit: int | None = None
    """How often a workload that was not ready in time is requeued before it is deactivated; None: no limit."""
    requeue_base_seconds: int = 60
    requeue_max_seconds: int = 3600
    block_admission: bool = False
    """Nothing is admitted while an admitted workload is not ready."""
    requeue_at_creation: bool = False
    """A workload that wasn't ready in time is requeued by its creation time, not by its eviction time."""
    currency: str = "USD"
    gpu_hour_micro_prices: dict[str, int] = msgspec.field(default_factory=dict)
    """GPU model → price of an hour, in millionths."""

    def selects_node(self, labels: Mapping[str, str]) -> bool:
        """Whether the scheduler uses a node with these labels."""
        return self.node_selector.items() <= labels.items()

    @property
    def ignores_undeclared(self) -> bool:
        """Resources without quota in the queue are ignored instead of refused."""
        return self.resources.quota_check_strategy == "IgnoreUndeclared"


def scheduler_settings(wire: SchedulerConfiguration) -> Settings:
    if not all(wire.scheduler_names) or not wire.scheduler_names:
        raise InputError("a name is missing", path="schedulerNames", remedy="name at least one scheduler")
    _choice(wire.placement, PLACEMENT_POLICIES, "placement")
    for index, placement_class in enumerate(wire.classes):
        _choice(placement_class.strategy, PLACEMENT_STRATEGIES, f"classes[{index}].strategy")
        check_selector(placement_class.selector, f"classes[{index}].selector")
    for index, word in enumerate(wire.budgets_yield_to):
        _choice(word, BUDGETS_YIELD_TO, f"budgetsYieldTo[{index}]")
    if wire.defrag.max_moves < 0:
        raise InputError(f"{wire.defrag.max_moves} moves", path="defrag.maxMoves", remedy="use 0 or more")
    if wire.backfill.depth < 0:
        raise InputError(f"depth {wire.backfill.depth}", path="backfill.depth", remedy="use 0 or more")
    if not 0 <= wire.backfill.run_time_percentile <= 100:
        where = "backfill.runTimePercentile"
        raise InputError(f"percentile {wire.backfill.run_time_percentile}", path=where, remedy="use 0 to 100")
    _check_rules(wire.resources)
    plain = Settings(
        scheduler_names=wire.scheduler_names,
        node_selector=wire.node_selector,
        placement=wire.placement,
        seed=wire.seed,
        classes=wire.classes,
        budgets_yield_to=wire.budgets_yield_to,
        min_run_seconds=_seconds(wire.min_run_time, "minRunTime"),
        restart_seconds=_seconds(wire.restart_cost, "restartCost"),
        lost_seconds_cap=_seconds(wire.lost_work_cap, "lostWorkCap"),
        lost_seconds_caps={
            queue: _seconds(text, f"lostWorkCaps.{queue}") for queue, text in wire.lost_work_caps.items()
        },
        run_time_seconds=_run_times(wire.backfill.run_times),
        run_time_percentile=wire.backfill.run_time_percentile,
        ask_seconds=_seconds(wire.ask_deadline, "askDeadline"),
        max_ask_seconds=_seconds(wire.max_ask_deadline, "maxAskDeadline"),
        gang_grace_seconds=_seconds(wire.gang_grace, "gangGrace"),
        defrag=wire.defrag,
        backfill_depth=wire.backfill.depth,
        reservation_lead_seconds=_seconds(wire.backfill.reservation_lead, "backfill.reservationLead"),
        topology_levels=wire.topology_levels,
        resources=wire.resources,
        currency=check_currency(wire.usage.currency),
        gpu_hour_micro_prices=micro_prices(wire.usage.gpu_hour_prices),
    )
    plain = _with_readiness(plain, wire.wait_for_pods_ready)
    return _with_sharing(plain, wire.fair_sharing, wire.admission_fair_sharing)


def kueue_settings(wire: KueueConfiguration) -> Settings:
    _check_rules(wire.resources)
    settings = _with_readiness(Settings(resources=wire.resources), wire.wait_for_pods_ready)
    return _with_sharing(settings, wire.fair_sharing, wire.admission_fair_sharing)


def ignored_fields(written: Mapping[str, object]) -> tuple[str, ...]:
    """Fields of Kueue's configuration that Windlass ignores."""
    known = (*KUEUE_FIELDS_READ, "apiVersion", "kind", "metadata")
    return tuple(sorted(name for name in written if name not in known))


def _with_readiness(settings: Settings, ready: WaitForPodsReady | None) -> Settings:
    if ready is None or not ready.enable:
        return settings
    path = "waitForPodsReady.requeuingStrategy.timestamp"
    timestamp = _choice(ready.requeuing_strategy.timestamp, ("Eviction", "Creation"), path)
    return msgspec.structs.replace(
        settings,
        ready_seconds=_seconds(ready.timeout, "waitForPodsReady.timeout"),
        recovery_seconds=_seconds(ready.recovery_timeout, "waitForPodsReady.recoveryTimeout")
        if ready.recovery_timeout
        else None,
        requeue_limit=ready.requeuing_strategy.backoff_limit_count,
        requeue_base_seconds=ready.requeuing_strategy.backoff_base_seconds,
        requeue_max_seconds=ready.requeuing_strategy.backoff_max_seconds,
        block_admission=ready.block_admission,
        requeue_at_creation=timestamp == "Creation",
    )


def transform_requests(requests: Mapping[str, int], rules: ResourceRules) -> dict[str, int]:
    """Requests as quota counts them: what is excluded left out, what is transformed added or replaced."""
    kept = {
        name: amount
        for name, amount in requests.items()
        if not name.startswith(rules.exclude_resource_prefixes or ("\0",))
    }
    if not rules.transformations:
        return kept
    rule_of = {rule.input: rule for rule in rules.transformations}
    made: dict[str, int] = {}
    for name, amount in kept.items():
        rule = rule_of.get(name)
        if rule is None or rule.strategy == "Retain":
            made[name] = made.get(name, 0) + amount
        if rule is not None:
            for output, units in _outputs(rule, amount, kept).items():
                made[output] = made.get(output, 0) + units
    return made


def _outputs(rule: Transformation, amount: int, requests: Mapping[str, int]) -> dict[str, int]:
    natural = Fraction(amount, _scale(rule.input))
    if rule.multiply_by:
        natural *= Fraction(requests.get(rule.multiply_by, 0), _scale(rule.multiply_by))
    exact = {name: natural * parse_quantity(raw) * _scale(name) for name, raw in rule.outputs.items()}
    return {name: -(-value.numerator // value.denominator) for name, value in exact.items()}


def _scale(resource: str) -> int:
    """Units in which quota counts the resource, per unit that people write."""
    return MILLI_PER_GPU if resource in _IN_THOUSANDTHS else 1


def _with_sharing(settings: Settings, fair: FairSharing | None, usage: AdmissionFairSharing | None) -> Settings:
    if fair is not None and fair.enable:
        strategies = fair.preemption_strategies or STRATEGY_LISTS[0]
        if strategies not in STRATEGY_LISTS:
            raise InputError(
                f"{', '.join(strategies)} is not a list of strategies",
                path="fairSharing.preemptionStrategies",
                remedy=f"use {FINAL_SHARE}, {INITIAL_SHARE}, or both in this order",
            )
        settings = msgspec.structs.replace(settings, fair_sharing=True, preemption_strategies=strategies)
    if usage is not None:
        where = "admissionFairSharing"
        settings = msgspec.structs.replace(
            settings,
            usage_half_life_seconds=_seconds(usage.usage_half_life_time, f"{where}.usageHalfLifeTime"),
            usage_sampling_seconds=_seconds(usage.usage_sampling_interval, f"{where}.usageSamplingInterval"),
            resource_weights_milli={
                name: _weight(raw, f"{where}.resourceWeights.{name}") for name, raw in usage.resource_weights.items()
            },
        )
    return settings


def _check_rules(rules: ResourceRules) -> None:
    path = "resources"
    strategies = ("BlockUndeclared", "IgnoreUndeclared")
    _choice(rules.quota_check_strategy, strategies, f"{path}.quotaCheckStrategy")
    inputs = [rule.input for rule in rules.transformations]
    for index, rule in enumerate(rules.transformations):
        where = f"{path}.transformations[{index}]"
        _choice(rule.strategy, ("Retain", "Replace"), f"{where}.strategy")
        if rule.input in inputs[:index]:
            raise InputError(f"{rule.input} is transformed twice", path=f"{where}.input", remedy="merge them")
        for name, raw in rule.outputs.items():
            _weight(raw, f"{where}.outputs.{name}")


def _weight(raw: RawQuantity, path: str) -> int:
    try:
        weight = milli_value(raw)
    except InputError as error:
        raise error.with_context(path=path) from None
    if weight < 0:
        raise InputError(f"{raw!r} is negative", path=path, remedy="use 0 or more")
    return weight


def _run_times(run_times: Mapping[str, str]) -> dict[str, int]:
    for queue in run_times:
        if queue.count("/") != 1:
            path, remedy = f"backfill.runTimes.{queue}", "use namespace/name"
            raise InputError(f"{queue!r} is not a LocalQueue", path=path, remedy=remedy)
    return {queue: _seconds(text, f"backfill.runTimes.{queue}") for queue, text in run_times.items()}


def _seconds(text: str, path: str) -> int:
    try:
        return parse_duration(text)
    except InputError as error:
        raise error.with_context(path=path) from None


def _choice(value: str, known: tuple[str, ...], path: str) -> str:
    if value not in known:
        raise InputError(f"unknown value {value!r}", path=path, remedy=f"use one of {', '.join(known)}")
    return value
