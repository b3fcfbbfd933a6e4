"""Generates synthetic traces from published statistics, so that the simulator can be tried without downloads.

`simulate.traces.load` calls `make_synthetic`. `simulate.published_statistics` has the sources. A seed gives the same
trace on every machine (`simulate.random_stream`).

    synthetic/openb-like   the openb method: 1,213 nodes of its 15 shapes, pods of its kinds and sizes until they
                           request 130 % of the GPUs; nothing ends, what does not fit is dropped
    synthetic/small        the same on 64 nodes
    synthetic/large        the same on 10,000 nodes, 100,000 pods (about 146 % of the GPUs), for the speed benchmark
    synthetic/training     gangs of 1 to 128 GPUs in pods of at most 8, on 128 nodes of 8 GPUs for two weeks: Philly's
                           daily cycle and run times by size, sizes between Helios and Acme; they queue
    synthetic/inference    pods with a share of a GPU, and one in eight with a whole one, on 64 nodes of 4 GPUs for
                           three days: openb's share sizes and life times, the daily cycle of a service; they queue

Arrivals are Poisson with a daily cycle: given their number, they are independent draws from the cycle, sorted. Times
are drawn from quantiles with linear interpolation, so that means of heavy tails are somewhat above the recorded ones.
The openb kinds request whole GPUs, too, with the annotations of that trace; memory is proportional to CPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.simulate.fleet import NodeSize, count_gpus, uniform_fleet
from windlass.simulate.pod_templates import (
    PodSize,
    PodTemplate,
    TemplateCache,
    count_shapes,
    make_job_pods,
    make_template,
    split_gpus_by_pod,
)
from windlass.simulate.published_statistics import (
    OPENB_KINDS,
    OPENB_NODE_COUNT,
    OPENB_NODES,
    OPENB_SHARE_SECONDS,
    PHILLY_HOURS,
    PHILLY_SECONDS_1,
    PHILLY_SECONDS_2_TO_4,
    PHILLY_SECONDS_8_UP,
    QUANTILES,
    SERVICE_HOURS,
    TRAINING_GPUS,
    PodKind,
)
from windlass.simulate.random_stream import Ints, RandomStream
from windlass.simulate.trace import Job, ShapeCount, Trace

DEFAULT_SEED = 42
DEMAND_PERCENT = 130
DAY = 86_400
SIZES, ARRIVALS, TIMES, RANKS = range(4)
"""Random streams of one seed, independent of each other."""

Nodes = tuple[Node, ...]


class SyntheticTrace(msgspec.Struct, frozen=True):
    description: str
    make: Callable[[str, int, Nodes | None], Trace]


def make_synthetic(name: str, *, seed: int | None = None, nodes: Nodes | None = None) -> Trace:
    """`name` is `synthetic/<name>`. `nodes` replace the trace's own fleet, also as the measure of demand."""
    recipe = SYNTHETIC_TRACES.get(name)
    if recipe is None:
        near = difflib.get_close_matches(name, SYNTHETIC_TRACES, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(SYNTHETIC_TRACES)}"
        raise InputError(f"unknown trace {name!r}", remedy=hint)
    return recipe.make(name, DEFAULT_SEED if seed is None else seed, nodes)


def openb_like_fleet(count: int) -> Nodes:
    """`count` nodes in openb's proportions, rounded by largest remainders."""
    exact = [count * weight / OPENB_NODE_COUNT for weight, _ in OPENB_NODES]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda shape: counts[shape] - exact[shape])
    for shape in by_remainder[: count - sum(counts)]:
        counts[shape] += 1
    shapes = enumerate(zip(counts, OPENB_NODES, strict=True))
    return uniform_fleet((f"node-{shape:02}", many, size) for shape, (many, (_, size)) in shapes)


class _PodClass(msgspec.Struct, frozen=True, eq=False):
    template: PodTemplate
    weight: int
    demand: int


def _classes(kinds: Sequence[PodKind]) -> list[_PodClass]:
    """Every size of every kind; a kind's weight is divided among its sizes."""
    scale = 1000  # keeps the divided weights whole numbers
    classes = []
    for kind in kinds:
        total = sum(weight for weight, _, _ in kind.sizes)
        for weight, cpu, milli in kind.sizes:
            size = PodSize(cpu, cpu * kind.mib_per_cpu // 1000, kind.gpus, milli)
            share = kind.weight * weight * scale // total
            classes.append(_PodClass(make_template(size), share, size.demand_milli))
    return classes


def _openb_like(fleet: int, pods: int | None, name: str, seed: int, nodes: Nodes | None) -> Trace:
    nodes = nodes or openb_like_fleet(fleet)
    classes = _classes(OPENB_KINDS)
    if pods is None:
        drawn = _draw_until(classes, 10 * DEMAND_PERCENT * count_gpus(nodes), seed)
    else:
        weights = [pod_class.weight for pod_class in classes]
        drawn = RandomStream(seed, SIZES).weighted_choice(weights, pods)
    jobs = []
    for number, choice in enumerate(drawn.tolist()):
        pod = f"pod-{number:06}"
        jobs.append(Job(pod, (classes[choice].template.make_pod(pod),)))
    declared = [ShapeCount(pod_class.template.make_pod("class"), pod_class.weight) for pod_class in classes]
    return Trace(
        name=name,
        nodes=nodes,
        jobs=tuple(jobs),
        retry=False,
        ranks=tuple(RandomStream(seed, RANKS).permutation(len(nodes)).tolist()),
        declared=tuple(declared),
        seed=seed,
        order="generated",
    )


def _draw_until(classes: list[_PodClass], target: int, seed: int) -> Ints:
    """Draws classes of pods as long as their total demand is at most `target` milli-GPUs."""
    draws, weights = RandomStream(seed, SIZES), [pod_class.weight for pod_class in classes]
    demand = np.array([pod_class.demand for pod_class in classes], dtype=np.int64)
    drawn = np.empty(0, dtype=np.int64)
    while demand[drawn].sum() <= target:
        drawn = np.concatenate([drawn, draws.weighted_choice(weights, 4096)])
    return drawn[: int(np.searchsorted(np.cumsum(demand[drawn]), target, side="right"))]


def _training(name: str, seed: int, nodes: Nodes | None) -> Trace:
    fleet = nodes or uniform_fleet((("node", 128, NodeSize(128_000, 1_048_576, 8, "NVIDIA-H100-80GB-HBM3")),))
    count, templates = 2_000, TemplateCache()
    choices = RandomStream(seed, SIZES).weighted_choice([weight for weight, _ in TRAINING_GPUS], count)
    gpus = np.array([size for _, size in TRAINING_GPUS], dtype=np.int64)[choices]
    seconds = np.zeros(count, dtype=np.int64)
    tables = ((1, PHILLY_SECONDS_1), (2, PHILLY_SECONDS_2_TO_4), (8, PHILLY_SECONDS_8_UP))
    for stream, (least, table) in enumerate(tables):
        draws = RandomStream(seed, TIMES + 100 * (stream + 1))
        drawn = draws.from_quantiles(QUANTILES, table, count).astype(np.int64)
        seconds = np.where(gpus >= least, drawn, seconds)
    arrivals = _arrivals(RandomStream(seed, ARRIVALS), PHILLY_HOURS, 14, count)
    jobs = []
    drawn_jobs = zip(arrivals, gpus.tolist(), seconds.tolist(), strict=True)
    for number, (at, size, duration) in enumerate(drawn_jobs):
        job = f"job-{number:05}"
        sizes = [PodSize(8_000 * part, 65_536 * part, part) for part in split_gpus_by_pod(size)]
        jobs.append(Job(job, make_job_pods(job, list(map(templates.get, sizes))), at, max(1, duration)))
    return _queued(name, seed, fleet, jobs)


def _inference(name: str, seed: int, nodes: Nodes | None) -> Trace:
    fleet = nodes or uniform_fleet((("node", 64, NodeSize(64_000, 524_288, 4, "NVIDIA-L4")),))
    count = 24_000
    kinds = {kind.name: kind for kind in OPENB_KINDS}
    shared = msgspec.structs.replace(kinds["gpu-share"], weight=7)
    whole = msgspec.structs.replace(kinds["one-gpu"], weight=1)
    classes = _classes((shared, whole))
    weights = [pod_class.weight for pod_class in classes]
    choices = RandomStream(seed, SIZES).weighted_choice(weights, count)
    seconds = RandomStream(seed, TIMES).from_quantiles(QUANTILES, OPENB_SHARE_SECONDS, count).astype(np.int64)
    arrivals = _arrivals(RandomStream(seed, ARRIVALS), SERVICE_HOURS, 3, count)
    jobs = []
    drawn_jobs = zip(arrivals, choices.tolist(), seconds.tolist(), strict=True)
    for number, (at, choice, duration) in enumerate(drawn_jobs):
        pod = f"pod-{number:05}"
        jobs.append(Job(pod, (classes[choice].template.make_pod(pod),), at, max(1, duration)))
    return _queued(name, seed, fleet, jobs)


def _arrivals(draws: RandomStream, hours: Sequence[int], days: int, count: int) -> list[int]:
    """Sorted seconds of arrival: hours of the day in proportion to their weights, uniform within an hour."""
    day, hour = draws.integers_below(days, count), draws.weighted_choice(hours, count)
    seconds = day * DAY + hour * 3600 + draws.integers_below(3600, count)
    return [int(second) for second in np.sort(seconds)]


def _queued(name: str, seed: int, fleet: Nodes, jobs: list[Job]) -> Trace:
    mix = count_shapes(pod for job in jobs for pod in job.pods)
    return Trace(name=name, nodes=fleet, jobs=tuple(jobs), retry=True, declared=mix, seed=seed, order="generated")


_RECIPES: tuple[tuple[str, str, Callable[[str, int, Nodes | None], Trace]], ...] = (
    (
        "openb-like",
        "shapes and mix of openb/default, 1,213 nodes",
        partial(_openb_like, OPENB_NODE_COUNT, None),
    ),
    ("small", "the same on 64 nodes, for a first look", partial(_openb_like, 64, None)),
    ("large", "the same on 10,000 nodes, 100,000 pods", partial(_openb_like, 10_000, 100_000)),
    ("training", "gangs of up to 128 GPUs for two weeks, 128 nodes of 8 GPUs", _training),
    ("inference", "shared GPUs that come and go for three days, 64 nodes of 4 GPUs", _inference),
)
SYNTHETIC_TRACES = {f"synthetic/{name}": SyntheticTrace(words, make) for name, words, make in _RECIPES}
