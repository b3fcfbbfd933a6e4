"""The node agent measured: memory, scrapes, allocations, and how soon the kubelet hears of a fault.

`windlass bench node` calls it. The agent runs as it would on a node, two processes under the supervisor, on a simulated
machine with eight GPUs; the kubelet is the one that the tests use, over real sockets.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from windlass.model.errors import InputError
from windlass.model.fleet_spec import FleetGpus, FleetPool
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.plugin.preferred_allocation import DeviceChooser
from windlass.node.process_memory import freeze_and_trim_memory
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig, resolve_config
from windlass_bench.cgroup_memory import MIB, make_cgroup, read_memory
from windlass_bench.fake_kubelet import FakeKubelet
from windlass_bench.processes import free_ports

PATIENCE = 60.0
SHARES = 10
SHARED = f"version: v1\nsharing: {{timeSlicing: {{resources: [{{name: {GPU_RESOURCE}, replicas: {SHARES}}}]}}}}\n"
MIG = "version: v1\nflags: {migStrategy: mixed}\n"
INSTANCE, INSTANCES = "1g.18gb", 7


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One number with its goal, where there is one."""

    name: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None else self.value <= self.goal


def measure_node(folder: Path, *, faults: int = 10, warm_up_seconds: float = 15.0) -> list[Measure]:
    """All of it; takes half a minute."""
    with _agent(folder / "whole", Scene()) as running:
        time.sleep(warm_up_seconds)  # memory is what it is after some rounds, not at the first
        found = [
            Measure(name="start to the first healthy device", value=running.took, unit="s"),
            *_memory(running.process.pid),
            *_cgroup_memory(running.cgroup),
            *_scrapes(running.port),
            *_allocations(running.kubelet, "Allocate over gRPC"),
            *_faults(running.kubelet, running.machine, faults),
        ]
    with _agent(folder / "sixteen", Scene(gpus=16, devices=16)) as running:
        time.sleep(warm_up_seconds)
        found += _cgroup_memory(running.cgroup, ", 16 GPUs")
    with _agent(folder / "shares", Scene(config=SHARED, devices=8 * SHARES)) as running:
        found += _allocations(running.kubelet, f"Allocate, 8 × {SHARES} shares")
    instances = Scene(config=MIG, mig=(INSTANCE,) * INSTANCES, resource=f"nvidia.com/mig-{INSTANCE}", devices=56)
    with _agent(folder / "instances", instances) as running:
        found += _scrapes(running.port, f", 8 × {INSTANCES} instances")
    return [*found, *preferred_latency()]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """How the GPUs are cut and shared, and what the kubelet is to see."""

    gpus: int = 8
    config: str = "version: v1\n"
    mig: tuple[str, ...] = ()
    resource: str = GPU_RESOURCE
    devices: int = 8


class Running(NamedTuple):
    """An agent that has advertised everything."""

    process: subprocess.Popen[bytes]
    kubelet: FakeKubelet
    machine: SimulatedBackend
    port: int
    cgroup: Path | None
    took: float
    """Seconds from its start to the first healthy device."""


@contextmanager
def _agent(folder: Path, scene: Scene) -> Iterator[Running]:
    folder.mkdir()
    fleet, config = folder / "fleet.yaml", folder / "config.yaml"
    group = f"{{model: H200, count: {scene.gpus}, mig: [{', '.join(scene.mig)}]}}"
    pools = f"[{{name: bench, numa: 2, gpus: [{group}]}}]"
    fleet.write_text(f"apiVersion: windlass.dev/v1\nkind: Fleet\nspec: {{pools: {pools}}}\n")
    config.write_text(scene.config)
    gpus = FleetGpus(model="H200", count=scene.gpus, mig=scene.mig)
    machine = SimulatedBackend(FleetPool(name="bench", numa=2, gpus=(gpus,)), folder=folder / "machine")
    kubelet = FakeKubelet(folder / "plugins")
    kubelet.start()
    (port,) = free_ports(1)
    cgroup = make_cgroup()
    into = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"] if cgroup is not None else []
    command = [
        *(*into, sys.executable, "-c", "from windlass.cli.main import main; main()", "node", "run", "--without-api"),
        *("--fleet", str(fleet), "--root", str(folder / "machine"), "--state", str(folder / "state")),
        *("--device-plugins", str(folder / "plugins"), "--cdi-folder", str(folder / "cdi")),
        *("--listen", f"127.0.0.1:{port}", "--interval", "1", "--quiet-seconds", "0.1", "--config-file", str(config)),
    ]
    begun = time.monotonic()
    with (folder / "agent.log").open("wb") as log:
        agent = subprocess.Popen(command, stderr=log)
    late = f"the agent didn't come up: see {folder}/agent.log"
    try:
        _until(lambda: kubelet.healthy_devices(scene.resource), late)
        took = round(time.monotonic() - begun, 2)
        _until(lambda: len(kubelet.healthy_devices(scene.resource)) == scene.devices, late)
        yield Running(agent, kubelet, machine, port, cgroup, took)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(20)
        kubelet.stop()
        if cgroup is not None:
            cgroup.rmdir()


def _cgroup_memory(cgroup: Path | None, where: str = "") -> list[Measure]:
    """What counts against a container's limit: also the kernel's part and the files that were read."""
    if cgroup is None:
        return []
    memory = read_memory(cgroup)
    rows = (
        ("anonymous", memory.anonymous, 128.0),
        ("current", memory.current, None),
        ("highest", memory.highest, None),
    )
    return [
        Measure(name=f"memory of its cgroup{where}, {name}", value=round(size / MIB, 1), unit="MiB", goal=goal)
        for name, size, goal in rows
    ]


def _memory(pid: int) -> list[Measure]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    sizes = {"supervisor": _resident(pid)}
    for child in children:
        name = "plugin" if "child\0plugin" in Path(f"/proc/{child}/cmdline").read_text() else "sidecar"
        sizes[name] = _resident(child)
    goals = {"plugin": 45.0}
    found = [
        Measure(name=f"resident memory, {name}", value=size, unit="MiB", goal=goals.get(name))
        for name, size in sizes.items()
    ]
    total = round(sum(sizes.values()), 1)
    shared_once = round(sum(_proportional(each) for each in (pid, *children)), 1)
    return [
        *found,
        Measure(name="resident memory, in all", value=total, unit="MiB", goal=100.0),
        Measure(name="the same with shared pages counted once", value=shared_once, unit="MiB"),
    ]


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1)


def _proportional(pid: int) -> float:
    """PSS: a page that several processes have counts for each of them in part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _scrapes(port: int, where: str = "") -> list[Measure]:
    _until(lambda: _answers(port), "the exporter doesn't answer")
    took = []
    page = ""
    for _ in range(200):
        begun = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            page = answer.read().decode()
        took.append(time.perf_counter() - begun)
    line = next(line for line in page.splitlines() if line.startswith("windlass_exporter_pass_seconds "))
    return [
        Measure(name=f"scrape{where}, median", value=_milliseconds(took, 0.5), unit="ms"),
        Measure(name=f"scrape{where}, 99th percentile", value=_milliseconds(took, 0.99), unit="ms"),
        Measure(name=f"pass over the hardware{where}", value=round(1000 * float(line.split()[1]), 2), unit="ms"),
    ]


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return b"windlass_exporter_pass_seconds " in answer.read()
    except OSError:
        return False


def _allocations(kubelet: FakeKubelet, what: str) -> list[Measure]:
    devices = sorted(kubelet.healthy_devices(GPU_RESOURCE))
    took = []
    for number in range(200):
        begun = time.perf_counter()
        kubelet.allocate(GPU_RESOURCE, *devices[: 1 + number % 8])
        took.append(time.perf_counter() - begun)
    return [
        Measure(name=f"{what}, median", value=_milliseconds(took, 0.5), unit="ms"),
        Measure(name=f"{what}, 99th percentile", value=_milliseconds(took, 0.99), unit="ms"),
    ]


def _faults(kubelet: FakeKubelet, machine: SimulatedBackend, count: int) -> list[Measure]:
    """From the driver's report of a fatal Xid to the kubelet's list without the device."""
    took = []
    uuids = [gpu.uuid for gpu in machine.inventory().gpus]
    for number in range(count):
        at = number % 8
        begun = time.perf_counter()
        machine.inject(at, 95)
        _until(partial(_is_out, kubelet, uuids[at]), "the kubelet was not told")
        took.append(time.perf_counter() - begun)
    return [
        Measure(name="fault to kubelet told, median", value=_milliseconds(took, 0.5) / 1000, unit="s"),
        Measure(name="fault to kubelet told, worst", value=_milliseconds(took, 1.0) / 1000, unit="s", goal=1.0),
    ]


def _is_out(kubelet: FakeKubelet, uuid: str) -> bool:
    return uuid not in kubelet.healthy_devices(GPU_RESOURCE)


def preferred_latency(rounds: int = 60) -> list[Measure]:
    """The choice among sixteen GPUs, never the same question twice; worst case over ways to wire, cut and share them.

    In processor time: what else the machine does at that moment is not the algorithm's.
    """
    freeze_and_trim_memory()  # as the plugin does
    took = []
    draws = random.Random(7)
    for inventory, config in _boards():
        (resource,) = advertised_resources(inventory, config)
        chooser = DeviceChooser(resource, inventory)
        names = [device.id for device in resource.devices]
        for _ in range(rounds):
            free = draws.sample(names, draws.randint(2, len(names)))
            size = draws.randint(1, min(16, len(free) - 1))
            begun = time.thread_time()
            chooser.choose(free, free[:1] if draws.random() < 0.3 else [], size)
            took.append(time.thread_time() - begun)
    return [
        Measure(name="preferred allocation, 16 GPUs, median", value=_milliseconds(took, 0.5), unit="ms"),
        Measure(name="preferred allocation, 16 GPUs, worst", value=_milliseconds(took, 1.0), unit="ms", goal=5.0),
    ]


def _boards() -> Iterator[tuple[Inventory, PluginConfig]]:
    """Islands and NUMA nodes of every size, instances of every GPU, and forty-eight shares of each."""
    for islands in (1, 2, 4, 8, 16):
        for numa in (1, 2, 4, 8):
            yield _board(islands=islands, numa=numa), resolve_config()
    yield _board(mig=("1g.18gb",) * 7), resolve_config({"flags": {"migStrategy": "mixed"}})
    shares = {"resources": [{"name": GPU_RESOURCE, "replicas": 48}]}
    yield _board(), resolve_config({"sharing": {"timeSlicing": shares}})


def _board(*, islands: int = 1, numa: int = 2, mig: tuple[str, ...] = ()) -> Inventory:
    gpus = FleetGpus(model="H200", count=16, islands=islands, mig=mig)
    return SimulatedBackend(FleetPool(name="board", numa=numa, gpus=(gpus,))).inventory()


def _milliseconds(took: list[float], share: float) -> float:
    ordered = sorted(took)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def _until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise InputError(what)
        time.sleep(0.002)
