"""What keeps waiting work from starting, in GPUs by binding cause, as a table and as sentences.

Reads the ledger, whose causes are those of the engine's verdicts. `windlass status`, the metrics and the page show it:
"41 GPUs wait for A100 while 60 V100 are free".
"""

from __future__ import annotations

import msgspec

from windlass.model.gpu_models import find_gpu_model
from windlass.telemetry.demand import WaitingWork
from windlass.telemetry.ledger import Ledger

MAX_MODELS_NAMED = 3
_WAITS_FOR = {
    "GPU_FULL": "for GPUs that are in use",
    "GPU_FRAGMENTED": "for enough free GPUs on one node",
    "CPU_MEM_INSUFFICIENT": "for CPU or memory beside free GPUs",
    "KUEUE_QUOTA_INSUFFICIENT": "for quota of their queues",
    "KUEUE_QUOTA_MISCONFIGURED": "for quota that their queues don't have at all",
    "KUEUE_QUEUE_MISSING": "for a queue that does not exist or is stopped",
    "KUEUE_FLAVOR_MISMATCH": "for a flavor that they may use",
    "KUEUE_TOPOLOGY_NOFIT": "for a topology domain with room for all of it",
    "QUEUE_BEHIND_HEAD": "behind the head of a StrictFIFO queue",
    "RESERVED_FOR_OTHERS": "for room that is kept for planned starts and reservations",
    "REQUEST_EXCEEDS_CLUSTER": "for more than the cluster has",
    "TAINT_NOT_TOLERATED": "for nodes without taints that they don't tolerate",
    "SELECTOR_MISMATCH": "for nodes that their selectors exclude",
    "NODE_UNSCHEDULABLE": "for nodes that are cordoned",
    "DEVICE_UNHEALTHY": "for GPUs that are unhealthy",
    "GANG_INCOMPLETE": "for the missing members of their gangs",
    "WAITING_FOR_PREEMPTION": "for preempted pods to end",
    "JOB_SUSPENDED": "since they are suspended",
}
"""Cause → how the sentence goes on after "GPUs wait"; other causes are named by their code."""
CAPACITY_CAUSES = frozenset({"GPU_FULL", "GPU_FRAGMENTED", "SELECTOR_MISMATCH", "REQUEST_EXCEEDS_CLUSTER"})
"""Causes of which the requested model is the better name, where the work can use some models only."""


class BottleneckLine(msgspec.Struct, frozen=True):
    """Waiting work with the same cause that can use the same models."""

    cause: str
    models: tuple[str, ...]
    """Empty: any model, or no model at all."""
    milli: int
    workloads: int
    oldest: int = 0
    """Since when the first of it waits, in seconds; 0 where that is not known."""
    other_free: dict[str, int] = {}
    """Model that it can't use → free milli-GPU of it."""

    @property
    def sentence(self) -> str:
        wanted = _model_names(self.models)
        is_for_model = bool(wanted) and self.cause in CAPACITY_CAUSES
        what = f"for {wanted}" if is_for_model else _WAITS_FOR.get(self.cause, f"({self.cause})")
        plural = "GPU waits" if self.milli == 1000 else "GPUs wait"
        said = f"{format_gpus(self.milli)} {plural} {what}"
        if not self.other_free:
            return said
        free = [f"{format_gpus(milli)} {_short(model)}" for model, milli in self.other_free.items()]
        shown = free[:MAX_MODELS_NAMED]
        more = f" and {len(free) - len(shown)} other models" if len(free) > len(shown) else ""
        is_one = len(free) == 1 and next(iter(self.other_free.values())) == 1000
        return f"{said} while {' and '.join(shown)}{more} {'is' if is_one else 'are'} free"


def find_bottleneck(ledger: Ledger) -> list[BottleneckLine]:
    """The most GPUs first."""
    groups: dict[tuple[str, tuple[str, ...]], list[WaitingWork]] = {}
    for work in ledger.demand.waiting:
        groups.setdefault((work.cause, work.models), []).append(work)
    free = ledger.free_by_model()
    lines = [
        BottleneckLine(
            cause,
            models,
            sum(work.milli for work in waiting),
            len(waiting),
            min((work.since for work in waiting if work.since), default=0),
            {model: milli for model, milli in free.items() if models == () or model not in models},
        )
        for (cause, models), waiting in groups.items()
    ]
    return sorted(lines, key=lambda line: (-line.milli, line.cause, line.models))


def format_gpus(milli: int) -> str:
    """`41`, `0.5`: GPUs as people write them."""
    return f"{milli / 1000:,.3f}".rstrip("0").rstrip(".")


def _model_names(models: tuple[str, ...]) -> str:
    names = list(dict.fromkeys(map(_short, models)))
    return " or ".join(names) if len(names) <= MAX_MODELS_NAMED else f"one of {len(names)} models"


def _short(model: str) -> str:
    known = find_gpu_model(model)
    return known.aliases[0] if known is not None and known.aliases else model
