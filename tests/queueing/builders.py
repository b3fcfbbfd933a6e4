"""Small queues and workloads for tests, and `carry_out`, which applies outcomes without a clock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.meta import LabelSelector
from windlass.model.pod import Container, Pod, PodSpec, ResourceRequirements
from windlass.model.queue import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    FlavorResourceQuota,
    Fungibility,
    LocalQueue,
    PreemptionPolicy,
    QueueSystem,
    ResourceFlavor,
    ResourceGroup,
)
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.queueing.admit import admit
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PlacementInterface, UnlimitedPlacement

RESOURCE = "cpu"
NOW = 1_000_000
NO_PREEMPTION = PreemptionPolicy()
PLAIN = Fungibility()
CLASSIC = QueueConfig()


def cell(nominal: int, borrowing: int | None = None, lending: int | None = None) -> FlavorResourceQuota:
    """In whole CPUs."""
    limits = [None if limit is None else limit * 1000 for limit in (borrowing, lending)]
    return FlavorResourceQuota(nominal * 1000, *limits)


def group(cells: dict[str, FlavorResourceQuota], resource: str = RESOURCE) -> ResourceGroup:
    return ResourceGroup((resource,), tuple(FlavorQuotas(flavor, {resource: quota}) for flavor, quota in cells.items()))


def queue(
    name: str,
    quota: FlavorResourceQuota | dict[str, FlavorResourceQuota],
    *,
    cohort: str = "",
    preemption: PreemptionPolicy = NO_PREEMPTION,
    fungibility: Fungibility = PLAIN,
    strategy: str = "BestEffortFIFO",
    weight_milli: int = 1000,
    **more: object,
) -> ClusterQueue:
    cells = quota if isinstance(quota, dict) else {"default": quota}
    made = ClusterQueue(
        name=name,
        cohort=cohort,
        resource_groups=(group(cells),),
        queueing_strategy=strategy,
        preemption=preemption,
        fungibility=fungibility,
        fair_weight_milli=weight_milli,
        namespace_selector=LabelSelector(),
    )
    return msgspec.structs.replace(made, **more) if more else made


def system(queues: Sequence[ClusterQueue], cohorts: Sequence[Cohort] = (), **more: object) -> QueueSystem:
    """Every queue has a local queue of its own name in the namespace `team`."""
    flavors = {quotas.flavor for queue in queues for part in queue.resource_groups for quotas in part.flavors}
    made = QueueSystem(
        queues={queue.name: queue for queue in queues},
        cohorts={cohort.name: cohort for cohort in cohorts},
        local_queues={f"team/{one.name}": LocalQueue(f"team/{one.name}", one.name) for one in queues},
        flavors={name: ResourceFlavor(name) for name in flavors},
    )
    return msgspec.structs.replace(made, **more) if more else made


def template(cpus: int, **spec: object) -> Pod:
    requests = ResourceRequirements(requests={RESOURCE: str(cpus)})
    return Pod(spec=PodSpec(containers=(Container(name="main", resources=requests),), **spec))  # type: ignore[arg-type]


def waiting(
    name: str,
    local_queue: str,
    cpus: int,
    *,
    count: int = 1,
    priority: int = 0,
    created: int = 1,
    min_count: int | None = None,
    **more: object,
) -> Workload:
    made = Workload(
        key=f"team/{name}",
        kind="Workload",
        pod_sets=(PodSet("main", count, template(cpus), min_count),),
        uid=name,
        queue_name=local_queue,
        priority=priority,
        created=created,
        queued_at=created,
    )
    return msgspec.structs.replace(made, **more) if more else made


def running(
    name: str,
    local_queue: str,
    cpus: int,
    *,
    flavor: str = "default",
    reserved_at: int = NOW - 100,
    **more: object,
) -> Workload:
    made = waiting(name, local_queue, cpus, **more)  # type: ignore[arg-type]
    total = cpus * made.pod_sets[0].count * 1000
    held = PodSetAssignment("main", made.pod_sets[0].count, {RESOURCE: flavor}, {RESOURCE: total})
    return msgspec.structs.replace(made, admission=Admission(local_queue, (held,), reserved_at))


def decide(
    queues: QueueSystem,
    workloads: Sequence[Workload],
    config: QueueConfig = CLASSIC,
    placement: PlacementInterface | None = None,
    now: int = NOW,
) -> list[Outcome]:
    return admit(queues, workloads, config, now, placement or UnlimitedPlacement())


def admitted(outcomes: Sequence[Outcome]) -> dict[str, Admitted]:
    return {outcome.workload.partition("/")[2]: outcome for outcome in outcomes if isinstance(outcome, Admitted)}


def evicted(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Name → reason."""
    return {outcome.workload.partition("/")[2]: outcome.reason for outcome in outcomes if isinstance(outcome, Evicted)}


def held(outcomes: Sequence[Outcome]) -> dict[str, Held]:
    return {outcome.workload.partition("/")[2]: outcome for outcome in outcomes if isinstance(outcome, Held)}


def carry_out(workloads: Sequence[Workload], outcomes: Sequence[Outcome], now: int) -> list[Workload]:
    """Victims end at once; workloads that wait for them become nominated and are decided again."""
    promised = {outcome.workload for outcome in outcomes if isinstance(outcome, Admitted) and outcome.after}
    gone = {outcome.workload for outcome in outcomes if isinstance(outcome, Evicted)}
    starts = {outcome.workload: outcome for outcome in outcomes if isinstance(outcome, Admitted) and not outcome.after}
    return [
        msgspec.structs.replace(
            _after(workload, workload.key in gone, starts.get(workload.key), now),
            nominated=workload.key in promised,
        )
        for workload in workloads
    ]


def _after(workload: Workload, is_gone: bool, start: Admitted | None, now: int) -> Workload:
    if is_gone or workload.evicting:
        return msgspec.structs.replace(workload, admission=None, evicting=False, evictions=workload.evictions + 1)
    if start is None:
        return workload
    parts = tuple(
        PodSetAssignment(
            choice.name,
            choice.count,
            choice.flavors,
            {RESOURCE: workload.pod_sets[index].count and choice.count * per_pod(workload, index)},
            nodes=start.nodes[index] if start.nodes else {},
        )
        for index, choice in enumerate(start.choices)
    )
    return msgspec.structs.replace(workload, admission=Admission(start.cluster_queue, parts, now))


def per_pod(workload: Workload, index: int) -> int:
    return UnlimitedPlacement().requests(workload, workload.pod_sets[index])[RESOURCE]
