"""Writes a trace in our own format, which `traces.trace_reader` reads: lossless except for the names of pods.

For programs that use Windlass as a library; no command calls it. `.csv` gives two files, the trace and its nodes;
`.jsonl` gives one. A file is written completely or not at all.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.simulate.trace import Job, Trace
from windlass.simulate.traces.columns import JOB_COLUMNS, NODE_COLUMNS, Cells, cells_of_node, cells_of_pod
from windlass.simulate.traces.trace_reader import JSON_MARK, NODES_MARK, TRACE_MARK, VERSION


def write_trace(trace: Trace, path: Path) -> None:
    """Jobs keep their names, times and shapes; when read again, pods are named after their job."""
    jobs = list(_job_rows(trace.jobs))
    nodes = [{"node": node.name, **cells_of_node(node)} for node in trace.nodes]
    if path.suffix == ".csv":
        nodes_path = path.with_suffix(".nodes.csv")
        retry = "yes" if trace.retry else "no"
        _write(nodes_path, f"{NODES_MARK} {VERSION}\n" + _csv_text(NODE_COLUMNS, nodes))
        first_line = f"{TRACE_MARK} {VERSION} retry={retry} nodes={nodes_path.name}\n"
        _write(path, first_line + _csv_text(JOB_COLUMNS, jobs))
    elif path.suffix in (".jsonl", ".ndjson"):
        head = {JSON_MARK: int(VERSION), "retry": trace.retry}
        _write(path, "".join(_json_line(row) for row in (head, *nodes, *jobs)))
    else:
        raise InputError("a trace is written as .csv or .jsonl", file=str(path))


def _job_rows(jobs: tuple[Job, ...]) -> Iterator[Cells]:
    known: dict[tuple[int, int, int, str], Cells] = {}
    for job in jobs:
        times = {"arrival": str(job.arrival)}
        if job.duration is not None:
            times["duration"] = str(job.duration)
        for pod in job.pods:
            if _shape(pod) not in known:
                known[_shape(pod)] = cells_of_pod(pod)
        for cells, equal in groupby(known[_shape(pod)] for pod in job.pods):
            count = sum(1 for _ in equal)
            pods = {"pods": str(count)} if count > 1 else {}
            yield {"job": job.name, **times, **pods, **cells}


def _shape(pod: Pod) -> tuple[int, int, int, str]:
    meta = pod.metadata
    return id(pod.spec), id(meta.annotations), id(meta.labels), meta.namespace


def _csv_text(columns: tuple[str, ...], rows: list[Cells]) -> str:
    """CSV without the columns that are empty in all rows."""
    used = [column for column in columns if any(column in row for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, used or columns[:1], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json_line(row: object) -> str:
    """Columns `template` and `object` as JSON objects, all others as text."""
    if isinstance(row, dict):
        row = {
            key: msgspec.Raw(value.encode()) if key in ("template", "object") else value for key, value in row.items()
        }
    return msgspec.json.encode(row).decode() + "\n"


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".part")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(f"can't be written: {error.strerror}", file=str(path)) from error
