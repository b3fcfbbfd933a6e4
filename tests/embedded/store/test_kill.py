"""SIGKILL while sixteen clients write: what was acknowledged is there afterwards, and what is there is whole.

A few rounds on every run; `WINDLASS_KILL_ROUNDS=100` for many.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import urllib3
from tests.embedded.server.harness import Client
from tests.real_cluster.api import until

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
CLIENTS = 16
ROUNDS = int(os.environ.get("WINDLASS_KILL_ROUNDS", "4"))
LEAST_WRITES = 150
GONE = -1


class Process:
    """The server, from a start to its kill."""

    def __init__(self, folder: Path, number: int) -> None:
        self.kubeconfig = folder / f"kubeconfig-{number}"
        self._log = (folder / f"log-{number}").open("wb")
        command = [
            sys.executable,
            "-m",
            "tests.embedded.store.stateful",
            str(folder / "state"),
            str(self.kubeconfig),
        ]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=_root())
        until(self._answers, 60, "the server to start")
        self.client = Client(self.kubeconfig)

    def _answers(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()[-2000:]
        return self.kubeconfig.exists()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


class Writer(threading.Thread):
    """Writes one object after another until the server is gone, and remembers what was acknowledged."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client, self._name, self._chance = client, name, random.Random(seed)
        self.known: dict[str, int] = {}
        """Object → the step of it that was last acknowledged; `GONE` after its deletion."""
        self.open: tuple[str, int] | None = None
        """What was asked for and not answered."""
        self.writes = 0
        self.problem = ""

    def run(self) -> None:
        step = 0
        while True:
            step += 1
            name = f"{self._name}-{step // 5}"
            last = self.known.get(name, 0)
            wanted = GONE if last > 0 and self._chance.random() < 0.2 else step
            self.open = (name, wanted)
            try:
                answer = self._write(name, last, wanted)
            except (urllib3.exceptions.HTTPError, OSError):
                return
            if answer >= 300:
                self.problem = f"{name} {last} → {wanted}: {answer}"
                return
            self.known[name], self.open = wanted, None
            self.writes += 1

    def _write(self, name: str, last: int, wanted: int) -> int:
        if wanted == GONE:
            return self._client.delete(f"{MAPS}/{name}").code
        if last > 0:
            return self._client.put(f"{MAPS}/{name}", content(name, wanted)).code
        return self._client.post(MAPS, content(name, wanted)).code


def content(name: str, step: int) -> Unstructured:
    """An object that shows when only half of it is there."""
    text = f"{name}/{step}/" * 40
    data = {"step": str(step), "text": text, "sum": hashlib.sha256(text.encode()).hexdigest()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def enough(writers: list[Writer]) -> bool:
    return sum(writer.writes for writer in writers) >= LEAST_WRITES or any(writer.problem for writer in writers)


def _root() -> Path:
    return Path(__file__).parents[3]


def test_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    known: dict[str, int] = {}
    newest = 0
    for number in range(ROUNDS):
        server = Process(tmp_path, number)
        page = server.client.get(MAPS).ok()
        version = int(page["metadata"]["resourceVersion"])
        assert version >= newest, "versions went back"
        found = {item["metadata"]["name"]: item for item in page["items"]}
        assert {name: int(value["data"]["step"]) for name, value in found.items()} == {
            name: step for name, step in known.items() if step != GONE
        }
        writers = [Writer(server.client, f"r{number}-c{item}", number * 100 + item) for item in range(CLIENTS)]
        for writer in writers:
            writer.start()
        until(partial(enough, writers), what=f"{LEAST_WRITES} writes")
        newest = int(server.client.get(MAPS, limit=1).ok()["metadata"]["resourceVersion"])
        server.kill()
        for writer in writers:
            writer.join(60)
            assert not writer.problem
            known |= writer.known
        known = _settled(tmp_path, number, known, [writer.open for writer in writers if writer.open])


def _settled(folder: Path, number: int, known: dict[str, int], pending: list[tuple[str, int]]) -> dict[str, int]:
    """After a restart: what was acknowledged, or what was in flight, and that whole."""
    server = Process(folder, 1000 + number)
    page = server.client.get(MAPS).ok()
    server.kill()
    found = {}
    for item in page["items"]:
        name, step = item["metadata"]["name"], int(item["data"]["step"])
        assert item["data"] == content(name, step)["data"], f"{name} is not whole"
        found[name] = step
    asked = dict(pending)
    for name in {*found, *known}:
        step, told = found.get(name, GONE), known.get(name, GONE)
        assert step == told or asked.get(name) == step, f"{name}: {told} was acknowledged, {step} is there"
    return found
