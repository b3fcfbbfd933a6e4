"""Plays clients of the API server on a disk that loses what was not synced, on a virtual clock, and records everything.

The store, its log, the journal's commits, the registry and the server's handlers are the production code; the
journal's thread is a task, and the disk is in memory. The server is killed at any operation of its disk and at any
other time; its clients write under conditions, read, list at versions and in pages, and watch, some of them slowly,
and go on with the next process where they were.

python -m tests.embedded.store.history_play --count 1000      `make history`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine
from multiprocessing import get_context
from random import Random
from typing import Any, TypeVar
from unittest import mock

import msgspec
from tests.embedded.store.history import OK, REFUSED, UNKNOWN, Event, History, Listed, Read, Watched, Write, problems
from tests.embedded.store.lossy_disk import FATES, Crash, LossyDisk
from tests.kube.virtual_time import run_in_virtual_time
from tests.worlds.virtual_client import InProcessKubeClient, Network, _Writer
from tests.worlds.virtual_cluster import identity

from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.registry.registry import Registry
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import Journal, _restore
from windlass.embedded.store.state_log import open_log
from windlass.embedded.store.store import Store
from windlass.kube.errors import ApiError, Conflict, NotFound, ServerUnavailable
from windlass.kube.request import Request

MAPS = "/api/v1/namespaces/default/configmaps"
KEYS = ("a", "b", "c", "d", "e")
CHECKPOINT_BYTES, MAX_CHANGES, WATCHER_BYTES = 6000, 40, 3000
"""Small, so that logs are begun anew, history is compacted and slow watchers are ended all the time."""
WRITERS, READERS, WATCHERS, CRASHES = 4, 2, 3, 3
SECONDS = 6.0
T = TypeVar("T")


class VirtualJournal(Journal):
    """Commits in a task instead of a thread; the process may end at each operation of the disk."""

    rng: Random
    on_crash: Callable[[], None]

    def start(self) -> None:
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._write())

    def append(self, change: Any) -> None:
        self._queue.append(change)
        self._woken.set()

    async def _write(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(self.rng.expovariate(200))
            while batch := self._drain_queue():
                try:
                    self._commit(batch)
                except Crash:
                    self.on_crash()
                    return
                await asyncio.sleep(self.rng.expovariate(500))
                self._store.on_committed(batch[-1].version)


class Process:
    """The server, from a start to its end."""

    def __init__(self, disk: LossyDisk, rng: Random) -> None:
        self.disk, self.is_dead = disk, asyncio.Event()
        state = open_log(disk, CHECKPOINT_BYTES)
        store = Store(state.version, MAX_CHANGES)
        _restore(store, state.objects)
        self.first_version = store.version
        self._journal = VirtualJournal(state, store)
        self._journal.rng, self._journal.on_crash = rng, self.kill
        store.journal = self._journal
        self._journal.start()
        registry = Registry(store, clock=time.time)
        client = InProcessClient(registry)
        if client.find("namespaces", "", "default") is None:
            client.create("namespaces", "", {"metadata": {"name": "default"}})
        self.client = InProcessKubeClient(ApiServer(registry, identity()), Network(rng, latency=0.003, failures=0.02))

    def kill(self) -> None:
        self._journal.task.cancel()
        self.is_dead.set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result, unless the process ends first."""
        task, dead = asyncio.ensure_future(work), asyncio.ensure_future(self.is_dead.wait())
        try:
            await asyncio.wait((task, dead), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ServerUnavailable("the process has ended")
            return task.result()
        finally:
            for waiting in (task, dead):
                waiting.cancel()
            await asyncio.gather(task, dead, return_exceptions=True)


class Play:
    def __init__(self, seed: int) -> None:
        self.rng, self.history = Random(seed), History(max_changes=MAX_CHANGES)
        self._values = 0
        self._known: dict[str, int] = {}
        """Key → the last version that any client has seen; 0 if it is gone."""
        self._seen_versions: list[int] = []
        self._process = Process(LossyDisk(), self.rng)
        self._live: list[Watched] = []
        """Watches that are being served."""

    async def run(self) -> History:
        clients = [self._write() for _ in range(WRITERS)] + [self._read() for _ in range(READERS)]
        watchers = [asyncio.create_task(self._watch(number == 0)) for number in range(WATCHERS)]
        crashing = asyncio.create_task(self._crash_again_and_again())
        await asyncio.gather(*clients)
        await crashing
        version = await self._list_in_the_end()
        await asyncio.sleep(60)  # on the virtual clock: the slowest watcher has read everything
        for watch in self._live:
            watch.until = version
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        self._process.kill()
        return self.history

    async def _list_in_the_end(self) -> int:
        while True:
            with contextlib.suppress(ServerUnavailable):
                version = await self._list()
                if version is not None:
                    return version

    async def _crash_again_and_again(self) -> None:
        for _ in range(CRASHES):
            process = self._process
            if self.rng.random() < 0.6:
                process.disk._crash_at = process.disk.points + self.rng.randint(1, 60)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SECONDS / CRASHES):
                        await process.is_dead.wait()
            else:
                await asyncio.sleep(self.rng.uniform(0, SECONDS / CRASHES))
            process.kill()
            await asyncio.sleep(self.rng.uniform(0, 0.5))
            left = process.disk.after_crash(self.rng.choice([*FATES]))
            self._process = Process(LossyDisk(left), self.rng)
            self.history.restarts.append((time.time(), self._process.first_version))

    async def _write(self) -> None:
        end = time.time() + SECONDS
        while time.time() < end:
            key = self.rng.choice(KEYS)
            expected = self._known.get(key, 0)
            self._values += 1
            value = 0 if expected and self.rng.random() < 0.25 else self._values
            write = Write(key, value, expected, time.time())
            try:
                body = await self._send(self._write_request(write))
                version = _version(body) if value else 0
                outcome = OK
                self._known[key] = version
            except (Conflict, NotFound):
                version, outcome = 0, REFUSED
                await self._read_key(key)
            except (ServerUnavailable, ApiError):
                version, outcome = 0, UNKNOWN
                await self._read_key(key)
            ended = time.time() if outcome != UNKNOWN else float("inf")
            self.history.writes.append(Write(key, value, expected, write.began, ended, outcome, version))
            await asyncio.sleep(self.rng.expovariate(20))

    def _write_request(self, write: Write) -> Request:
        if not write.value:
            body: Any = {"preconditions": {"resourceVersion": str(write.expected)}}
            return Request("DELETE", f"{MAPS}/{write.key}", body=body)
        metadata = {"name": write.key}
        tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(write.value)}}
        if not write.expected:
            return Request("POST", MAPS, body=tree)
        metadata["resourceVersion"] = str(write.expected)
        return Request("PUT", f"{MAPS}/{write.key}", body=tree)

    async def _read(self) -> None:
        end = time.time() + SECONDS
        while time.time() < end:
            how = self.rng.random()
            with contextlib.suppress(ServerUnavailable):
                if how < 0.5:
                    await self._read_key(self.rng.choice(KEYS))
                elif how < 0.7:
                    await self._list()
                elif self._seen_versions:
                    await self._list_at(self.rng.choice(self._seen_versions[-30:]))
                if how > 0.85:
                    await self._list(limit=2)
            await asyncio.sleep(self.rng.expovariate(20))

    async def _read_key(self, key: str) -> None:
        began = time.time()
        try:
            body = await self._send(Request("GET", f"{MAPS}/{key}"))
        except NotFound:
            self._known[key] = 0
            self.history.reads.append(Read(key, began, time.time()))
        except (ServerUnavailable, ApiError):
            return
        else:
            version, value = _item(msgspec.json.decode(body))
            self._known[key] = version
            self.history.reads.append(Read(key, began, time.time(), version, value))

    async def _list(self, limit: int = 0) -> int | None:
        """The version of the list; None if it could not be read whole."""
        began, items, token, version = time.time(), {}, "", 0
        while True:
            query = {"limit": str(limit), "continue": token} if limit else {}
            try:
                page = msgspec.json.decode(await self._send(Request("GET", MAPS, tuple(query.items()))))
            except ApiError:
                return None
            version = int(page["metadata"]["resourceVersion"])
            items |= {item["metadata"]["name"]: _item(item) for item in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
            await asyncio.sleep(self.rng.expovariate(50))
        self._seen_versions.append(version)
        self.history.lists.append(Listed(began, time.time(), version, items, is_current=True))
        return version

    async def _list_at(self, version: int) -> None:
        began, query = time.time(), (("resourceVersion", str(version)), ("resourceVersionMatch", "Exact"))
        try:
            page = msgspec.json.decode(await self._send(Request("GET", MAPS, query)))
        except ApiError:
            return
        items = {item["metadata"]["name"]: _item(item) for item in page["items"]}
        self.history.lists.append(Listed(began, time.time(), version, items, is_current=False))

    async def _watch(self, is_slow: bool) -> None:
        since = 0
        while True:
            with contextlib.suppress(ServerUnavailable):
                since = since or await self._list() or 0
            if since:
                watch = Watched(since)
                self.history.watches.append(watch)
                with contextlib.suppress(ServerUnavailable):
                    await self._process.run(self._watch_once(watch, is_slow))
                since = 0 if watch.is_expired else max([since, *(event.version for event in watch.events)])
            await asyncio.sleep(self.rng.expovariate(5))

    async def _watch_once(self, watch: Watched, is_slow: bool) -> None:
        request = Request("GET", MAPS, (("watch", "1"), ("resourceVersion", str(watch.since))))
        try:
            self._live.append(watch)
            async with contextlib.aclosing(self._process.client.stream_lines(request, 60.0)) as lines:
                async for line in lines:
                    found = msgspec.json.decode(line)
                    if found["type"] == "ERROR":
                        watch.is_expired = found["object"]["code"] == 410
                        return
                    version, value = _item(found["object"])
                    name = found["object"]["metadata"]["name"]
                    watch.events.append(Event(found["type"], name, version, 0 if found["type"] == "DELETED" else value))
                    if is_slow:
                        await asyncio.sleep(self.rng.expovariate(3))
        finally:
            self._live.remove(watch)

    async def _send(self, request: Request) -> bytes:
        while self._process.is_dead.is_set():
            await asyncio.sleep(0.05)
        return await self._process.run(self._process.client._send_once(request))


def _version(body: bytes) -> int:
    return int(msgspec.json.decode(body)["metadata"]["resourceVersion"])


def _item(tree: Any) -> tuple[int, int]:
    return int(tree["metadata"]["resourceVersion"]), int(tree["data"]["value"])


def play_history(seed: int) -> History:
    async def main() -> History:
        return await Play(seed).run()

    async def write(self: _Writer, chunk: Any) -> None:
        """Waits for a slow reader, as a socket does."""
        while self.lines.qsize() > 1:
            await asyncio.sleep(0.05)
        self.lines.put_nowait((bytes(chunk), time.monotonic()))

    with (
        mock.patch("windlass.embedded.server.watch_memory.MAX_WATCHER_BYTES", WATCHER_BYTES),
        mock.patch.object(_Writer, "write", write),
    ):
        return run_in_virtual_time(main())


def judged(seed: int) -> tuple[int, History, list[str]]:
    history = play_history(seed)
    return seed, history, problems(history)


def main() -> int:
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="make history", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    print(f"{arguments.count} histories from seed {arguments.seed}", flush=True)
    wrong, counts = 0, dict.fromkeys(("writes", "reads", "lists", "watches", "restarts"), 0)
    with get_context("fork").Pool(arguments.jobs) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        for seed, history, found in pool.imap(functools.partial(judged), seeds):
            for name in counts:
                counts[name] += len(getattr(history, name))
            if found:
                wrong += 1
                print(f"\nseed {seed}: {len(found)} problems", *found[:8], sep="\n  ", flush=True)
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    print(f"{wrong} of {arguments.count} histories have problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
