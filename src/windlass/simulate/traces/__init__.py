"""Readers of public traces and of our own trace format; `cli.simulate`, `simulate.runner` and `bench` use them."""

from windlass.simulate.traces.catalogue import TraceInfo, list_traces
from windlass.simulate.traces.load import load_trace
from windlass.simulate.traces.trace_reader import read_nodes_file
from windlass.simulate.traces.trace_writer import write_trace

__all__ = ["TraceInfo", "list_traces", "load_trace", "read_nodes_file", "write_trace"]
