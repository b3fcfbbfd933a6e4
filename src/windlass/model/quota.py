"""Amounts as quota counts them: whole numbers in base units, and GPUs in thousandths.

`model.kueue` reads the quotas of queues through here; code that compares a pod with a quota reads what the pod asks
for the same way. A GPU share counts as that share of `nvidia.com/gpu`, so quota of that resource is kept in milli-GPU
on both sides; everything else has the units of `model.requests`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.pod import Pod, RawQuantity
from windlass.model.quantity import milli_value, whole_value
from windlass.model.requests import Amounts, format_amount, pod_requests

MILLI_PER_GPU = 1000
_IN_THOUSANDTHS = ("cpu", GPU_RESOURCE)


@lru_cache(maxsize=1 << 14)
def parse_quota(resource: str, raw: RawQuantity) -> int:
    """An amount of quota in the unit in which it is counted, rounded up as Kubernetes rounds; never negative.

    Unlike a request, quota of an extended resource may be a fraction: half a GPU is a quota, and no request.
    """
    value = milli_value(raw) if resource in _IN_THOUSANDTHS else whole_value(raw)
    if value < 0:
        raise InputError(f"{raw!r} is negative", remedy="a quota must be 0 or more")
    return value


def format_quota(resource: str, amount: int) -> str:
    """The amount as people write it: `1500m` of cpu, `2Gi` of memory, `4` or `500m` GPUs."""
    return format_amount("cpu" if resource in _IN_THOUSANDTHS else resource, amount)


def quota_units(resource: str, amount: int) -> float:
    """The amount in cores, GPUs or bytes, as metrics have it."""
    return amount / 1000 if resource in _IN_THOUSANDTHS else float(amount)


def cluster_capacity(nodes: Iterable[Node]) -> dict[str, int]:
    """What all nodes have together, in units of quota."""
    total: dict[str, int] = {}
    for node in nodes:
        for resource, raw in node.status.allocatable.items():
            try:
                total[resource] = total.get(resource, 0) + parse_quota(resource, raw)
            except InputError:
                continue  # the store reports it
    return total


def quota_requests(pod: Pod, device_memory_mib: int = 0, known_amounts: Amounts | None = None) -> dict[str, int]:
    """What one pod counts against quota: its effective request, with GPUs and shares of them in milli-GPU.
    `known_amounts`: that request, where the caller has it.

    A share that is asked for in MiB is that part of a device of `device_memory_mib`; where no device is known it
    counts as a whole one, so that quota is never exceeded unseen.
    """
    requests = pod_requests(pod) if known_amounts is None else dict(known_amounts)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name in container.resources.requests:
            requests.setdefault(name, 0)  # asked for by name, if for nothing: it gets a flavor all the same
    asked = gpu_request(pod, requests)
    if asked is None or asked.profile:
        return requests
    milli = asked.milli
    if asked.memory_mib:
        known = max(device_memory_mib, asked.memory_mib)
        milli = -(-MILLI_PER_GPU * asked.memory_mib // known) if device_memory_mib else MILLI_PER_GPU
    requests[GPU_RESOURCE] = asked.count * milli
    return requests
