"""`windlass up` as a process of its own, for tests: started, looked at, and stopped like any user's.

`up(folder, "--fleet", …)` is a context; it waits until the addresses are printed and the scheduler has begun, and it
stops the process at the end. The fixtures in `conftest.py` hand out one for a whole test file.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.real_cluster.api import Api

PATIENCE = 240.0


class Up:
    """A running embedded cluster."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.log = folder / "up.log"
        program = str(Path(sys.executable).with_name("windlass"))
        command = [
            program,
            "up",
            "--port=0",
            "--page-port=0",
            f"--write-kubeconfig={self.kubeconfig}",
            *arguments,
        ]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        self._wait(lambda: "nodes  " in self.said(), "its addresses are printed")
        self.api = Api(self.kubeconfig)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def page(self) -> str:
        """A new link to the page: each opens it once."""
        return str(self.api.post("/windlass/page", {})["url"])

    @property
    def printed_link(self) -> str:
        (line,) = [line for line in self.said().splitlines() if line.startswith("page ")]
        return line.split()[1]

    def wait_for_scheduler(self) -> Up:
        """Until a pod that asks for nothing has found its node; it is deleted again."""
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "is-anybody-there", "namespace": "kube-system"},
            "spec": {
                "containers": [{"name": "main", "image": "x"}],
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
            },
        }
        self.api.create(probe)
        path = "/api/v1/namespaces/kube-system/pods/is-anybody-there"
        self._wait(lambda: bool(self.api.get(path)["spec"].get("nodeName")), "the scheduler has begun")
        self.api.delete(path, gracePeriodSeconds=0)
        return self

    def _wait(self, seen: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not seen():
            assert self.process.poll() is None, f"it ended: {self.said()}"
            assert "the scheduler has ended" not in self.said(), self.said()
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}\n{self.said()}"
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextlib.contextmanager
def up(folder: Path, *arguments: str, scheduler: bool = True) -> Iterator[Up]:
    started = Up(folder, *arguments)
    try:
        yield started.wait_for_scheduler() if scheduler else started
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.stop()
