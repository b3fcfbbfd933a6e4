"""Readers of traces: the public ones, and our own format. A reader yields a `Trace`, and never decides anything."""

from windlass.simulate.traces.catalogue import TraceInfo, list_traces
from windlass.simulate.traces.load import load_trace
from windlass.simulate.traces.trace_reader import read_nodes_file
from windlass.simulate.traces.trace_writer import write_trace

__all__ = ["TraceInfo", "list_traces", "load_trace", "read_nodes_file", "write_trace"]
