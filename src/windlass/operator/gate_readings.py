"""Asks gates' queries of a Prometheus, once for all nodes of a stack: one value a node, or none.

Called by `operator.controller` while a wave bakes; `telemetry.prometheus` does the asking, in a thread. What is no
number, and what names no node of ours, is left out: to the gate that is no data.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection, Iterable, Mapping

from windlass.model.errors import WindlassError
from windlass.operator.observed import GateReading
from windlass.telemetry.prometheus import Prometheus, PromSample

NODE_LABELS = ("node", "Hostname", "hostname", "kubernetes_node", "nodename", "instance")
"""Where exporters put the node's name; the first that has one of ours counts."""
QUERY_SECONDS = 20.0


def fill_query(query: str, nodes: Collection[str], window: int) -> str:
    """`$nodes` and `$window` replaced. The window is never longer than the bake: what was before it is not the
    change's, and too short a one gives no data, which does not pass."""
    names = "|".join(re.escape(name).replace("\\-", "-").replace("\\", "\\\\") for name in sorted(nodes))
    return query.replace("$nodes", names).replace("$window", f"{max(window, 1)}s")


async def ask(url: str, query: str, nodes: Collection[str], now: int) -> GateReading:
    """Never raises: what goes wrong is in the reading."""
    if not url:
        return GateReading(now, error="no Prometheus is configured (windlass operator --prometheus URL)")
    try:
        samples = await asyncio.to_thread(Prometheus(url, timeout=QUERY_SECONDS).query, query, now)
    except WindlassError as error:
        return GateReading(now, error=str(error))
    return values_by_node(samples, nodes, now)


def values_by_node(samples: Iterable[PromSample], nodes: Collection[str], now: int) -> GateReading:
    values: dict[str, float] = {}
    for sample in samples:
        node = _node_of(sample.labels, nodes)
        if node and math.isfinite(sample.value):
            if node in values:
                return GateReading(now, error=f"the query gives several values for node {node}")
            values[node] = sample.value
    return GateReading(now, values)


def _node_of(labels: Mapping[str, str], nodes: Collection[str]) -> str:
    for label in NODE_LABELS:
        value = labels.get(label, "")
        for name in (value, value.rpartition(":")[0]):
            if name and name in nodes:
                return name
    return ""
