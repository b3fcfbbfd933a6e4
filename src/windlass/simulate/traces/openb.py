"""Reads the openb trace: Alibaba's production GPU cluster of 2023, 24 pod lists on one fleet. Called by `traces.load`.

Files under the traces folder: `openb/openb_pod_list_<list>.csv`, `openb/openb_node_list_{gpu,all}_node.csv` and, if it
exists, `openb-arrivals/<list>.txt.gz`.

Assumptions:
- Every pod requests GPUs, whole ones too, with the trace's annotations (GPU count, milli-GPUs of each, allowed models),
  and CPU and memory with container requests. It has no request for `nvidia.com/gpu`.
- Nodes have no limit on pods (`fleet.NO_POD_LIMIT`), as in the published experiments.
- Replay by arrivals: the method of `traces.arrivals`. A pod drawn again is the pod `<name>-copy-<n>`.
- Replay by times: a pod arrives at its creation time. Its duration is its deletion time minus its scheduled time, or
  minus its creation time if it was never scheduled, and at least one second. What does not fit waits. The recorded
  load is low, at most 66 of 6,212 GPUs at once; so `times:K` plays the arrivals K times as fast with the same
  durations, and `times:K:N` does so on every N-th node of each shape: `times:100:10` requests 121 % of the GPUs at its
  peak.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.simulate.fleet import NodeFactory, NodeSize, count_gpus
from windlass.simulate.pod_templates import PodSize, PodTemplate, make_template
from windlass.simulate.trace import Job, ShapeCount, Trace
from windlass.simulate.traces.arrivals import Arrivals, generated_arrivals, published_arrivals
from windlass.simulate.traces.csv_table import Table, read_table

POD_LISTS = (
    *("default", "cpu0", "cpu037", "cpu050", "cpu072", "cpu100", "cpu200", "cpu235", "cpu250", "cpu300"),
    *("gpushare20", "gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec05", "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)
DEFAULT_SEED = 42
TIME_COLUMNS = ("creation_time", "deletion_time", "scheduled_time")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
POD_EXTRAS = ("gpu_spec", "qos", "pod_phase", *TIME_COLUMNS)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def pod_list_file(pods: str) -> str:
    return f"openb/openb_pod_list_{pods}.csv"


def node_list_file(node_list: str) -> str:
    return f"openb/openb_node_list_{node_list}_node.csv"


def arrivals_file(pods: str) -> str:
    return f"openb-arrivals/{pods}.txt.gz"


class PodList:
    """A pod list: names, templates and demands of its rows."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names = [row[table.columns["name"]] for row in table.rows]
        self.templates, self.demand = _templates(table)
        _refuse_duplicates(table, self.names, "name")

    def declared(self) -> tuple[ShapeCount, ...]:
        first: dict[int, int] = {}
        for row, template in enumerate(self.templates):
            first.setdefault(id(template), row)
        counts = Counter(map(id, self.templates))
        return tuple(
            ShapeCount(pod=self.templates[row].make_pod(self.names[row]), count=counts[key])
            for key, row in first.items()
        )


def load_openb(name: str, folder: Path, *, seed: int | None, nodes: tuple[Node, ...] | None, replay: str) -> Trace:
    """`name` is `openb/<list>` (the nodes of the published experiments) or `openb-all/<list>` (CPU-only nodes, too)."""
    family, _, pods = name.partition("/")
    pod_list = PodList(read_table(folder / pod_list_file(pods), POD_COLUMNS, POD_EXTRAS))
    if not pod_list.names:
        raise InputError("is an empty trace: it has no pods", file=str(pod_list.table.path))
    node_list = folder / node_list_file("gpu" if family == "openb" else "all")
    fleet = read_openb_nodes(node_list) if nodes is None else nodes
    declared = pod_list.declared()
    if replay != "arrivals":
        speed, divisor = _parse_replay(replay)
        jobs, fleet = _timed_jobs(pod_list, speed), _every_nth(fleet, divisor)
        return Trace(name=name, nodes=fleet, jobs=jobs, retry=True, declared=declared, seed=seed)
    seed = DEFAULT_SEED if seed is None else seed
    published = folder / arrivals_file(pods) if nodes is None and family == "openb" else None
    arrivals = _arrivals(pod_list, fleet, published, seed)
    return Trace(
        name=name,
        nodes=fleet,
        jobs=_ordered_jobs(pod_list, arrivals.rows),
        retry=False,
        ranks=arrivals.ranks,
        declared=declared,
        seed=seed,
        order=arrivals.order,
    )


def read_openb_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of a node list, sorted by name: the published ranks are in this order."""
    table = read_table(path, NODE_COLUMNS)
    _refuse_duplicates(table, [row[table.columns["sn"]] for row in table.rows], "sn")
    if not table.rows:
        raise InputError("is an empty fleet: it has no nodes", file=str(path))
    factory = NodeFactory()
    nodes = [_node(table, row, factory) for row in range(len(table.rows))]
    return tuple(sorted(nodes, key=lambda node: node.name))


def _node(table: Table, row: int, factory: NodeFactory) -> Node:
    size = NodeSize(
        cpu_milli=table.integer(row, "cpu_milli"),
        memory_mib=table.integer(row, "memory_mib"),
        gpus=table.integer(row, "gpu"),
        model=table.text(row, "model"),
    )
    try:
        return factory.make_node(table.text(row, "sn"), size)
    except InputError as error:
        raise error.with_context(file=str(table.path), line=table.line(row)) from None


def _templates(table: Table) -> tuple[list[PodTemplate], list[int]]:
    """Template and demand in milli-GPUs of every row. Rows with equal fields share a template."""
    indexes = [table.columns[column] for column in POD_COLUMNS[1:]]
    spec = table.columns.get("gpu_spec")
    known: dict[tuple[str, ...], tuple[PodTemplate, int]] = {}
    templates: list[PodTemplate] = []
    demand: list[int] = []
    for row, fields in enumerate(table.rows):
        key = tuple([fields[index] for index in indexes]) + ((fields[spec],) if spec is not None else ())
        found = known.get(key)
        if found is None:
            size = _pod_size(table, row)
            found = known[key] = (make_template(size), size.demand_milli)
        templates.append(found[0])
        demand.append(found[1])
    return templates, demand


def _pod_size(table: Table, row: int) -> PodSize:
    gpus = table.integer(row, "num_gpu", most=16)
    least, most = (1, 1000) if gpus else (0, 0)
    milli = table.integer(row, "gpu_milli", least, most)
    if gpus > 1 and milli != 1000:
        table.fail(row, "gpu_milli", f"1000 for a pod of {gpus} GPUs")
    models = tuple(table.text(row, "gpu_spec").split("|")) if table.text(row, "gpu_spec") else ()
    if "" in models or (models and not gpus):
        table.fail(row, "gpu_spec", "GPU models joined by |, for a pod with GPUs")
    return PodSize(table.integer(row, "cpu_milli"), table.integer(row, "memory_mib"), gpus, milli, models)


def _refuse_duplicates(table: Table, names: list[str], column: str) -> None:
    seen: dict[str, int] = {}
    if len(set(names)) == len(names) and "" not in names:
        return
    for row, name in enumerate(names):
        if not name or name in seen:
            new = f"a name not yet used (line {table.line(seen[name])})" if name else "a name"
            table.fail(row, column, new)
        seen[name] = row


def _arrivals(pod_list: PodList, fleet: tuple[Node, ...], published: Path | None, seed: int) -> Arrivals:
    if published is not None and published.exists():
        arrivals = published_arrivals(published, seed, len(pod_list.names), len(fleet))
        if arrivals is not None:
            return arrivals
    return generated_arrivals(pod_list.names, pod_list.demand, 1000 * count_gpus(fleet), len(fleet), seed)


def _ordered_jobs(pod_list: PodList, rows: list[int]) -> tuple[Job, ...]:
    names, templates = pod_list.names, pod_list.templates
    times_seen = [0] * len(names)
    jobs = []
    for row in rows:
        name, copy = names[row], times_seen[row]
        times_seen[row] = copy + 1
        if copy:
            name = f"{name}-copy-{copy}"
        jobs.append(Job(name, (templates[row].make_pod(name),)))
    return tuple(jobs)


def _timed_jobs(pod_list: PodList, speed: int) -> tuple[Job, ...]:
    table = pod_list.table
    if not all(column in table.columns for column in TIME_COLUMNS):
        message, remedy = "has no times of creation and deletion", "use the replay by arrivals"
        raise InputError(message, file=str(table.path), remedy=remedy)
    jobs = []
    for row, name in enumerate(pod_list.names):
        created, deleted = table.integer(row, "creation_time"), table.integer(row, "deletion_time")
        started = table.integer(row, "scheduled_time") if table.text(row, "scheduled_time") else created
        if not created <= started <= deleted:
            table.fail(row, "deletion_time", f"creation {created} ≤ scheduled {started} ≤ deletion")
        pod = pod_list.templates[row].make_pod(name)
        jobs.append(Job(name, (pod,), created // speed, max(1, deleted - started)))
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def _parse_replay(replay: str) -> tuple[int, int]:
    kind, *numbers = replay.split(":")
    valid = all(text.isascii() and text.isdigit() and 0 < int(text) < 10**9 for text in numbers)
    if kind != "times" or not valid or len(numbers) > 2:
        raise InputError(
            f"unknown replay {replay!r}: expected arrivals, times, times:K (K times as fast) or times:K:N (on an N-th "
            "of the nodes)"
        )
    speed, divisor = (*map(int, numbers), 1, 1)[:2]
    return speed, divisor


def _every_nth(nodes: tuple[Node, ...], divisor: int) -> tuple[Node, ...]:
    """An N-th of the nodes of every shape, sorted by name; at least one node."""
    by_shape = sorted(
        nodes,
        key=lambda node: (sorted((key, str(raw)) for key, raw in node.status.allocatable.items()), node.name),
    )
    start = min(divisor // 2, len(nodes) - 1)
    return tuple(sorted(by_shape[start::divisor], key=lambda node: node.name))
