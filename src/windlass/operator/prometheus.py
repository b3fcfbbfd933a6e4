"""Asks gates' queries of a Prometheus, once for all nodes of a stack: one value a node, or none.

Called by `operator.controller` while a wave bakes. What is no number, and what names no node of ours, is left out:
to the gate that is no data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any

import aiohttp
import msgspec

from windlass.operator.observed import GateReading

NODE_LABELS = ("node", "Hostname", "hostname", "kubernetes_node", "nodename", "instance")
"""Where exporters put the node's name; the first that has one of ours counts."""
QUERY_SECONDS = 20.0
MIN_WINDOW_SECONDS = 60


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: list[dict[str, Any]] = []


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    data: _Data = _Data()
    error: str = ""


def fill_query(query: str, nodes: Collection[str], window: int) -> str:
    """`$nodes` and `$window` replaced."""
    names = "|".join(re.escape(name).replace("\\-", "-").replace("\\", "\\\\") for name in sorted(nodes))
    return query.replace("$nodes", names).replace("$window", f"{max(window, MIN_WINDOW_SECONDS)}s")


async def ask(url: str, query: str, nodes: Collection[str], now: int) -> GateReading:
    """Never raises: what goes wrong is in the reading."""
    if not url:
        return GateReading(now, error="no Prometheus is configured (windlass operator --prometheus URL)")
    try:
        timeout = aiohttp.ClientTimeout(QUERY_SECONDS)
        address = f"{url.rstrip('/')}/api/v1/query"
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(address, params={"query": query, "time": str(now)}) as response,
        ):
            return read_answer(await response.read(), nodes, now)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return GateReading(now, error=f"{url}: {error or type(error).__name__}")


def read_answer(body: bytes, nodes: Collection[str], now: int) -> GateReading:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError as error:
        return GateReading(now, error=f"Prometheus' answer can't be read: {error}")
    if answer.status != "success":
        return GateReading(now, error=f"Prometheus: {answer.error or answer.status}")
    if answer.data.result_type != "vector":
        return GateReading(now, error=f"the query gives a {answer.data.result_type}, and one value a node is needed")
    values: dict[str, float] = {}
    for series in answer.data.result:
        node, value = _node_of(series.get("metric") or {}, nodes), _number(series.get("value"))
        if node and value is not None:
            if node in values:
                return GateReading(now, error=f"the query gives several values for node {node}")
            values[node] = value
    return GateReading(now, values)


def _node_of(labels: dict[str, str], nodes: Collection[str]) -> str:
    for label in NODE_LABELS:
        value = str(labels.get(label, ""))
        for name in (value, value.rpartition(":")[0]):
            if name and name in nodes:
                return name
    return ""


def _number(value: Any) -> float | None:
    try:
        number = float(value[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    return number if math.isfinite(number) else None
