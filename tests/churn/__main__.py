"""Jobs and pods come and go for a long time: does memory grow, and does the scheduler still believe what is true?

    python -m tests.churn [--hours 24]             # on the virtual clock, all in one process
    python -m tests.churn --minutes 20 [--rate 2]  # for real: a control plane, and the scheduler as a process

Every line is an hour (a minute): memory, what is there, and what the scheduler believes beside what the cluster says.
The exit code is 1 if these differ, or if the memory of the last quarter is above that of the second by more than a
tenth. On the virtual clock the embedded API server keeps less of its history than else (`HISTORY_BYTES` a kind):
filling up what it may keep would take all day, and hide whatever else grows.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from tests.api_load.__main__ import JOBS, cluster_of, end_pods
from tests.kube.virtual_time import run_in_virtual_time
from tests.live.replica import Replica
from tests.live.test_live_queues import job, queues
from tests.real_cluster.api import until
from tests.worlds.virtual_cluster import VirtualCluster
from tests.worlds.virtual_time import Machine

from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.fleet_spec import Fleet

GROWTH = 1.1
HISTORY_BYTES = 1 << 16
UNDER_WAY_SECONDS = 60
"""So long what was seen at once may differ: it arrives one after the other."""
ENDED = ("Succeeded", "Failed")
FLEET = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Fleet",
    "metadata": {"name": "churn"},
    "spec": {"pools": [{"name": "big", "count": 20, "gpus": [{"model": "H100", "count": 8}]}]},
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--minutes", type=int)
    parser.add_argument("--rate", type=float, default=2, help="Jobs a second, for real")
    options = parser.parse_args(arguments)
    if options.minutes is not None:
        return verdict(play_for_real(options.minutes, options.rate))
    machine = Machine()
    with (
        mock.patch("asyncio.to_thread", machine.to_thread),
        mock.patch("windlass.scheduler.loop.INLINE_MAX_SECONDS", -1.0),
        mock.patch("windlass.scheduler.loop.EXPLAIN_SECONDS", 60.0),
        mock.patch("windlass.embedded.store.resource_storage.MAX_HISTORY_BYTES", HISTORY_BYTES),
    ):
        return verdict(run_in_virtual_time(play_virtually(options.hours, machine)))


def verdict(memory: list[float]) -> int:
    quarter = max(1, len(memory) // 4)
    early, late = max(memory[quarter : 2 * quarter]), max(memory[-quarter:])
    print(f"memory: {early:.0f} MiB at most in the second quarter, {late:.0f} MiB in the last", flush=True)
    return int(late > GROWTH * early)


async def play_virtually(hours: int, machine: Machine) -> list[float]:
    rng, memory = Random(1), []
    fleet = decode_object(FLEET)
    assert isinstance(fleet, Fleet)
    cluster = VirtualCluster(fleet_nodes(fleet, time.time()), Settings(), rng, machine)
    await cluster.start()
    for tree in queues(100):
        await cluster.create(resource_of(tree), {**tree, "apiVersion": "kueue.x-k8s.io/v1beta2"})
    arriving = asyncio.create_task(arrive(cluster, rng))
    try:
        for hour in range(1, hours + 1):
            await asyncio.sleep(3600)
            gc.collect()
            memory.append(resident_mib(os.getpid()))
            print(f"hour {hour:2}: {memory[-1]:.0f} MiB, {await census(cluster)}", flush=True)
        arriving.cancel()
        await asyncio.sleep(3 * 3600)
        print(f"at rest: {await census(cluster)}")
    finally:
        arriving.cancel()
        await cluster.stop()
    return memory


async def arrive(cluster: VirtualCluster, rng: Random) -> None:
    """A Job every minute and a half, in the mean; three of ten are in no queue, and all run for some minutes."""
    for number in range(1_000_000):
        await asyncio.sleep(rng.expovariate(1 / 90))
        seconds = rng.choice((60, 300, 900, 1800))
        made = job(f"j{number:06}", rng.choice((1, 2, 4)), rng.choice((1, 2, 4, 8)))
        made["metadata"]["namespace"] = "default"
        template = made["spec"]["template"]
        template["metadata"] = {"annotations": {"sandbox.windlass.dev/duration": f"{seconds}s"}}
        if rng.random() < 0.3:  # outside of queues
            made["metadata"]["labels"].clear()
            made["spec"]["suspend"] = False
        made["spec"]["ttlSecondsAfterFinished"] = 60
        await cluster.create("jobs.batch", made)


async def census(cluster: VirtualCluster) -> str:
    """What the scheduler's store has, beside what the cluster says; raises where they go on differing."""
    until = time.time() + UNDER_WAY_SECONDS
    while True:
        await asyncio.sleep(5)  # everything that is under way arrives
        differences, shown = await compare(cluster)
        if not differences or time.time() > until:
            assert not differences, differences
            return shown


async def compare(cluster: VirtualCluster) -> tuple[list[str], str]:
    """In what the scheduler and the cluster differ, and what there is."""
    cache = cluster._replicas[0].scheduler.cache
    pods = [pod for pod in await cluster.list("pods") if pod["status"].get("phase") not in ENDED]
    bound = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods if pod["spec"].get("nodeName")}
    believed = {key for key, pod in cache.pods.items() if pod.is_bound and not pod.is_terminal}
    workloads = await cluster.list("workloads.kueue.x-k8s.io")
    held = sum(gpus_of(each) for each in workloads if not is_finished(each))
    (queue,) = await cluster.list("clusterqueues.kueue.x-k8s.io")
    said = sum(int(cell["total"]) for flavor in queue["status"]["flavorsReservation"] for cell in flavor["resources"])
    found = {
        f"the scheduler believes {believed ^ bound}": believed != bound,
        f"binds that nobody has seen: {cache.assumed}": bool(cache.assumed),
        f"the queue says {said}, and its Workloads hold {held}": said != held,
        f"{held} of 100 GPUs are held": held > 100,
    }
    shown = f"{len(bound)} pods run, {len(pods) - len(bound)} wait, {held} of 100 GPUs of the queue are held"
    return [difference for difference, is_so in found.items() if is_so], shown


def gpus_of(workload: dict[str, Any]) -> int:
    admission = workload.get("status", {}).get("admission") or {}
    return sum(int(part["resourceUsage"]["nvidia.com/gpu"]) for part in admission.get("podSetAssignments", ()))


def is_finished(workload: dict[str, Any]) -> bool:
    conditions = workload.get("status", {}).get("conditions") or ()
    return any(found["type"] == "Finished" and found["status"] == "True" for found in conditions)


def resource_of(tree: dict[str, Any]) -> str:
    return f"{tree['kind'].lower()}s.{tree['apiVersion'].partition('/')[0]}"


def resident_mib(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def play_for_real(minutes: int, rate: float) -> list[float]:
    """Each Job of one pod runs for ten seconds, and is deleted by its time to live."""
    folder, memory = Path(tempfile.mkdtemp(prefix="churn-")), []
    with cluster_of(folder, 100) as (plane, _):
        replica = Replica(plane.kubeconfig, folder / "log").wait_ready()
        stopped = threading.Event()
        threading.Thread(target=end_pods, args=(plane.api, stopped), daemon=True).start()
        try:
            began, number = time.monotonic(), 0
            for minute in range(1, minutes + 1):
                while time.monotonic() < began + 60 * minute:
                    made = job(f"j{number:06}", 1, 1)
                    made["spec"]["ttlSecondsAfterFinished"] = 5
                    plane.api.create(made)
                    number += 1
                    time.sleep(max(0.0, began + number / rate - time.monotonic()))
                memory.append(resident_mib(replica.process.pid))
                there = len(plane.api.items("/api/v1/pods"))
                print(f"minute {minute:2}: {memory[-1]:.0f} MiB, {number} Jobs so far, {there} pods", flush=True)
            until(lambda: not plane.api.items(JOBS), 120, "all end")
            until(is_idle(replica), 60, "and the scheduler knows it")
        finally:
            stopped.set()
            replica.stop()
    return memory


def is_idle(replica: Replica) -> Callable[[], bool]:
    def look() -> bool:
        found = replica.metrics()
        waiting = [value for name, value in found.items() if name.startswith("windlass_held_workloads")]
        return not any(waiting) and not found["windlass_binds_in_flight"]

    return look


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
