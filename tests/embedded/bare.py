"""The embedded cluster without nodes and without a scheduler, for tests that bring their own of both.

`python -m tests.embedded.bare KUBECONFIG` serves until SIGTERM; `Bare` is that as a process, with what the fixture
`cluster` promises: a kubeconfig and a client. Its nodes are objects that the tests make, as on the real control plane.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.real_cluster.api import Api

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0


class Bare:
    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "log"
        command = [sys.executable, "-m", "tests.embedded.bare", str(self.kubeconfig)]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        deadline = time.monotonic() + PATIENCE
        while "ready" not in self._log.read_text(errors="replace"):
            assert self._process.poll() is None, self._log.read_text(errors="replace")
            assert time.monotonic() < deadline, "the embedded cluster did not start"
            time.sleep(0.05)
        self.api = Api(self.kubeconfig)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def serve(kubeconfig: Path) -> None:
    from windlass.embedded.embedded_cluster import EmbeddedCluster, EmbeddedClusterOptions

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    cluster = EmbeddedCluster(EmbeddedClusterOptions())
    await cluster.start()
    cluster.write_kubeconfig(kubeconfig)
    print("ready", flush=True)
    await stopped.wait()
    await cluster.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
