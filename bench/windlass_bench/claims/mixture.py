"""A park's mixed work, fixed by a seed: inference services, training gangs, experiments, and the failures they meet.

Fed to `classes`. Half of a service's replicas run all day and the others for twelve hours of it; training comes in pods
of eight GPUs; experiments take a GPU or two. Nodes and racks fail at drawn times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.meta import LabelSelector, ObjectMeta
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    QUEUE_NAME_LABEL,
)
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod, TopologySpreadConstraint
from windlass.simulate.pod_templates import PodSize, make_template
from windlass.simulate.random_stream import RandomStream, mean_of_quantiles
from windlass_bench.claims.parks import GPUS_PER_NODE
from windlass_bench.claims.task_cluster import Outage
from windlass_bench.claims.tasks import Task

SERVICE, TRAINING, EXPERIMENT = "service", "training", "experiment"
KINDS = (SERVICE, TRAINING, EXPERIMENT)
TIER, APP = "tier", "app"
DAY, HOUR = 86_400, 3600
SHARE_MILLI = 400
"""Of a GPU, for one replica: two fit on one."""
REPLICAS_BY_NIGHT, REPLICAS_BY_DAY = 3, 3
SERVICE_RESTART, TRAINING_RESTART, EXPERIMENT_RESTART = 120, 300, 60
TRAINING_CHECKPOINT = 600
TRAINING_PODS = ((60, 1), (25, 2), (15, 4))
TRAINING_SHARES, TRAINING_SECONDS = (0.0, 0.5, 0.9, 1.0), (1800.0, 10_800.0, 43_200.0, 86_400.0)
EXPERIMENT_GPUS = ((80, 1), (20, 2))
EXPERIMENT_SHARES, EXPERIMENT_SECONDS = (0.0, 0.5, 0.9, 1.0), (300.0, 3600.0, 14_400.0, 43_200.0)


class WorkloadMixture(msgspec.Struct, frozen=True):
    """How much of what, in percent of the park's GPUs."""

    nodes: int = 32
    nodes_per_rack: int = 4
    days: int = 2
    services: int = 16
    training_pct: int = 45
    experiment_pct: int = 15
    node_failures: int = 12
    rack_failures: int = 4
    tick: int = 120
    """Seconds of a scheduling cycle."""

    @property
    def horizon(self) -> int:
        return self.days * DAY

    @property
    def gpus(self) -> int:
        return self.nodes * GPUS_PER_NODE


def draw_tasks(
    mixture: WorkloadMixture, seed: int, prefer_rack: bool = False, spread_replicas: bool = False
) -> list[Task]:
    """All work; with `near`, training asks for nodes of one rack where there are some; with `apart`, the replicas of
    a service are evenly spread over the racks, and no two of them are on one node."""
    return [
        *_services(mixture, seed, spread_replicas),
        *_training(mixture, seed, prefer_rack),
        *_experiments(mixture, seed),
    ]


def draw_outages(mixture: WorkloadMixture, nodes: Sequence[Node], seed: int) -> tuple[Outage, ...]:
    """One node for two hours each, one rack for one hour each; none in the first hours, and no two at a time."""
    many = mixture.node_failures + mixture.rack_failures
    racks = sorted({node.labels[RACK_LABEL] for node in nodes})
    by_rack = {rack: tuple(node.name for node in nodes if node.labels[RACK_LABEL] == rack) for rack in racks}
    slot = (mixture.horizon - 6 * HOUR) // max(1, many)
    order = RandomStream(seed, 20).permutation(many).tolist()
    which = RandomStream(seed, 21).integers_below(1 << 30, many).tolist()
    outages = []
    for number, place in enumerate(order):
        at = 6 * HOUR + place * slot
        if number < mixture.node_failures:
            names: tuple[str, ...] = (nodes[which[number] % len(nodes)].name,)
            outages.append(Outage(at, at + min(2 * HOUR, slot - 1), names))
        else:
            names = by_rack[racks[which[number] % len(racks)]]
            outages.append(Outage(at, at + min(HOUR, slot - 1), names))
    return tuple(sorted(outages, key=lambda outage: outage.at))


def _services(mixture: WorkloadMixture, seed: int, apart: bool) -> Iterator[Task]:
    opening = RandomStream(seed, 10).integers_below(6 * HOUR, mixture.services).tolist()
    size = PodSize(2_000, 16_384, 1, SHARE_MILLI)
    for number in range(mixture.services):
        name = f"service-{number:02}"
        for replica in range(REPLICAS_BY_NIGHT):
            yield _service_task(f"{name}-{replica}", name, size, 60 * number, None, apart)
        for day in range(mixture.days):
            start = day * DAY + 6 * HOUR + opening[number]
            for replica in range(REPLICAS_BY_DAY):
                yield _service_task(f"{name}-day-{day}-{replica}", name, size, start, 12 * HOUR, apart)


def _service_task(name: str, app: str, size: PodSize, arrival: int, seconds: int | None, apart: bool) -> Task:
    pod = _pod(name, size, {TIER: SERVICE, APP: app})
    if apart:
        selector = LabelSelector(match_labels={APP: app})
        limits = tuple(
            TopologySpreadConstraint(
                max_skew=1, topology_key=key, when_unsatisfiable="DoNotSchedule", label_selector=selector
            )
            for key in (RACK_LABEL, HOSTNAME_LABEL)
        )
        spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=limits)
        pod = msgspec.structs.replace(pod, spec=spec)
    return Task(name, (pod,), arrival, seconds, SERVICE, 1, SERVICE_RESTART)  # nothing that it did is undone


def _training(mixture: WorkloadMixture, seed: int, near: bool) -> Iterator[Task]:
    pods_mean = sum(weight * pods for weight, pods in TRAINING_PODS) / 100
    mean = pods_mean * GPUS_PER_NODE * mean_of_quantiles(TRAINING_SHARES, TRAINING_SECONDS)
    count = round(mixture.training_pct / 100 * mixture.gpus * mixture.horizon / mean)
    sizes = RandomStream(seed, 11).weighted_choice([weight for weight, _ in TRAINING_PODS], count).tolist()
    seconds = RandomStream(seed, 12).from_quantiles(TRAINING_SHARES, TRAINING_SECONDS, count).tolist()
    arrivals = sorted(RandomStream(seed, 13).integers_below(mixture.horizon, count).tolist())
    size = PodSize(64_000, 524_288, GPUS_PER_NODE)
    for number in range(count):
        name, pods = f"training-{number:04}", TRAINING_PODS[sizes[number]][1]
        labels = {TIER: TRAINING, QUEUE_NAME_LABEL: TRAINING}
        annotations = {PREFERRED_TOPOLOGY_ANNOTATION: RACK_LABEL} if near else {}
        if pods > 1:
            labels[KUEUE_POD_GROUP_NAME] = name
            annotations[POD_GROUP_TOTAL_COUNT_ANNOTATION] = str(pods)
        members = tuple(_pod(f"{name}-{index}", size, labels, annotations) for index in range(pods))
        duration = int(seconds[number])
        yield Task(name, members, arrivals[number], duration, TRAINING, TRAINING_CHECKPOINT, TRAINING_RESTART)


def _experiments(mixture: WorkloadMixture, seed: int) -> Iterator[Task]:
    gpus_mean = sum(weight * gpus for weight, gpus in EXPERIMENT_GPUS) / 100
    mean = gpus_mean * mean_of_quantiles(EXPERIMENT_SHARES, EXPERIMENT_SECONDS)
    count = round(mixture.experiment_pct / 100 * mixture.gpus * mixture.horizon / mean)
    sizes = RandomStream(seed, 14).weighted_choice([weight for weight, _ in EXPERIMENT_GPUS], count).tolist()
    seconds = RandomStream(seed, 15).from_quantiles(EXPERIMENT_SHARES, EXPERIMENT_SECONDS, count).tolist()
    arrivals = sorted(RandomStream(seed, 16).integers_below(mixture.horizon, count).tolist())
    for number in range(count):
        name, gpus = f"experiment-{number:05}", EXPERIMENT_GPUS[sizes[number]][1]
        pod = _pod(name, PodSize(8_000 * gpus, 65_536 * gpus, gpus), {TIER: EXPERIMENT})
        duration = int(seconds[number])
        yield Task(name, (pod,), arrivals[number], duration, EXPERIMENT, 0, EXPERIMENT_RESTART)


def _pod(name: str, size: PodSize, labels: dict[str, str], annotations: dict[str, str] | None = None) -> Pod:
    template = make_template(size)
    metadata = ObjectMeta(name=name, labels=labels, annotations={**template.annotations, **(annotations or {})})
    return Pod(metadata=metadata, spec=template.spec)
