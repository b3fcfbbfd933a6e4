"""`windlass bench why`: how long an answer takes on a large dump, and a check of many manifests.

Makes a cluster of its own (nodes, pods with owners, one pod that can't be placed), asks the command in a process of its
own, and reads that process's time and memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from windlass.model.names.kubernetes import BATCH_API_VERSION, HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.nvidia import GPU_COUNT_LABEL, GPU_PRODUCT_LABEL, GPU_RESOURCE
from windlass_bench.section import Column, Section, columns

GOALS = {"why": (5.0, 1536), "check": (3.0, None)}
"""Seconds and MiB that the project set itself."""
GPUS = 8

TITLE = "Answers on large inputs"
COLUMNS = (
    *columns(what="what", size="input"),
    Column("megabytes", "input, MB", "{:.0f}"),
    *columns("{:.2f}", seconds="wall, s", cpu="CPU, s"),
    Column("mib", "peak memory, MiB", "{:,.0f}"),
    *columns(goal="goal", answer="answer"),
)


def measure(quick: bool) -> Section:
    """Both measurements."""
    nodes, pods, manifests = (500, 5_000, 100) if quick else (5_000, 50_000, 1_000)
    with TemporaryDirectory() as folder:
        dump, files = Path(folder) / "dump.json", Path(folder) / "manifests"
        _write_dump(dump, nodes, pods)
        write_manifests(files, manifests)
        rows = [
            _row(
                "why",
                f"{nodes:,} nodes, {pods:,} pods",
                dump,
                ["why", "pod/asked", "--from", str(dump), "-o", "json"],
            ),
            _row("check", f"{manifests:,} manifests", files, ["check", "-f", str(files), "-o", "json"]),
        ]
    note = "The whole command, in a process of its own: start, reading, answer, printing."
    return Section("answers", TITLE, COLUMNS, rows, note=note)


def _write_dump(file: Path, nodes: int, pods: int) -> None:
    """In a process of its own: a child's peak memory counts that of the process which started it, up to then."""
    code = (
        "import sys; from windlass_bench.why import large_dump; "
        "sys.stdout.buffer.write(large_dump(*map(int, sys.argv[1:])))"
    )
    with file.open("wb") as target:
        subprocess.run([sys.executable, "-c", code, str(nodes), str(pods)], stdout=target, check=True)


def large_dump(nodes: int, pods: int) -> bytes:
    """A full cluster with one pod that waits, about 4 kB a pod, as `kubectl get -o json` writes it."""
    items = [_node(number) for number in range(nodes)]
    items += [
        _pod(f"train-{number}", f"node-{number % nodes:05}", 1 if number // nodes < GPUS else 0)
        for number in range(pods)
    ]
    items.append(_pod("asked", "", GPUS))
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "96", "memory": "1024Gi", "pods": "110", GPU_RESOURCE: str(GPUS)}
    labels = {
        HOSTNAME_LABEL: f"node-{number:05}",
        ZONE_LABEL: f"zone-{number % 3}",
        GPU_PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3",
        GPU_COUNT_LABEL: str(GPUS),
        **{f"feature.node.kubernetes.io/cpu-feature-{number}": "true" for number in range(24)},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:05}", "uid": f"node-{number}", "labels": labels},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, node: str, gpus: int) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "32Gi", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
    container = {
        "name": "main",
        "image": "registry.example/team/train:2026.1",
        "command": ["python", "train.py", *[f"--option-{number}=value" for number in range(20)]],
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)],
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    owner = {
        "apiVersion": BATCH_API_VERSION,
        "kind": "Job",
        "name": name.rpartition("-")[0] or name,
        "uid": "u",
        "controller": True,
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "research", "uid": name, "ownerReferences": [owner]},
        "spec": {"containers": [container], "schedulerName": "default-scheduler"},
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "Initialized", "status": "True"}] * 4,
        },
    }
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def write_manifests(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"job-{number:04}.yaml").write_text(MANIFEST.replace("NUMBER", str(number)))


MANIFEST = """apiVersion: batch/v1
kind: Job
metadata:
  name: train-NUMBER
  namespace: research
  labels:
    kueue.x-k8s.io/queue-name: team
spec:
  suspend: true
  parallelism: 4
  completions: 4
  template:
    metadata:
      labels:
        app: train-NUMBER
    spec:
      restartPolicy: Never
      tolerations:
      - key: nvidia.com/gpu
        operator: Exists
      containers:
      - name: main
        image: registry.example/team/train:cuda12.4
        command: [torchrun, train.py]
        resources:
          limits:
            cpu: "16"
            memory: 128Gi
            nvidia.com/gpu: "2"
"""


def _row(what: str, size: str, path: Path, arguments: list[str]) -> dict[str, Any]:
    seconds, cpu, mib, answer = run_command(arguments)
    total = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
    goal, memory = GOALS[what]
    return {
        "what": what,
        "size": size,
        "megabytes": total / 1e6,
        "seconds": seconds,
        "cpu": cpu,
        "mib": mib,
        "goal": f"{goal:g} s{f', {memory:,} MiB' if memory else ''}",
        "answer": answer,
    }


def run_command(arguments: list[str]) -> tuple[float, float, float, str]:
    """Wall seconds, CPU seconds, peak MiB, and the code or the number of findings that it answered with."""
    read, write = os.pipe()
    start = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", "from windlass.cli.main import main; main()", *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)],
    )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        printed = pipe.read()
    _, _, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    document = msgspec.json.decode(printed)
    answer = document.get("code") or f"{len(document['findings'])} findings"
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, answer
