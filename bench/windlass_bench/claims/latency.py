"""Latency of requests on shared GPUs: queues in front of tenants, and the interference model between them.

Fed by `sharing` with who shares which GPU and when requests come; hands back how long each took. A tenant serves its
requests one after another. How fast it does depends on how many tenants of the same GPU are at work at that moment.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from windlass.simulate.interference import MEASURED_MODEL, MIG, InterferenceModel
from windlass_bench.claims.services import REQUEST_S, Floats


def exclusive_completion_times(arrivals: Floats, slowdown: float = 1.0, work: float = REQUEST_S) -> Floats:
    """When each request is done, where nobody else slows the tenant down: first come, first served."""
    step = slowdown * work
    turn = np.arange(len(arrivals)) * step
    free_at: Floats = np.maximum.accumulate(arrivals - turn)
    return free_at + turn + step


def mig_completion_times(
    arrivals: Floats, slices: int, model: InterferenceModel = MEASURED_MODEL, work: float = REQUEST_S
) -> Floats:
    """The same in a MIG instance of so many compute slices."""
    return exclusive_completion_times(arrivals, model.slowdown(MIG, 1, slices), work)


def shared_completion_times(
    strategy: str,
    tenants: Sequence[Floats],
    model: InterferenceModel = MEASURED_MODEL,
    work: float = REQUEST_S,
) -> list[Floats]:
    """When each request of each tenant of one GPU is done, with time-slicing or MPS.

    All who are at work progress alike, so one clock of progress serves for all of them: a request that begins when it
    shows v is done when it shows v + work, and it runs at one over the slow-down of that many tenants.
    """
    slowdown = [1.0, *(model.slowdown(strategy, many) for many in range(1, len(tenants) + 1))]
    waiting: list[deque[float]] = [deque() for _ in tenants]
    done: list[list[float]] = [[] for _ in tenants]
    at_work: list[tuple[float, int]] = []
    """(progress at which it is done, tenant)"""
    now = progress = 0.0
    coming = sorted((at, tenant) for tenant, times in enumerate(tenants) for at in times.tolist())
    for at, tenant in [*coming, (float("inf"), -1)]:
        while at_work:
            end = now + (at_work[0][0] - progress) * slowdown[len(at_work)]
            if end > at:
                break
            now, (progress, finished) = end, heapq.heappop(at_work)
            waiting[finished].popleft()
            done[finished].append(now)
            if waiting[finished]:
                heapq.heappush(at_work, (progress + work, finished))
        if tenant < 0:
            break
        if at_work:
            progress += (at - now) / slowdown[len(at_work)]
        now = at
        if not waiting[tenant]:
            heapq.heappush(at_work, (progress + work, tenant))
        waiting[tenant].append(at)
    return [np.array(times) for times in done]
