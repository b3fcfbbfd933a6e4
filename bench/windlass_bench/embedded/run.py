"""The measurements: creates, binds, watch events, many watchers, and memory with a large cluster in it.

`cli.embedded` calls `measure`; each server gets the same requests, made before the clock starts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from windlass_bench.embedded.contenders import PeerPrograms, ServerProcess, run_embedded, run_kube_apiserver
from windlass_bench.embedded.raw_client import RawHttpClient, UnexpectedStatus
from windlass_bench.embedded.watchers import WatcherPool
from windlass_bench.live.objects import node, pod

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
PATIENCE = 300.0
WATCH_WRITES = 1000
CROWD_WRITES = 100


class Scale(msgspec.Struct, frozen=True):
    pods: int = 5000
    """That are created and bound."""
    connections: int = 32
    watchers: int = 20
    crowd: int = 1000
    nodes_kept: int = 5000
    pods_kept: int = 20_000


class Result(msgspec.Struct, frozen=True):
    server: str
    durable: bool
    creates: float
    """A second."""
    binds: float
    events: float
    """That watchers got, a second."""
    crowd: int
    """Watchers that got everything."""
    crowd_events: float
    cpu_seconds: float
    """Of the server, for creating and binding the pods."""
    rss_mib: float | None = None
    peak_rss_mib: float | None = None
    """With the large cluster in it."""


async def measure(
    scale: Scale, programs: PeerPrograms | None, durable: Sequence[bool], on_step: Callable[[str], None]
) -> list[Result]:
    """Each form of each server, one after the other."""
    results = []
    for kept in durable:
        how = "durable" if kept else "in memory"
        on_step(f"windlass, {how}")
        with run_embedded(kept) as server:
            results.append(await _one(server, scale))
        if programs is not None:
            on_step(f"kube-apiserver and etcd, {'durable' if kept else 'without fsync'}")
            with run_kube_apiserver(kept, programs) as server:
                results.append(await _one(server, scale))
    return results


async def _one(server: ServerProcess, scale: Scale) -> Result:
    before = server.cpu_seconds()
    creates, binds = await _create_and_bind(server, scale)
    cpu = server.cpu_seconds() - before
    writers = scale.connections
    _, events = await _watch(server, scale.watchers, WATCH_WRITES, writers, "few")
    crowd, crowd_events = await _watch(server, scale.crowd, CROWD_WRITES, writers, "crowd")
    made = Result(server.name, server.durable, creates, binds, events, crowd, crowd_events, cpu)
    if not scale.pods_kept:
        return made
    await _fill(server, scale)
    return msgspec.structs.replace(made, rss_mib=server.rss_mib(), peak_rss_mib=server.peak_rss_mib())


def _wire(server: ServerProcess) -> RawHttpClient:
    return RawHttpClient(server.host, server.port, server.token, server.context)


async def _create_and_bind(server: ServerProcess, scale: Scale) -> tuple[float, float]:
    """Pods of fifty shapes, each then bound; both by several connections at once."""
    maker = _wire(server)
    bodies = [msgspec.json.encode(_pod(number)) for number in range(scale.pods)]
    creates = [maker.encode_request("POST", PODS, body) for body in bodies]
    binds = [
        maker.encode_request("POST", f"{PODS}/{_pod_name(number)}/binding", _binding(number))
        for number in range(scale.pods)
    ]
    made = await _rate(server, creates, scale.connections, 201)
    return made, await _rate(server, binds, scale.connections, 201)


async def _rate(server: ServerProcess, requests: list[bytes], connections: int, wanted: int) -> float:
    wires = [await _wire(server).__aenter__() for _ in range(connections)]

    async def work(wire: RawHttpClient, mine: list[bytes]) -> None:
        for request in mine:
            code = await wire.send_for_status(request)
            if code != wanted:
                raise UnexpectedStatus(f"{server.name} answered {code}")

    began = time.perf_counter()
    await asyncio.gather(*(work(wire, requests[at::connections]) for at, wire in enumerate(wires)))
    seconds = time.perf_counter() - began
    for wire in wires:
        await wire.__aexit__(None, None, None)
    return len(requests) / seconds


async def _watch(server: ServerProcess, watchers: int, writes: int, connections: int, name: str) -> tuple[int, float]:
    """Watchers of all pods while more are made: how many watchers got all of it, and events a second."""
    async with _wire(server) as wire:
        page = msgspec.json.decode(await wire.fetch(wire.encode_request("GET", f"{PODS}?limit=1")))
        crowd = WatcherPool(server, PODS, watchers)
        await crowd.open(page["metadata"]["resourceVersion"])
        bodies = [{**_pod(number), "metadata": {"name": f"{name}-{number}"}} for number in range(writes)]
        requests = [wire.encode_request("POST", PODS, msgspec.json.encode(body)) for body in bodies]
        began = time.perf_counter()
        await _rate(server, requests, connections, 201)
        served = await crowd.wait_for_events(writes, PATIENCE)
        seconds = time.perf_counter() - began
        crowd.close()
        return served, crowd.events / seconds


async def _fill(server: ServerProcess, scale: Scale) -> None:
    """The large cluster: nodes, and pods on them."""
    maker = _wire(server)
    nodes = [
        maker.encode_request("POST", NODES, msgspec.json.encode(node(number))) for number in range(scale.nodes_kept)
    ]
    await _rate(server, nodes, scale.connections, 201)
    more = range(scale.pods, max(scale.pods, scale.pods_kept - WATCH_WRITES - CROWD_WRITES))
    pods = [maker.encode_request("POST", PODS, msgspec.json.encode(_pod(number))) for number in more]
    if pods:
        await _rate(server, pods, scale.connections, 201)


def _pod_name(number: int) -> str:
    return f"p-{number:06}"


def _pod(number: int) -> dict[str, object]:
    made = pod(number, "nobody")
    del made["metadata"]["namespace"]
    return made


def _binding(number: int) -> bytes:
    name = _pod_name(number)
    target = {"apiVersion": "v1", "kind": "Node", "name": f"bench-{number % 1000:05}"}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})
