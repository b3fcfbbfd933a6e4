"""Work conservation beside planned starts: random queues in a cohort with run-time limits, one decision each.

A job at the head of its queue, within nominal quota, that fits now beside everything that runs, starts and is planned,
starts now. The judge knows objects and decisions only: it adds up GPUs by node and by queue at every moment at which a
planned start begins. And what a hold says about a planned start is what the plan reserves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp
from windlass.planner import plan_objects

NOW = 1_800_000_000
FOREVER = 1 << 60
NODE_GPUS = 8
SEEDS = 12
"""In one test, of eight."""
DELAYS = re.compile(r"it would delay (\S+?)(?: of ClusterQueue \S+)?, which is planned for (\S+Z)")
PREEMPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"reclaimWithinCohort": "Any"},
    {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    {"reclaimWithinCohort": "LowerPriority", "withinClusterQueue": "LowerOrNewerEqualPriority"},
)


class Job(NamedTuple):
    name: str
    queue: int
    pods: int
    gpus: int
    """Of one pod."""
    limit: int | None
    priority: int
    created: int
    nodes: tuple[str, ...] = ()
    """Where it runs; empty: it waits."""

    @property
    def key(self) -> str:
        return f"d/{self.name}"

    @property
    def order(self) -> tuple[int, int, str]:
        return (-self.priority, self.created, self.name)


class Span(NamedTuple):
    """GPUs that a job takes from one moment to another."""

    job: Job
    start: int
    end: int
    pods_by_node: Counter[str]

    def gpus(self) -> int:
        return self.job.gpus * self.pods_by_node.total()


class World(NamedTuple):
    nodes: int
    nominal: tuple[int, ...]
    """By queue, in GPUs; together they are all."""
    borrowing_limit: int | None
    strict: tuple[bool, ...]
    preemption: dict[str, Any]
    limit_form: str
    jobs: tuple[Job, ...]


def draw_world(seed: int) -> World:
    random = Random(seed)
    nodes = random.choice([4, 8, 8])
    total = nodes * NODE_GPUS
    nominal = random.choice([(total // 2, total // 2), (total // 4, total // 4, total // 2)])
    running = list(_draw_running(random, nodes, len(nominal)))
    with_limit = random.choice([0.5, 0.9, 1, 1])
    waiting = [
        Job(
            f"w{number:02}",
            random.randrange(len(nominal)),
            random.choice([1, 1, 2, 3, 4, 6, 8]),
            random.choice([1, 2, 2, 4, 8]),
            random.choice([600, 1800, 3600, 7200, 86400]) if random.random() < with_limit else None,
            random.choice([0, 0, 0, 10, 100]),
            NOW - random.randint(0, 100),
        )
        for number in range(random.randint(5, 16))
    ]
    return World(
        nodes,
        nominal,
        random.choice([None, None, total // 4]),
        tuple(random.random() < 0.3 for _ in nominal),
        random.choice(PREEMPTIONS),
        random.choice(["annotation", "label"]),
        (*running, *waiting),
    )


def _draw_running(random: Random, nodes: int, queues: int) -> Iterator[Job]:
    free = {f"n{number}": NODE_GPUS for number in range(nodes)}
    for number in range(random.choice([0, 0, 2, 4, 6])):
        gpus, pods = random.choice([1, 2, 4, 8]), random.choice([1, 2, 3])
        fits = [name for name, left in free.items() for _ in range(left // gpus)]
        if len(fits) < pods:
            continue
        places = tuple(random.sample(fits, pods))
        for name in places:
            free[name] -= gpus
        limit = random.choice([600, 3600, 86400, None])
        created = NOW - random.randint(10, 500)
        yield Job(f"r{number}", random.randrange(queues), pods, gpus, limit, 0, created, places)


# Objects


def objects_of(world: World) -> list[dict[str, Any]]:
    made = [_node(f"n{number}") for number in range(world.nodes)]
    made.append({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "f"}})
    for number in range(len(world.nominal)):
        local = {"name": f"l{number}", "namespace": "d"}
        made += [
            _cluster_queue(world, number),
            {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": f"q{number}"}},
        ]
    for job in world.jobs:
        made += _job_objects(job, world.limit_form)
    return made


KUEUE = "kueue.x-k8s.io/v1beta1"


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "96", "memory": "900Gi", "pods": "110", "nvidia.com/gpu": str(NODE_GPUS)}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": amounts, "capacity": amounts}
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.count": str(NODE_GPUS)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": ready}


def _cluster_queue(world: World, number: int) -> dict[str, Any]:
    quota: dict[str, Any] = {"name": "nvidia.com/gpu", "nominalQuota": str(world.nominal[number])}
    if world.borrowing_limit is not None:
        quota["borrowingLimit"] = str(world.borrowing_limit)
    spec = {
        "cohort": "c",
        "namespaceSelector": {},
        "queueingStrategy": "StrictFIFO" if world.strict[number] else "BestEffortFIFO",
        "resourceGroups": [
            {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "f", "resources": [quota]}]},
        ],
        **({"preemption": world.preemption} if world.preemption else {}),
    }
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": f"q{number}"}, "spec": spec}


def _job_objects(job: Job, limit_form: str) -> Iterator[dict[str, Any]]:
    labels = {"kueue.x-k8s.io/queue-name": f"l{job.queue}"}
    annotations = {}
    if job.limit is not None and limit_form == "label":
        labels["kueue.x-k8s.io/max-exec-time-seconds"] = str(job.limit)
    elif job.limit is not None:
        annotations["windlass.dev/duration"] = f"{job.limit}s"
    requests = {"requests": {"nvidia.com/gpu": str(job.gpus)}, "limits": {"nvidia.com/gpu": str(job.gpus)}}
    pod_spec = {
        "restartPolicy": "Never",
        "priority": job.priority,
        "containers": [{"name": "main", "image": "train", "resources": requests}],
    }
    meta = {"namespace": "d", "creationTimestamp": format_timestamp(job.created)}
    named = {"name": job.name, "uid": job.name, "labels": labels, "annotations": annotations}
    spec = {"parallelism": job.pods, "completions": job.pods, "suspend": not job.nodes, "template": {"spec": pod_spec}}
    yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**meta, **named}, "spec": spec}
    if not job.nodes:
        return
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.name, "controller": True}]
    yield _admitted_workload(job, meta, owner, pod_spec, limit_form)
    for number, node in enumerate(job.nodes):
        name = {"name": f"{job.name}-{number}", "uid": f"{job.name}-{number}", "ownerReferences": owner}
        pod_meta = {**meta, **name, "labels": {"batch.kubernetes.io/job-name": job.name}, "annotations": annotations}
        status = {"phase": "Running", "startTime": format_timestamp(job.created)}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": pod_meta,
            "spec": {**pod_spec, "nodeName": node},
            "status": status,
        }


def _admitted_workload(
    job: Job, meta: dict[str, Any], owner: list[dict[str, Any]], pod_spec: dict[str, Any], limit_form: str
) -> dict[str, Any]:
    usage = {"nvidia.com/gpu": str(job.pods * job.gpus)}
    part = {"name": "main", "count": job.pods, "flavors": {"nvidia.com/gpu": "f"}, "resourceUsage": usage}
    since = format_timestamp(job.created)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since, "reason": kind, "message": ""}
        for kind in ("QuotaReserved", "Admitted")
    ]
    is_limited = job.limit is not None and limit_form == "label"
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {**meta, "name": f"job-{job.name}", "uid": f"w-{job.name}", "ownerReferences": owner},
        "spec": {
            "queueName": f"l{job.queue}",
            "podSets": [{"name": "main", "count": job.pods, "template": {"spec": pod_spec}}],
            **({"maximumExecutionTimeSeconds": job.limit} if is_limited else {}),
        },
        "status": {
            "admission": {"clusterQueue": f"q{job.queue}", "podSetAssignments": [part]},
            "conditions": conditions,
        },
    }


# The judge


def spans_of(world: World, plan: Plan) -> list[Span]:
    """What runs, starts now or is planned."""
    jobs = {job.key: job for job in world.jobs}
    spans = [
        Span(job, NOW, FOREVER if job.limit is None else job.created + job.limit, Counter(job.nodes))
        for job in world.jobs
        if job.nodes
    ]
    for admit in plan.admits:
        job = jobs[admit.workload]
        nodes = Counter[str]()
        for pod_set in admit.pod_sets:
            nodes.update(pod_set.nodes)
        spans.append(Span(job, NOW, FOREVER if job.limit is None else NOW + job.limit, nodes))
    for reserve in plan.reserves:
        until = FOREVER if reserve.until is None else reserve.until
        spans.append(Span(jobs[reserve.workload], reserve.start, until, Counter(reserve.nodes)))
    return spans


def disturbs_nothing(world: World, job: Job, spans: list[Span]) -> bool:
    """Whether the job could run from now to its end, within nominal quota, beside all spans but its own plan."""
    others = [span for span in spans if span.job.key != job.key]
    used_now = sum(span.gpus() for span in others if span.start <= NOW and span.job.queue == job.queue)
    wanted = job.pods * job.gpus
    if used_now + wanted > world.nominal[job.queue]:
        return False
    end = FOREVER if job.limit is None else NOW + job.limit
    most_used: Counter[str] = Counter()
    for moment in {NOW, *(span.start for span in others if NOW < span.start < end)}:
        active = [span for span in others if span.start <= moment < span.end]
        by_queue = Counter({job.queue: wanted})
        by_node: Counter[str] = Counter()
        for span in active:
            by_queue[span.job.queue] += span.gpus()
            by_node.update({node: pods * span.job.gpus for node, pods in span.pods_by_node.items()})
        most_used |= by_node
        if by_queue.total() > sum(world.nominal):
            return False
        limit = world.borrowing_limit
        if limit is not None and any(used > world.nominal[queue] + limit for queue, used in by_queue.items()):
            return False
    places = sum(max(0, NODE_GPUS - most_used[f"n{node}"]) // job.gpus for node in range(world.nodes))
    return places >= job.pods


def held_for_nothing(world: World, plan: Plan) -> list[str]:
    jobs = {job.key: job for job in world.jobs if not job.nodes}
    waits = [jobs[hold.workload] for hold in plan.holds if hold.workload in jobs]
    heads = [
        job
        for job in waits
        if not world.strict[job.queue]
        or job == min((one for one in waits if one.queue == job.queue), key=lambda one: one.order)
    ]
    spans = spans_of(world, plan)
    return [job.key for job in heads if disturbs_nothing(world, job, spans)]


def false_reasons(plan: Plan) -> list[Hold]:
    """Holds that name a planned start which the plan doesn't have."""
    starts = {(reserve.workload, format_timestamp(reserve.start)) for reserve in plan.reserves}
    named = [(hold, DELAYS.search(hold.verdict.message)) for hold in plan.holds]
    return [hold for hold, said in named if said is not None and (said[1], said[2]) not in starts]


@pytest.mark.parametrize("start", range(0, 8 * SEEDS, SEEDS))
def test_nothing_waits_that_delays_nobody(start: int) -> None:
    for seed in range(start, start + SEEDS):
        world = draw_world(seed)
        objects = [decode_object(tree) for tree in objects_of(world)]
        plan, _ = plan_objects(objects, Settings(), NOW)
        assert not false_reasons(plan), seed
        # Where something is evicted, the GPUs and the quota of both are in use for a while.
        if not plan.evicts:
            assert held_for_nothing(world, plan) == [], seed
