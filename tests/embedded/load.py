"""`windlass up` under everything at once: how long a small GET takes for a client that behaves, and how much memory.

1,000 watchers, 200 clients that read and write, 50 watchers that do not read, idle connections without a token, and a
hostile tenant with its own account that sends the requests which once stopped everybody. `make load` prints the result;
it fails if the 99th percentile, the memory or the memory afterwards is above its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from tests.embedded.cluster_up import Up, up

MAPS = "/api/v1/namespaces/default/configmaps"
HOSTILE = "hostile"
MAX_P99_SECONDS, MAX_MEMORY_MIB, MAX_KEPT_MIB = 0.1, 1024, 150
"""Of memory afterwards: above what it was before."""
REQUEST_SECONDS, SETTLE_SECONDS, PROBE_SECONDS, CONNECT_SECONDS, RAMP_SECONDS = 0.5, 90.0, 0.05, 240.0, 20.0
ENUM = {"type": "array", "items": {"type": "string", "enum": [f"v{number}" for number in range(50_000)]}}


class Access:
    """Address and credentials, from a kubeconfig."""

    def __init__(self, kubeconfig: Path, token: str = "") -> None:
        tree = yaml.safe_load(kubeconfig.read_text())
        cluster = tree["clusters"][0]["cluster"]
        self.url = cluster["server"]
        self.token = token or tree["users"][0]["user"]["token"]
        self._authority = cluster["certificate-authority-data"]

    def context(self) -> ssl.SSLContext:
        import base64

        return ssl.create_default_context(cadata=base64.b64decode(self._authority).decode())

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.context(), limit=0)
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        return aiohttp.ClientSession(self.url, connector=connector, headers=headers, timeout=timeout)


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


# What the processes do


class Answers:
    """Counts answers by status; says when a worker has got its first."""

    def __init__(self, first_answers: Any) -> None:
        self.counts: Counter[str] = Counter()
        self._first_answers, self._begun = first_answers, set[object]()

    def add(self, worker: object, what: str) -> None:
        self.counts[what] += 1
        if worker not in self._begun:
            self._begun.add(worker)
            with self._first_answers.get_lock():
                self._first_answers.value += 1


async def watch(session: aiohttp.ClientSession, number: int, answers: Answers) -> None:
    await asyncio.sleep(random.uniform(0, RAMP_SECONDS))
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.get(MAPS, params={"watch": "1"}) as response:
                answers.add(number, f"watch {response.status}")
                async for _ in response.content.iter_any():
                    pass
        await asyncio.sleep(1)


async def watch_without_reading(access: Access) -> None:
    """A raw connection with a small window that is never read."""
    address = urlsplit(access.url)
    while True:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(plain, (address.hostname, address.port))
            reader, writer = await asyncio.open_connection(
                sock=plain, ssl=access.context(), server_hostname="127.0.0.1", limit=1024
            )
            request = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {access.token}\r\n\r\n"
            writer.write(request.encode())
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(15)
            writer.transport.abort()
        except OSError:
            plain.close()
        await asyncio.sleep(1)


async def read_and_write(session: aiohttp.ClientSession, number: int, answers: Answers) -> None:
    rng, name = random.Random(number), f"client-{number}"
    while True:
        method, path, body = rng.choice(
            [("GET", f"{MAPS}/{name}", None)] * 5
            + [("GET", f"{MAPS}?limit=50", None)]
            + [("POST", MAPS, config_map(name, data={"a": "b" * 200})), ("DELETE", f"{MAPS}/{name}", None)]
        )
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.request(method, path, json=body) as response:
                await response.read()
                answers.add(number, f"clients {response.status}")
        await asyncio.sleep(rng.uniform(0, 2 * REQUEST_SECONDS))


async def be_hostile(session: aiohttp.ClientSession, number: int, answers: Answers) -> None:
    """One after the other, without a pause: what each of them once did is said in the issue that they come from."""
    values = ",".join(f"v{number}" for number in range(30_000))
    large = yaml.dump(
        config_map("yaml", data={f"k{number}": "x" * 20 for number in range(60_000)}), Dumper=yaml.CSafeDumper
    )
    enum = {"apiVersion": "b.example.com/v1", "kind": "Enum", "metadata": {"name": "e"}, "words": ["v49999"] * 20_000}
    pods = "/api/v1/namespaces/hostile/pods"
    quoted = {"name": "c", "image": "x", "command": ["sh", "-c", "'" + "x" * 1_000_000]}
    sent: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", MAPS, {"params": {"labelSelector": f"k in ({values[:200_000]})"}}),
        (
            "POST",
            "/api/v1/namespaces/hostile/configmaps",
            {"data": large, "headers": {"Content-Type": "application/yaml"}},
        ),
        ("POST", "/apis/b.example.com/v1/namespaces/hostile/enums", {"json": enum}),
        ("POST", pods, {"json": _pod("quote", containers=[quoted])}),
        ("POST", pods, {"json": _pod("double", containers=[_doubling()])}),
        ("POST", "/apis/apps/v1/namespaces/hostile/statefulsets", {"json": _stateful_set()}),
        ("GET", "/api/v1/pods", {"params": {"fieldSelector": ",".join(f"metadata.name!=k{n}" for n in range(5000))}}),
        (
            "POST",
            "/api/v1/namespaces/hostile/configmaps",
            {"data": b"[" * 1_000_000, "headers": {"Content-Type": "application/json"}},
        ),
    ]
    while True:
        for method, path, more in sent:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.request(method, path, **more) as response:
                    await response.read()
                    answers.add(number, f"hostile {response.status}")
                    if response.status == 429:
                        await asyncio.sleep(0.2)


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _doubling() -> dict[str, Any]:
    variables = [{"name": "V0", "value": "x" * 100}]
    variables += [{"name": f"V{number}", "value": f"$(V{number - 1})$(V{number - 1})"} for number in range(1, 31)]
    return {"name": "c", "image": "x", "env": variables}


def _stateful_set() -> dict[str, Any]:
    labels = {"app": "many"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {
        "replicas": 10**9,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "many"},
        "spec": {**spec, "serviceName": "s"},
    }


async def idle_without_a_token(access: Access) -> None:
    address = urlsplit(access.url)
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            await asyncio.sleep(20)
            writer.close()
        await asyncio.sleep(0.1)


def crowd(kind: str, scale: Scale, access: Access, stop: Event, results: Any, first_answers: Any) -> None:
    """One process of the load; less important than the server, as on a machine of its own."""
    os.nice(5)
    answers = Answers(first_answers)

    async def run() -> None:
        async with access.session() as session:
            work: list[Coroutine[Any, Any, None]] = []
            if kind == "watchers":
                work += [watch(session, number, answers) for number in range(scale.watchers)]
                work += [watch_without_reading(access) for _ in range(scale.slow)]
            elif kind == "clients":
                work += [read_and_write(session, number, answers) for number in range(scale.clients)]
                work += [idle_without_a_token(access) for _ in range(scale.idle)]
            else:
                work += [be_hostile(session, number, answers) for number in range(scale.hostile)]
            tasks = [asyncio.create_task(each) for each in work]
            while not stop.is_set():
                await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    results.put(answers.counts)


class Scale(argparse.Namespace):
    watchers, clients, slow, idle, hostile, seconds = 1000, 200, 50, 250, 4, 60.0


# What is measured


async def probe(access: Access, seconds: float) -> list[float]:
    """How long each small GET took, for a client that behaves."""
    found: list[float] = []
    async with access.session() as session:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            async with session.get("/api/v1/namespaces/default") as response:
                await response.read()
                assert response.status == 200, response.status
            found.append(time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)
    return found


def memory_mib(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) // 1024


def prepare(cluster: Up) -> Access:
    """The hostile tenant: an account that may do everything in its own namespace, and define kinds."""
    api = cluster.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE}})
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": HOSTILE, "namespace": HOSTILE}})
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": HOSTILE, "namespace": HOSTILE}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": HOSTILE}}
    api.create({**binding, "roleRef": role, "subjects": [subject]})
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"words": ENUM}}}
    spec = {"group": "b.example.com", "scope": "Namespaced", "names": {"plural": "enums", "kind": "Enum"}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {**spec, "versions": [version]},
    }
    api.create({**crd, "metadata": {"name": "enums.b.example.com"}})
    path = f"/api/v1/namespaces/{HOSTILE}/serviceaccounts/{HOSTILE}/token"
    token = api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    return Access(cluster.kubeconfig, token["status"]["token"])


def measure(scale: Scale, folder: Path) -> dict[str, Any]:
    with up(folder, "--no-page") as cluster:
        hostile, own = prepare(cluster), Access(cluster.kubeconfig)
        process = cluster.process.pid
        calm = asyncio.run(probe(own, 5.0))
        base = memory_mib(process)
        context = get_context("spawn")
        stop, results, first_answers = context.Event(), context.Queue(), context.Value("i", 0)
        crowds = [
            context.Process(target=crowd, args=(kind, scale, access, stop, results, first_answers))
            for kind, access in (("watchers", own), ("clients", own), ("hostile", hostile))
        ]
        for each in crowds:
            each.daemon = True  # whatever goes wrong here, none of them stays
            each.start()
        _wait_until_all_are_there(scale, first_answers)
        peaks: list[int] = []
        times = asyncio.run(_probe_and_look(own, scale.seconds, process, peaks))
        stop.set()
        counts: Counter[str] = sum((results.get(timeout=60) for _ in crowds), Counter())
        for each in crowds:
            each.join(60)
        cluster.api.delete(f"/api/v1/namespaces/{HOSTILE}")
        after = _settled(process, base)
    return {"calm": calm, "times": times, "base": base, "peak": max(peaks), "after": after, "counts": dict(counts)}


async def _probe_and_look(access: Access, seconds: float, process: int, peaks: list[int]) -> list[float]:
    async def look() -> None:
        while True:
            peaks.append(memory_mib(process))
            await asyncio.sleep(0.5)

    looking = asyncio.create_task(look())
    try:
        return await probe(access, seconds)
    finally:
        looking.cancel()


def _wait_until_all_are_there(scale: Scale, first_answers: Any) -> None:
    """Every watcher, client and hostile one has been answered once."""
    end = time.monotonic() + CONNECT_SECONDS
    while first_answers.value < scale.watchers + scale.clients + scale.hostile:
        assert time.monotonic() < end, f"only {first_answers.value} are answered after {CONNECT_SECONDS:.0f} s"
        time.sleep(0.5)


def _settled(process: int, base: int) -> int:
    """Memory once it is back, or after a while."""
    end = time.monotonic() + SETTLE_SECONDS
    while memory_mib(process) > base + MAX_KEPT_MIB and time.monotonic() < end:
        time.sleep(1.0)
    return memory_mib(process)


def percentile(times: list[float], share: float) -> float:
    return statistics.quantiles(times, n=1000)[round(share * 1000) - 1]


def report(result: dict[str, Any], scale: Scale) -> list[str]:
    """Prints the result; what is above its bound."""
    times = result["times"]
    p99 = percentile(times, 0.99)
    load = f"{scale.watchers} watchers, {scale.clients} clients, {scale.slow} that don't read, {scale.hostile} hostile"
    print(f"{load}, for {scale.seconds:.0f} s on {os.cpu_count()} cores\n")
    print("| | alone | under load | bound |\n| --- | ---: | ---: | ---: |")
    for share in (0.5, 0.99):
        bound = f"{MAX_P99_SECONDS * 1000:.0f}" if share == 0.99 else ""
        calm, loaded = percentile(result["calm"], share), percentile(times, share)
        print(f"| GET, p{share * 100:.0f} (ms) | {calm * 1000:.1f} | {loaded * 1000:.1f} | {bound} |")
    print(f"| GET, longest (ms) | {max(result['calm']) * 1000:.1f} | {max(times) * 1000:.1f} | |")
    print(f"| memory (MiB) | {result['base']} | {result['peak']} | {MAX_MEMORY_MIB} |")
    print(f"| memory afterwards (MiB) | | {result['after']} | {result['base'] + MAX_KEPT_MIB} |")
    print("\nanswers:", json.dumps(dict(sorted(result["counts"].items()))))
    over = {
        "the 99th percentile": p99 > MAX_P99_SECONDS,
        "memory": result["peak"] > MAX_MEMORY_MIB,
        "memory afterwards": result["after"] > result["base"] + MAX_KEPT_MIB,
    }
    return [name for name, is_over in over.items() if is_over]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make load", description=__doc__)
    for name in ("watchers", "clients", "slow", "idle", "hostile"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Scale, name))
    parser.add_argument("--seconds", type=float, default=Scale.seconds)
    scale = parser.parse_args(namespace=Scale())
    with tempfile.TemporaryDirectory() as folder:
        over = report(measure(scale, Path(folder)), scale)
    for name in over:
        print(f"{name} is above its bound")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
