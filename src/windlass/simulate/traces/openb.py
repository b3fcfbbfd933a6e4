"""The openb trace: Alibaba's production GPU cluster of 2023, 23 pod lists on one park.

Reads `openb/openb_pod_list_<list>.csv`, `openb/openb_node_list_{gpu,all}_node.csv` and, where there is one,
`openb-arrivals/<list>.txt.gz` under the traces folder; feeds `simulate.trace_run`.

What is assumed:
- Every pod of the list, whole GPUs too, asks with the trace's annotations (GPU count, milli-GPUs of each, allowed
  models) and for CPU and memory with container requests; `nvidia.com/gpu` is not asked for beside them.
- Nodes have no limit on pods (`park.NO_POD_LIMIT`), as in the published experiments.
- Replay by arrivals: the method of `arrivals`. A pod drawn again is the pod `<name>-copy-<n>`.
- Replay by times: a pod arrives at its creation time and stays for its deletion time minus its scheduled time, or
  minus its creation time where it was never scheduled; at least one second. What does not fit waits. The recorded
  load is low, never more than 66 of 6,212 GPUs at once, so `times:K` plays the arrivals K times as fast with the same
  durations, and `times:K:N` does it on every N-th node of each shape: `times:100:10` asks for 121 % of the GPUs at
  its peak.
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
    """A pod list: the template of every row, and what has to be known of all rows together."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names = [row[table.columns["name"]] for row in table.rows]
        self.templates, self.demand = _templates(table)
        _refuse_doubles(table, self.names, "name")

    def declared(self) -> tuple[ShapeCount, ...]:
        first: dict[int, int] = {}
        for row, template in enumerate(self.templates):
            first.setdefault(id(template), row)
        counts = Counter(map(id, self.templates))
        return tuple(
            ShapeCount(pod=self.templates[row].make_pod(self.names[row]), count=counts[key])
            for key, row in first.items()
        )


def load_openb(
    name: str, folder: Path, *, seed: int | None, nodes: tuple[Node, ...] | None, replay: str
) -> Trace:
    """`name` is `openb/<list>` (the park of the published experiments) or `openb-all/<list>` (CPU-only nodes too)."""
    family, _, pods = name.partition("/")
    listed = PodList(read_table(folder / pod_list_file(pods), POD_COLUMNS, POD_EXTRAS))
    if not listed.names:
        raise InputError("is an empty trace: no pod in it", file=str(listed.table.path))
    if nodes is None:
        park = read_openb_nodes(folder / node_list_file("gpu" if family == "openb" else "all"))
    else:
        park = nodes
    declared = listed.declared()
    if replay != "arrivals":
        speed, part = _speed_and_part(replay)
        jobs, park = _timed_jobs(listed, speed), _every_nth(park, part)
        return Trace(name=name, nodes=park, jobs=jobs, retry=True, declared=declared, seed=seed)
    seed = DEFAULT_SEED if seed is None else seed
    published = folder / arrivals_file(pods) if nodes is None and family == "openb" else None
    arrivals = _arrivals(listed, park, published, seed)
    return Trace(
        name=name,
        nodes=park,
        jobs=_ordered_jobs(listed, arrivals.rows),
        retry=False,
        ranks=arrivals.ranks,
        declared=declared,
        seed=seed,
        order=arrivals.order,
    )


def read_openb_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of a node list, sorted by name, which is what the published ranks count in."""
    table = read_table(path, NODE_COLUMNS)
    _refuse_doubles(table, [row[table.columns["sn"]] for row in table.rows], "sn")
    if not table.rows:
        raise InputError("is an empty park: no node in it", file=str(path))
    park = NodeFactory()
    nodes = [_node(table, row, park) for row in range(len(table.rows))]
    return tuple(sorted(nodes, key=lambda node: node.name))


def _node(table: Table, row: int, park: NodeFactory) -> Node:
    size = NodeSize(
        cpu_milli=table.integer(row, "cpu_milli"),
        memory_mib=table.integer(row, "memory_mib"),
        gpus=table.integer(row, "gpu"),
        model=table.text(row, "model"),
    )
    try:
        return park.make_node(table.text(row, "sn"), size)
    except InputError as error:
        raise error.with_context(file=str(table.path), line=table.line(row)) from None


def _templates(table: Table) -> tuple[list[PodTemplate], list[int]]:
    """The template and the demanded milli-GPUs of every row. Equal fields are read and checked once."""
    places = [table.columns[column] for column in POD_COLUMNS[1:]]
    spec = table.columns.get("gpu_spec")
    known: dict[tuple[str, ...], tuple[PodTemplate, int]] = {}
    templates: list[PodTemplate] = []
    demand: list[int] = []
    for row, fields in enumerate(table.rows):
        key = tuple([fields[place] for place in places]) + ((fields[spec],) if spec is not None else ())
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


def _refuse_doubles(table: Table, names: list[str], column: str) -> None:
    seen: dict[str, int] = {}
    if len(set(names)) == len(names) and "" not in names:
        return
    for row, name in enumerate(names):
        if not name or name in seen:
            table.fail(
                row, column, f"a name not yet used (line {table.line(seen[name])})" if name else "a name"
            )
        seen[name] = row


def _arrivals(listed: PodList, park: tuple[Node, ...], published: Path | None, seed: int) -> Arrivals:
    if published is not None and published.exists():
        found = published_arrivals(published, seed, len(listed.names), len(park))
        if found is not None:
            return found
    return generated_arrivals(listed.names, listed.demand, 1000 * count_gpus(park), len(park), seed)


def _ordered_jobs(listed: PodList, rows: list[int]) -> tuple[Job, ...]:
    names, templates = listed.names, listed.templates
    times_seen = [0] * len(names)
    jobs = []
    for row in rows:
        name, copy = names[row], times_seen[row]
        times_seen[row] = copy + 1
        if copy:
            name = f"{name}-copy-{copy}"
        jobs.append(Job(name, (templates[row].make_pod(name),)))
    return tuple(jobs)


def _timed_jobs(listed: PodList, speed: int) -> tuple[Job, ...]:
    table = listed.table
    if not all(column in table.columns for column in TIME_COLUMNS):
        raise InputError(
            "has no times of creation and deletion", file=str(table.path), remedy="use the replay by arrivals"
        )
    jobs = []
    for row, name in enumerate(listed.names):
        created, deleted = table.integer(row, "creation_time"), table.integer(row, "deletion_time")
        started = table.integer(row, "scheduled_time") if table.text(row, "scheduled_time") else created
        if not created <= started <= deleted:
            table.fail(row, "deletion_time", f"creation {created} ≤ scheduled {started} ≤ deletion")
        jobs.append(
            Job(name, (listed.templates[row].make_pod(name),), created // speed, max(1, deleted - started))
        )
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def _speed_and_part(replay: str) -> tuple[int, int]:
    kind, *numbers = replay.split(":")
    valid = all(text.isascii() and text.isdigit() and 0 < int(text) < 10**9 for text in numbers)
    if kind != "times" or not valid or len(numbers) > 2:
        raise InputError(
            f"unknown replay {replay!r}: expected arrivals, times, times:K (K times as fast) or times:K:N (on an N-th "
            "of the nodes)"
        )
    speed, part = (*map(int, numbers), 1, 1)[:2]
    return speed, part


def _every_nth(nodes: tuple[Node, ...], part: int) -> tuple[Node, ...]:
    """An N-th of the park in which every shape keeps its share, by name again; at least one node."""
    by_shape = sorted(
        nodes,
        key=lambda node: (sorted((key, str(raw)) for key, raw in node.status.allocatable.items()), node.name),
    )
    start = min(part // 2, len(nodes) - 1)
    return tuple(sorted(by_shape[start::part], key=lambda node: node.name))
