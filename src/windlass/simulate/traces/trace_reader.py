"""Reads our own trace format, CSV or JSON lines. Called by `traces.load`.

docs/reference/trace-format.md describes the format, `traces.columns` converts the cells, `traces.trace_writer` writes
such files. Both formats become tables of text cells first, so that the same checks apply.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.simulate.pod_templates import PodTemplate, count_shapes, make_job_pods
from windlass.simulate.trace import Job, Trace
from windlass.simulate.traces.columns import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    BadCell,
    Cells,
    node_of_cells,
    template_of_cells,
)
from windlass.simulate.traces.csv_table import Table, read_table, read_text

VERSION = "1"
TRACE_MARK = "# windlass-trace"
NODES_MARK = "# windlass-nodes"
JSON_MARK = "windlass_trace"
MAX_PER_ROW = 100_000
"""Maximum of pods or nodes in one row; more are a typing error."""


class TraceTables(msgspec.Struct, frozen=True):
    """The tables of a trace file."""

    jobs: Table
    nodes: Table | None
    retry: bool


def load_trace_file(path: Path, *, seed: int | None, nodes: tuple[Node, ...] | None) -> Trace:
    tables = _read_json(path) if path.suffix in (".jsonl", ".ndjson", ".json") else _read_csv(path)
    jobs = _jobs(tables.jobs)
    if not jobs:
        raise InputError("is an empty trace: it has no jobs", file=str(path))
    if nodes is None:
        nodes = _nodes(tables.nodes) if tables.nodes is not None else ()
    if not nodes:
        raise InputError("names no nodes", file=str(path), remedy="give the nodes with --nodes FILE")
    mix = count_shapes(pod for job in jobs for pod in job.pods)
    return Trace(name=str(path), nodes=nodes, jobs=jobs, retry=tables.retry, declared=mix, seed=seed)


def read_nodes_file(path: Path) -> tuple[Node, ...]:
    """The nodes of a `# windlass-nodes` CSV."""
    nodes = _nodes(_read_nodes_table(path))
    if not nodes:
        raise InputError("is an empty fleet: it has no nodes", file=str(path))
    return nodes


def _read_nodes_table(path: Path) -> Table:
    text = read_text(path)
    _read_first_line(path, text, NODES_MARK)
    return read_table(path, ("node",), NODE_COLUMNS[1:], skip=1, text=text)


def _read_csv(path: Path) -> TraceTables:
    text = read_text(path)
    settings = _read_first_line(path, text, TRACE_MARK)
    retry = settings.pop("retry", "yes")
    nodes_file = settings.pop("nodes", "")
    if settings or retry not in ("yes", "no"):
        raise InputError("expected retry=yes or retry=no, then nodes=FILE", file=str(path), line=1)
    jobs = read_table(path, ("job",), JOB_COLUMNS[1:], skip=1, text=text)
    if nodes_file and not (path.parent / nodes_file).exists():
        raise InputError(f"there is no file {nodes_file}, which nodes= names", file=str(path), line=1)
    nodes = _read_nodes_table(path.parent / nodes_file) if nodes_file else None
    return TraceTables(jobs=jobs, nodes=nodes, retry=retry == "yes")


def _read_first_line(path: Path, text: str, mark: str) -> dict[str, str]:
    """The settings of the first line, after mark and version. `nodes` comes last, since file names may have blanks."""
    line = text.partition("\n")[0].rstrip("\r")
    head, _, nodes_file = line.partition(" nodes=")
    words = head.removeprefix(mark).split()
    if not head.startswith(mark + " ") or not words or words[0] != VERSION:
        raise InputError(f"expected the first line to be {mark + ' ' + VERSION!r}", file=str(path), line=1)
    settings = {"nodes": nodes_file} if nodes_file else {}
    for word in words[1:]:
        key, _, value = word.partition("=")
        settings[key] = value
    return settings


def _read_json(path: Path) -> TraceTables:
    lines = read_text(path).split("\n")
    head = _json_object(path, 1, lines[0])
    retry = head.pop("retry", True)
    if head != {JSON_MARK: int(VERSION)} or not isinstance(retry, bool):
        message = f'expected {{"{JSON_MARK}": {VERSION}, "retry": true}} or false'
        raise InputError(message, file=str(path), line=1)
    jobs, nodes = _JsonTable(path, JOB_COLUMNS), _JsonTable(path, NODE_COLUMNS)
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            content = _json_object(path, number, line)
            if ("job" in content) == ("node" in content):
                raise InputError("expected an object with a job or a node", file=str(path), line=number)
            (jobs if "job" in content else nodes).add(number, content)
    return TraceTables(jobs=jobs.table(), nodes=nodes.table() if nodes.rows else None, retry=retry)


def _json_object(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"expected a JSON object: {error}", file=str(path), line=number) from None


class _JsonTable:
    """Collects JSON objects as rows of the text cells that a CSV would have."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path, self.columns = path, columns
        self.rows: list[list[str]] = []
        self.lines: list[int] = []

    def add(self, number: int, content: dict[str, object]) -> None:
        unknown = [key for key in content if key not in self.columns]
        if unknown:
            message = f"unknown key {unknown[0]!r}; expected some of {', '.join(self.columns)}"
            raise InputError(message, file=str(self.path), line=number)
        cells = {column: self._cell(number, column, value) for column, value in content.items()}
        self.rows.append([cells.get(column, "") for column in self.columns])
        self.lines.append(number)

    def table(self) -> Table:
        return Table(self.path, self.rows, self.columns, self.lines, csv=False)

    def _cell(self, number: int, column: str, value: object) -> str:
        if value is None:
            return ""
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        if isinstance(value, dict) and column in ("template", "object"):
            return msgspec.json.encode(value).decode()
        if isinstance(value, dict):
            return ";".join(f"{key}={self._cell(number, column, item)}" for key, item in value.items())
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return "|".join(value)
        message = f"expected text, a whole number, a list of texts or an object, got {value!r}"
        raise InputError(message, file=str(self.path), line=number, path=column)


def _jobs(table: Table) -> tuple[Job, ...]:
    templates: dict[tuple[tuple[str, str], ...], PodTemplate] = {}
    jobs: list[Job] = []
    lines: dict[str, int] = {}
    row, count = 0, len(table.rows)
    while row < count:
        name = _name(table, row, "job", lines)
        times = (table.text(row, "arrival"), table.text(row, "duration"))
        arrival = table.integer(row, "arrival") if times[0] else 0
        duration = table.integer(row, "duration", least=1) if times[1] else None
        pods: list[PodTemplate] = []
        while row < count and table.text(row, "job") == name:
            if (table.text(row, "arrival"), table.text(row, "duration")) != times:
                table.fail(row, "job", f"the arrival and duration of the line above for one job, {name},")
            pods += [_template(table, row, templates)] * _count(table, row, "pods")
            row += 1
        jobs.append(Job(name, make_job_pods(name, pods), arrival, duration))
    _refuse_duplicate_pods(table.path, jobs, lines)
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def _refuse_duplicate_pods(path: Path, jobs: list[Job], lines: dict[str, int]) -> None:
    """Pod names are made from job names: job `a` of two pods and a job `a-0` would have the same pod."""
    seen: dict[str, Pod] = {}
    for job in jobs:
        for pod in job.pods:
            if seen.setdefault(pod.key, pod) is not pod:
                message = f"pod {pod.key} belongs to an earlier job too"
                raise InputError(message, file=str(path), line=lines[job.name], path="job")


def _nodes(table: Table) -> tuple[Node, ...]:
    nodes: list[Node] = []
    lines: dict[str, int] = {}
    for row in range(len(table.rows)):
        name, count = _name(table, row, "node", lines), _count(table, row, "count")
        cells = _cells(table, row, NODE_COLUMNS[2:])
        names = [name] if count == 1 else [f"{name}-{index}" for index in range(count)]
        try:
            nodes += [node_of_cells(node_name, cells) for node_name in names]
        except BadCell as bad:
            table.fail(row, bad.column, bad.expected)
        except InputError as error:
            raise error.with_context(file=str(table.path), line=table.line(row)) from None
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two nodes are named {duplicate}", file=str(table.path))
    return tuple(nodes)


def _name(table: Table, row: int, column: str, lines: dict[str, int]) -> str:
    name = table.text(row, column)
    if not name.isprintable() or not name or " " in name or "/" in name:
        table.fail(row, column, "a name without blanks and slashes")
    if name in lines:
        table.fail(row, column, f"a name that is not used yet (line {lines[name]})")
    lines[name] = table.line(row)
    return name


def _count(table: Table, row: int, column: str) -> int:
    return table.integer(row, column, 1, MAX_PER_ROW) if table.text(row, column) else 1


def _cells(table: Table, row: int, columns: tuple[str, ...]) -> Cells:
    return {column: text for column in columns if (text := table.text(row, column))}


def _template(table: Table, row: int, known: dict[tuple[tuple[str, str], ...], PodTemplate]) -> PodTemplate:
    cells = _cells(table, row, JOB_COLUMNS[4:])
    key = tuple(cells.items())
    if key not in known:
        try:
            known[key] = template_of_cells(cells)
        except BadCell as bad:
            table.fail(row, bad.column, bad.expected)
        except InputError as error:
            job = f"Job {table.text(row, 'job')}"
            raise error.with_context(file=str(table.path), line=table.line(row), object=job) from None
    return known[key]
