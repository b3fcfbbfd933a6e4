"""The two servers that are compared, as processes: the embedded one, and kube-apiserver with etcd.

Each comes in two forms: durable (the embedded one with its state on disk, etcd as it is) and not (in memory; etcd
without fsync, which is as near as it comes).
"""

from __future__ import annotations

import base64
import contextlib
import csv
import secrets
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from windlass.model.errors import ClusterUnreachable
from windlass_bench.embedded.sigterm import defer_sigterm
from windlass_bench.processes import cpu_seconds, free_ports, memory_mib

EMBEDDED, KUBE_APISERVER = "windlass", "kube-apiserver + etcd"
START_SECONDS = 120.0


class PeerPrograms(msgspec.Struct, frozen=True):
    """The peer's programs; none where there is nothing to compare with."""

    apiserver: Path
    etcd: Path


class ServerProcess:
    """A running server: where it is, how to get in, and what it costs."""

    def __init__(self, name: str, durable: bool, folder: Path) -> None:
        self.name, self.durable, self._folder = name, durable, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.host, self.port, self.token = "127.0.0.1", 0, ""
        self.context = ssl.create_default_context()

    def run(self, command: Sequence[str], log: str) -> None:
        with (self._folder / log).open("wb") as output, defer_sigterm():
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self._folder
            )
            self._processes.append(process)

    def wait(self, ready: Path | str) -> None:
        """Until a file is there, or an address answers."""
        deadline = time.monotonic() + START_SECONDS
        while not (ready.exists() if isinstance(ready, Path) else self._answers(ready)):
            dead = any(process.poll() is not None for process in self._processes)
            if dead or time.monotonic() > deadline:
                logs = "; ".join(_last_line(file) for file in sorted(self._folder.glob("*.log")))
                raise ClusterUnreachable(f"{self.name} did not start: {logs}")
            time.sleep(0.1)

    def _answers(self, url: str) -> bool:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=2, context=self.context) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def rss_mib(self) -> float:
        return sum(memory_mib(process.pid, "VmRSS") for process in self._processes)

    def peak_rss_mib(self) -> float:
        return sum(memory_mib(process.pid, "VmHWM") for process in self._processes)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._processes)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever ended the block, a signal while it was being left too, nothing is left running."""
        try:
            for process in reversed(self._processes):  # a server without its store would be slow to end
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def run_embedded(durable: bool) -> Iterator[ServerProcess]:
    """Running, for so long."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    with ServerProcess(EMBEDDED, durable, folder) as server:
        kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "windlass_bench.embedded.serve", str(kubeconfig)]
        server.run([*command, str(folder / "state")] if durable else command, "server.log")
        server.wait(kubeconfig)
        content = msgspec.json.decode(kubeconfig.read_bytes())
        cluster = content["clusters"][0]["cluster"]
        server.port = int(urlsplit(cluster["server"]).port or 0)
        server.token = content["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        server.context = ssl.create_default_context(cadata=authority)
        yield server


@contextlib.contextmanager
def run_kube_apiserver(durable: bool, programs: PeerPrograms) -> Iterator[ServerProcess]:
    """kube-apiserver with the admission that every cluster has, one etcd, and no controllers."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    with ServerProcess(KUBE_APISERVER, durable, folder) as server:
        client, peer, port = free_ports(3)
        etcd = f"http://127.0.0.1:{client}"
        store = _etcd_command(programs.etcd, folder, etcd, f"http://127.0.0.1:{peer}", durable)
        server.run(store, "etcd.log")
        server.token, server.port = secrets.token_hex(16), port
        with (folder / "tokens.csv").open("w", newline="") as file:
            csv.writer(file).writerow([server.token, "bench", "bench", "system:masters"])
        key = folder / "accounts.key"
        _write_key(key)
        server.run(_apiserver_command(programs.apiserver, folder, etcd, port, key), "apiserver.log")
        server.context.check_hostname = False  # its certificate is its own, and this is loopback
        server.context.verify_mode = ssl.CERT_NONE
        server.wait(f"https://127.0.0.1:{port}/readyz")
        yield server


def _etcd_command(program: Path, folder: Path, url: str, peer: str, durable: bool) -> list[str]:
    command = [
        str(program),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]
    return command if durable else [*command, "--unsafe-no-fsync"]


def _apiserver_command(program: Path, folder: Path, etcd: str, port: int, key: Path) -> list[str]:
    return [
        str(program),
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=AlwaysAllow",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--profiling=false",
    ]


def _write_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return f"{file.stem}: {lines[-1][-300:]}" if lines else f"{file.stem}: nothing"
