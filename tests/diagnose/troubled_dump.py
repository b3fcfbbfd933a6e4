"""A large dump with troubles, to measure `why` and `why -A` on: run by hand, see docs/benchmarks.md.

PYTHONPATH=.:bench python -m tests.diagnose.troubled_dump NODES FILE
windlass why -A --from FILE
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import msgspec

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.unstructured import Unstructured
from windlass_bench.why import GPUS, large_dump

MOMENT = "2026-11-17T00:00:00Z"


def troubled_dump(nodes: int) -> bytes:
    """Ten pods a node and one that waits for every second node; about 5 % of the nodes and 1 % of the pods at fault."""
    rng = random.Random(1)
    listed = msgspec.json.decode(large_dump(nodes, 10 * nodes))
    for number, item in enumerate(listed["items"][:nodes]):
        break_node(item, number)
    pods: list[Unstructured] = listed["items"][nodes:]
    for pod in pods[:-1]:
        break_pod(pod, rng)
    listed["items"] += [waiting_pod(pods[-1], number, rng) for number in range(nodes // 2)]
    return msgspec.json.encode(listed)


def break_node(node: Unstructured, number: int) -> None:
    status = node["status"]
    if number % 50 == 7:
        node["spec"]["unschedulable"] = True
    if number % 40 == 3:
        node["spec"]["taints"] = [{"key": GPU_RESOURCE, "value": "true", "effect": "NoSchedule"}]
    if number % 100 == 9:
        status["allocatable"] = {**status["allocatable"], GPU_RESOURCE: str(GPUS - 1)}
    if number % 200 == 11:
        amounts = {name: amount for name, amount in status["allocatable"].items() if name != GPU_RESOURCE}
        node["status"] = {**status, "capacity": amounts, "allocatable": amounts}


def break_pod(pod: Unstructured, rng: random.Random) -> None:
    pod["metadata"] |= {"ownerReferences": [], "creationTimestamp": MOMENT}
    fails = rng.random() < 0.01
    container: Unstructured = {"name": "main", "ready": not fails, "restartCount": 5 * fails, "state": {"running": {}}}
    if fails:
        ended = {"exitCode": 137, "reason": "OOMKilled"} if rng.random() < 0.5 else {"exitCode": 1, "reason": "Error"}
        container |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
    ready = {"type": "Ready", "status": str(not fails), "lastTransitionTime": MOMENT}
    pod["status"] |= {"conditions": [ready], "containerStatuses": [container]}


def waiting_pod(like: Unstructured, number: int, rng: random.Random) -> Unstructured:
    pod: Unstructured = msgspec.json.decode(msgspec.json.encode(like))
    name = f"wait-{number}"
    pod["metadata"] |= {"name": name, "uid": name, "ownerReferences": [], "creationTimestamp": MOMENT}
    amount = rng.choice(["1", "2", "4", "8", "16"])
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "4", "memory": "32Gi", GPU_RESOURCE: amount}}
    if number % 5 == 0:
        pod["spec"]["nodeSelector"] = {"zone": rng.choice("abc")}
    return pod


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(troubled_dump(int(sys.argv[1])))
