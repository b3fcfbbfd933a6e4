"""What an admitted Workload should ask for and hold after its owner was changed to another size, or some of its pods
have ended for good.

`engine.decide` asks after everything else is decided. As in Kueue, pods of a Job that have ended for good are
reclaimable; where fewer pods are asked for, pod sets and admission shrink; an elastic Job that asks for more gets a
larger pod set, and its pods above the admission are admitted or held like any other work. Only an admission raises what
a Workload holds: where a larger pod set would, the admission is cut to what it holds. What has outgrown its admission
and is not elastic is stopped (`stop_conditions`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from windlass.model.decision import PodSetResize, Resize
from windlass.model.workload import OwnerSize, PodSetSize, Workload


def resize_workloads(workloads: Iterable[Workload], evicted: Container[str]) -> Iterator[Resize]:
    """The Workloads whose size changes, without those that this decision evicts."""
    for workload in workloads:
        if not workload.owner_sizes or workload.evicting or workload.key in evicted:
            continue
        resized = [(size, _resized(size, workload.is_elastic)) for size in workload.owner_sizes]
        changes = [
            PodSetResize(size.pod_set, size.count, size.now, after) for size, after in resized if after != size.now
        ]
        if changes:
            yield Resize(workload.key, tuple(changes))


def _resized(size: OwnerSize, is_elastic: bool) -> PodSetSize:
    now = size.now
    if size.count > now.held:
        # What is not elastic is stopped, and queued again with its new size.
        return PodSetSize(size.count + now.reclaimable, now.reclaimable, now.held) if is_elastic else now
    declared = min(now.declared, max(size.count + size.ended, size.wanted))
    if declared == now.declared or size.is_partial:
        return PodSetSize(now.declared, now.declared - size.wanted, now.admitted)
    return PodSetSize(declared, declared - size.wanted, size.wanted)
