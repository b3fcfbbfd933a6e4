"""MPS on a real GPU: the control daemon outlives the agent that started it, and its clients notice nothing.

A section of `container.py`. The agent is a process that starts the daemon as the plugin does and is killed with its
whole process group; the client is a process that computes all the while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.node.backend.nvml import NvmlBackend
from windlass.node.mps import MpsDaemon

AGENT = """
import sys, time
from pathlib import Path
from windlass.node.backend.nvml import NvmlBackend
from windlass.node.mps import MpsDaemon
backend = NvmlBackend()
MpsDaemon(backend, Path(sys.argv[1]), "nvidia.com/gpu", backend.inventory().gpus, 2).start()
print("started", flush=True)
time.sleep(600)
"""
CLIENT = """
import sys, time
from windlass.node.validator.compute import compute
from windlass.node.validator.cuda import Cuda
with Cuda() as cuda:
    print("connected", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    rounds = 0
    while True:
        result = compute(cuda)
        rounds += 1
        if not result.right:
            sys.exit(f"wrong: {result.error}")
        if time.monotonic() > end:
            break
print(f"right {rounds} times", flush=True)
"""


def mps_life(backend: NvmlBackend, folder: Path, require: Callable[[object, str], None]) -> Any:
    root = folder / "mps"
    gpus = backend.inventory().gpus
    daemon = MpsDaemon(backend, root, "nvidia.com/gpu", gpus, 2)
    try:
        agent = _start(AGENT, str(root))
        require(_line(agent) == "started", "the agent did not start the daemon")
        client = _start(CLIENT, "12", environment=daemon.environment())
        require(_line(client) == "connected", "the client did not connect")
        require(daemon.clients() == (client.pid,), f"clients: {daemon.clients()}, expected {client.pid}")
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        require(daemon.is_alive(), "the daemon died with the agent")
        begun = time.monotonic()
        require(daemon.start(), "the next agent did not adopt the daemon")
        adopted_s = round(time.monotonic() - begun, 2)
        require(daemon.stop() is False, "the daemon was told to quit under its client")
        second = _start(CLIENT, "1", environment=daemon.environment())
        require(_line(second) == "connected", "a new client could not connect")
        told = [_end(second, require), _end(client, require)]
        require(daemon.stop(), "the daemon did not stop when it was unused")
        require(not daemon.is_alive(), "the daemon still answers")
        return {"adopted_s": adopted_s, "clients": told}
    finally:
        for gpu in gpus:
            backend.set_exclusive(gpu.uuid, False)
        if daemon.is_alive():
            daemon.send_command("quit")


def _start(program: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **paths, **(environment or {})},
        start_new_session=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str], require: Callable[[object, str], None]) -> str:
    line = _line(process)
    require(process.wait(60) == 0, f"a client failed: {line}")
    return line
