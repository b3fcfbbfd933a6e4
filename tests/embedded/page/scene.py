"""A cluster with one of everything that the page shows: work that waits for time or for a person, planned starts, a
change, repairs, a node that comes up, and a recorded past. For tests and for pictures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
from tests.embedded.page.feed import nodes, pod
from tests.embedded.page.served import Served
from tests.web.test_changes import CHANGE, GPU_NODE, REPAIR, with_status

from windlass.model.times import format_timestamp
from windlass.telemetry.demand import Demand, WaitingWork
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import GpuShare, Ledger
from windlass.telemetry.starts import FirstWork, Start
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import LedgerHistory
from windlass.web.page_state import CUSTOM_RESOURCE_DEFINITIONS, OPERATOR_VIEWS

GPU = "nvidia.com/gpu"
A100, V100 = "NVIDIA-A100-SXM4-40GB", "Tesla-V100-SXM2-16GB"
HOLDER = Holder("vision", "research", "ada", "Job vision/train")


def waiting(
    name: str, message: str, team: str, queue: str, gpus: int, hours: float = 1, **notes: str
) -> dict[str, Any]:
    made = pod(name, {GPU: str(gpus)}, waits=("Unschedulable", message))
    labels = {"windlass.dev/team": team, "kueue.x-k8s.io/queue-name": queue}
    created = format_timestamp(int(time.time() - hours * 3600))
    annotations = {f"windlass.dev/{key}": value for key, value in notes.items()}
    made["metadata"] |= {"labels": labels, "creationTimestamp": created, "namespace": team, "annotations": annotations}
    return made


def planned(minutes: int) -> str:
    at = format_timestamp(int(time.time()) + minutes * 60 + 30)
    return f"0/10 nodes are available: no room for it; planned to start at {at}. (GPU_FULL)"


TAINT = "0/10 nodes are available: 10 node(s) had untolerated taint(s). Needs a toleration. (TAINT_NOT_TOLERATED)"
QUOTA = "0/10 nodes are available: queue research has 0 of 16 GPUs left. (KUEUE_QUOTA_INSUFFICIENT)"


def fill(served: Served) -> None:
    served.put("nodes", *nodes())
    running = pod("serve", {GPU: "2"}, node="h100-0", devices="0,1", gpu_utilization="70")
    served.put("pods", running)
    served.put(
        "pods",
        waiting("forgot-toleration", TAINT, "vision", "vision-queue", 1, 3),
        waiting("moe-train", planned(30), "nlp", "nlp-queue", 8, 2, duration="2h"),
        waiting("finetune", planned(90), "vision", "vision-queue", 4, 5),
        waiting("ablation", QUOTA, "vision", "vision-queue", 2, 0.5),
    )
    for resource in OPERATOR_VIEWS:
        served.put(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": resource}})
    now = time.time()
    soon, early = format_timestamp(int(now) + 1230), format_timestamp(int(now) - 3600)
    served.put(
        "fleetchanges.windlass.dev",
        with_status(CHANGE, since=early, deadline=soon),
        {**with_status(CHANGE, phase="Succeeded", reason="Done", changed=8, failed=0), "metadata": {"name": "r580"}},
    )
    ticket = with_status(REPAIR, phase="Ticket", reason="AwaitingTicket", ticket={"reference": "OPS-7"}, since=early)
    served.put(
        "gpurepairs.windlass.dev",
        with_status(REPAIR, since=early, deadline=soon),
        {**ticket, "metadata": {"name": "h100-4-1"}, "spec": {"node": "h100-4", "device": 1, "fault": "Xid 48"}},
    )
    served.put("gpunodes.windlass.dev", GPU_NODE)


def record(folder: Path) -> None:
    """Six hours: 40 of 100 GPUs are held, 30 of them busy; 41 are waited for; a rack of four GPUs is cordoned."""
    states = ["computing"] * 30 + ["held_idle"] * 10
    held = [GpuShare(f"a{n // 8}", n % 8, A100, state, 1000, HOLDER, "vision/p") for n, state in enumerate(states)]
    free = [GpuShare(f"v{n // 6}", n % 6, V100, "stranded", 1000, why="SELECTOR_MISMATCH") for n in range(56)]
    cordoned = [GpuShare("w0", n, V100, "in_change", 1000, why="NODE_UNSCHEDULABLE") for n in range(4)]
    waits = tuple(WaitingWork(f"nlp/w{n}", HOLDER, "GPU_FULL", 1000, 0, (A100,)) for n in range(41))
    racks = {**{f"a{n}": "rack-a" for n in range(5)}, **{f"v{n}": "rack-v" for n in range(10)}, "w0": "rack-w"}
    found = Ledger(0, (*held, *free, *cordoned), Demand(waits), 0, {"research": 32_000}, racks)
    now = int(time.time()) // 300 * 300
    history = LedgerHistory(folder)
    for at in range(now - 6 * 3600, now + 1, 100):
        history.observe(msgspec.structs.replace(found, at=at))
    history.started(now - 5 * 3600, Start(HOLDER, 40_000, 1920, now - 5 * 3600))
    history.worked(now - 17_000, FirstWork(HOLDER, {"queue": 1920, "prepare": 300, "load": 700}))
    history.evicted(now - 600, UsageKey.of(HOLDER, ""), 7200, "Priority", "nlp/x")
    history.close()
