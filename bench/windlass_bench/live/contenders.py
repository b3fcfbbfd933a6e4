"""The programs that are compared, as processes: started, stopped with SIGSTOP, let go, and measured.

`limit` is no scheduler: it posts a binding and an event for each pod and decides nothing, which is as fast as a client
of this kind can be.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import msgspec

from windlass.kube.credentials import ClientCertificate
from windlass.kube.tls import tls_context
from windlass.model.errors import ClusterUnreachable
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass_bench.processes import cpu_seconds, free_ports, memory_mib

WINDLASS, PEER, PACKING, LIMIT = "windlass", "kube-scheduler", "kube-scheduler, packing", "limit"
BEFORE = "windlass, before"
"""Another build of Windlass, such as that of an earlier commit."""
SCHEDULER_NAMES = {
    WINDLASS: "windlass",
    BEFORE: "windlass",
    PEER: "default-scheduler",
    PACKING: "default-scheduler",
    LIMIT: "nobody",
}
_RESOURCES = ({"name": GPU_RESOURCE, "weight": 8}, {"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
PACKING_PROFILE = {
    "schedulerName": "default-scheduler",
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated", "resources": _RESOURCES}}}
    ],
}
"""kube-scheduler's own way to pack: the fullest node first, by GPUs before all."""
START_SECONDS = 120.0


class Programs(msgspec.Struct, frozen=True):
    peer: Path | None
    """kube-scheduler."""
    before: Path | None = None


class Usage(msgspec.Struct, frozen=True):
    cpu_seconds: float
    peak_rss_mib: float


class SchedulerProcess:
    """A running scheduler."""

    def __init__(self, name: str, command: list[str], port: int, secure: bool, log: Path) -> None:
        self.name, self._port, self._secure, self._log = name, port, secure, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    async def ready(self) -> None:
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not await asyncio.to_thread(self._answers):
            late = asyncio.get_running_loop().time() > deadline
            if late or self._process.poll() is not None:
                lines = self._log.read_text(errors="replace").splitlines()[-3:]
                raise ClusterUnreachable(f"{self.name} did not start: {' '.join(lines)}")
            await asyncio.sleep(0.2)

    def _answers(self) -> bool:
        try:
            self._get("readyz")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> bytes:
        scheme = "https" if self._secure else "http"
        # kube-scheduler makes its own certificate; this is loopback.
        context = tls_context(b"", insecure=True, client_certificate=ClientCertificate()) if self._secure else None
        with urllib.request.urlopen(f"{scheme}://127.0.0.1:{self._port}/{path}", timeout=10, context=context) as answer:
            return bytes(answer.read())

    async def metrics(self) -> str:
        return (await asyncio.to_thread(self._get, "metrics")).decode()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def usage(self) -> Usage:
        return Usage(cpu_seconds(self._process.pid), memory_mib(self._process.pid, "VmHWM"))

    def stop(self) -> None:
        if self._process.poll() is None:
            self.resume()
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_scheduler(name: str, kubeconfig: Path, programs: Programs) -> SchedulerProcess:
    """Windlass as it is installed here, or kube-scheduler with client limits that don't bind; neither elects."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    (port,) = free_ports(1)
    if name in (WINDLASS, BEFORE):
        program = programs.before if name == BEFORE else Path(sys.executable).with_name("windlass")
        command = [str(program), "scheduler", f"--kubeconfig={kubeconfig}", "--no-leader-elect"]
        command += [f"--listen=127.0.0.1:{port}", "--log-level=warning"]
        return SchedulerProcess(name, command, port, False, folder / "log")
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "profiles": [PACKING_PROFILE if name == PACKING else {"schedulerName": "default-scheduler"}],
    }
    file = folder / "configuration.yaml"
    file.write_text(json.dumps(configuration))
    command = [str(programs.peer), f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
    command += ["--authorization-always-allow-paths=/readyz,/metrics"]
    return SchedulerProcess(name, command, port, True, folder / "log")
