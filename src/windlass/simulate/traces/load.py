"""Loads a trace by its name: one of the catalogue, a synthetic one, or a file in our own format.

Called by `simulate.runner`, the benchmarks and `cli.simulate`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.simulate.synthetic import make_synthetic
from windlass.simulate.trace import Trace, with_creation_times
from windlass.simulate.traces.catalogue import TraceInfo, list_traces
from windlass.simulate.traces.openb import load_openb
from windlass.simulate.traces.philly_helios import load_helios, load_philly, load_philly_last
from windlass.simulate.traces.trace_reader import load_trace_file

FILE_SUFFIXES = (".csv", ".jsonl", ".ndjson", ".json")
RECORDED = {"philly": load_philly, "philly-last15k": load_philly_last, "helios": load_helios}


def load_trace(
    name: str,
    *,
    seed: int | None,
    traces_dir: Path | None,
    nodes: tuple[Node, ...] | None = None,
    replay: str = "arrivals",
) -> Trace:
    """Reads or generates the trace `name`: one of `list_traces`, or a file in our own format.

    `nodes` replace the trace's own fleet. `replay` is for openb: `arrivals` is the published method, `times` the
    recorded times, `times:K` the same with arrivals K times as fast, `times:K:N` on an N-th of the nodes. Traces that
    need a seed use 42 by default.
    """
    if nodes is not None and not nodes:
        raise InputError("the fleet is empty: it has no nodes")
    trace = _load(name, seed, traces_dir, nodes, replay)
    return msgspec.structs.replace(trace, jobs=with_creation_times(trace.jobs))


def _load(name: str, seed: int | None, traces_dir: Path | None, nodes: tuple[Node, ...] | None, replay: str) -> Trace:
    family, is_file = name.partition("/")[0], name.endswith(FILE_SUFFIXES)
    has_replay = not (is_file or family == "synthetic" or family in RECORDED)
    info = None if is_file or family == "synthetic" else _find(name, traces_dir)
    if replay != "arrivals" and not has_replay:
        raise InputError(f"replay {replay!r} is for the openb traces, not for {name}", remedy="leave it out")
    if is_file:
        return load_trace_file(Path(name), seed=seed, nodes=nodes)
    if info is None:
        return make_synthetic(name, seed=seed, nodes=nodes)
    if family in RECORDED:
        return RECORDED[family](name, _folder(info, traces_dir), nodes=nodes, seed=seed)
    return load_openb(name, _folder(info, traces_dir), seed=seed, nodes=nodes, replay=replay)


def _find(name: str, traces_dir: Path | None) -> TraceInfo:
    known = {info.name: info for info in list_traces(traces_dir)}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(
        f"unknown trace {name!r}",
        remedy=f"{hint}`windlass simulate --list` names them all; a file ends in {', '.join(FILE_SUFFIXES)}",
    )


def _folder(info: TraceInfo, traces_dir: Path | None) -> Path:
    """The traces folder, if it has all files of the trace, including its node list even if that is replaced."""
    if traces_dir is None:
        raise InputError(
            f"{info.name} needs the public trace files, and no folder of them was given",
            remedy=f"download them from {info.source}, then give --traces DIR or set WINDLASS_TRACES",
        )
    missing = [file for file in info.files if not (traces_dir / file).is_file()]
    if missing:
        remedy = f"download it from {info.source}"
        raise InputError(f"{info.name} needs {missing[0]}", file=str(traces_dir), remedy=remedy)
    return traces_dir
