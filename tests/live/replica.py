"""A `windlass scheduler` process for tests on a real API server: started, stopped, killed and frozen like any other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.real_cluster.service import free_ports


def program(sources: Path | None = None) -> list[str]:
    """The command `windlass`, of this release or of the one in `sources`."""
    if sources is None:
        return [str(Path(sys.executable).with_name("windlass"))]
    return [sys.executable, "-c", "import sys\nfrom windlass.cli.main import main\nsys.exit(main())"]


def environment(sources: Path | None = None) -> dict[str, str]:
    """Another release has no compiled kernels, and compiling them takes longer than these clusters are worth."""
    if sources is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": str(sources), "NUMBA_DISABLE_JIT": "1"}


class Replica:
    def __init__(self, kubeconfig: Path, log: Path, *arguments: str, sources: Path | None = None) -> None:
        """`sources`: a folder with another release's package, to run that one."""
        (self.port,) = free_ports(1)
        self.log = log
        command = [*program(sources), "scheduler", f"--kubeconfig={kubeconfig}"]
        command += [f"--listen=127.0.0.1:{self.port}", "--log-format=text", *arguments]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment(sources)
            )

    def status(self, path: str = "/readyz") -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}

    def wait_ready(self, seconds: float = 240.0) -> Replica:
        deadline = time.monotonic() + seconds
        while self.status() != 200:
            assert self.process.poll() is None, self.last_lines()
            assert time.monotonic() < deadline, f"not ready:\n{self.last_lines()}"
            time.sleep(0.1)
        return self

    @property
    def leads(self) -> bool:
        with contextlib.suppress(OSError):
            return self.metrics().get("windlass_leading") == 1.0
        return False

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def last_lines(self, count: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


@contextlib.contextmanager
def replica(kubeconfig: Path, log: Path, *arguments: str, ready: bool = True) -> Iterator[Replica]:
    one = Replica(kubeconfig, log, *arguments)
    try:
        if ready:
            one.wait_ready()
        yield one
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.stop()
