"""Reads job logs with submission times: Philly (two extracts) and Helios. Called by `traces.load`.

Files under the traces folder: `philly/philly_jobs_82k.csv`, `philly/philly_last15k.csv` and
`helios/helios_last15k.csv`. `--nodes` replaces the fleets.

Assumptions for all three:
- A job of more than 8 GPUs is split into pods of 8 and a rest, which start and end together.
- What does not fit waits. A job runs for its recorded duration, whatever its final state (passed, killed, failed), and
  at least one second; the first submission is second 0.
- Jobs are named after their row in the file, from 0, and sorted by submission, then by row.

Philly (Microsoft, 2017): no CPU or memory requests are recorded, so pods have none. The fleet has 552 nodes with 2,490
GPUs, in servers of two kinds, 2 GPUs of 12 GB or 8 GPUs of 24 GB; only 321 nodes of 2 and 231 of 8 give these sums. CPU
(4 vCPU per GPU) and memory (32 GiB per GPU) of the nodes are invented and never bind. `philly/<virtual cluster>` has
the jobs of one virtual cluster, on the whole fleet, since the extract doesn't say how many GPUs each had. The trace
keeps some 374 GPUs busy on average, its last 15,000 jobs some 554.

Helios (SenseTime, 2020): a job's CPUs are divided evenly among its pods, rounded up to a milli-CPU; a job without GPUs
has one pod for each of its nodes. The fleet is all four clusters, 802 nodes of 8 GPUs: 276 with 48 CPU threads and 376
GiB (Venus 133, Earth 143), 526 with 64 and 256 GiB (Saturn 262, Uranus 264). The extract keeps some 740 GPUs busy on
average.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.simulate.fleet import NodeSize, uniform_fleet
from windlass.simulate.pod_templates import (
    PodSize,
    PodTemplate,
    TemplateCache,
    count_shapes,
    make_job_pods,
    split_gpus_by_pod,
)
from windlass.simulate.trace import Job, Trace
from windlass.simulate.traces.csv_table import Table, read_table

PHILLY_FILE = "philly/philly_jobs_82k.csv"
PHILLY_LAST_FILE = "philly/philly_last15k.csv"
HELIOS_FILE = "helios/helios_last15k.csv"
PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
LOG_COLUMNS = (
    *("u_id", "user", "gpu_num", "cpu_num", "node_num"),
    *("interval", "run_time", "wall_time", "new_status"),
)
MAX_GPUS_PER_JOB = 100_000
PHILLY_CLUSTERS = (
    *("103959", "11cb48", "6214e9", "6c71a0", "b436b2", "ee9e8c", "0e4a51", "ed69ec"),
    *("7f04ca", "2869ce", "e13805", "23dbec", "51b7ef", "925e2b", "795a4c"),
)


def philly_fleet() -> tuple[Node, ...]:
    small = NodeSize(8_000, 65_536, 2, "philly-12gb", 12_288)
    large = NodeSize(32_000, 262_144, 8, "philly-24gb", 24_576)
    return uniform_fleet((("philly-2gpu", 321, small), ("philly-8gpu", 231, large)))


def helios_fleet() -> tuple[Node, ...]:
    volta = NodeSize(48_000, 376 * 1024, 8, "helios-volta")
    pascal = NodeSize(64_000, 256 * 1024, 8, "helios-pascal")
    return uniform_fleet((("helios-48cpu", 276, volta), ("helios-64cpu", 526, pascal)))


def load_philly(name: str, folder: Path, *, nodes: tuple[Node, ...] | None, seed: int | None) -> Trace:
    """`philly`, or `philly/<virtual cluster>`."""
    table = read_table(folder / PHILLY_FILE, PHILLY_COLUMNS)
    templates, cluster = TemplateCache(), name.partition("/")[2]
    jobs = [
        _philly_job(table, row, templates)
        for row in range(len(table.rows))
        if not cluster or table.text(row, "cluster") == cluster
    ]
    return _trace(name, table, jobs, nodes or philly_fleet(), seed)


def load_helios(name: str, folder: Path, *, nodes: tuple[Node, ...] | None, seed: int | None) -> Trace:
    return _load_log(name, folder / HELIOS_FILE, nodes or helios_fleet(), seed)


def load_philly_last(name: str, folder: Path, *, nodes: tuple[Node, ...] | None, seed: int | None) -> Trace:
    return _load_log(name, folder / PHILLY_LAST_FILE, nodes or philly_fleet(), seed)


def _philly_job(table: Table, row: int, templates: TemplateCache) -> Job:
    try:
        arrival = int(datetime.fromisoformat(table.text(row, "timestamp") + "+00:00").timestamp())
    except ValueError:
        table.fail(row, "timestamp", "a time such as 2017-10-09 07:01:55")
    gpus = table.integer(row, "num_gpus", 1, MAX_GPUS_PER_JOB)
    duration = max(1, table.seconds(row, "duration"))
    name = f"philly-{row:05}"
    parts = [templates.get(PodSize(gpus=part)) for part in split_gpus_by_pod(gpus)]
    return Job(name, make_job_pods(name, parts), arrival, duration)


def _load_log(name: str, path: Path, nodes: tuple[Node, ...], seed: int | None) -> Trace:
    """A log of the Gen-Parallel-Workloads collection; `interval` is the seconds since the previous submission."""
    table = read_table(path, LOG_COLUMNS)
    prefix, templates = name.partition("/")[0], TemplateCache()
    jobs, now = [], 0
    for row in range(len(table.rows)):
        now += table.integer(row, "interval")
        job = f"{prefix}-{row:05}"
        duration = max(1, table.integer(row, "run_time"))
        jobs.append(Job(job, make_job_pods(job, _log_pods(table, row, templates)), now, duration))
    return _trace(name, table, jobs, nodes, seed)


def _log_pods(table: Table, row: int, templates: TemplateCache) -> list[PodTemplate]:
    gpus = table.integer(row, "gpu_num", most=MAX_GPUS_PER_JOB)
    parts = split_gpus_by_pod(gpus) if gpus else [0] * table.integer(row, "node_num", 1, MAX_GPUS_PER_JOB)
    cpu_milli = -(-1000 * table.integer(row, "cpu_num") // len(parts))
    return [templates.get(PodSize(cpu_milli=cpu_milli, gpus=part)) for part in parts]


def _trace(name: str, table: Table, jobs: list[Job], nodes: tuple[Node, ...], seed: int | None) -> Trace:
    if not jobs:
        raise InputError(f"is an empty trace: it has no job of {name}", file=str(table.path))
    start = min(job.arrival for job in jobs)
    timed = [Job(job.name, job.pods, job.arrival - start, job.duration) for job in jobs]
    timed.sort(key=lambda job: job.arrival)
    mix = count_shapes(pod for job in timed for pod in job.pods)
    return Trace(name=name, nodes=nodes, jobs=tuple(timed), retry=True, declared=mix, seed=seed)
