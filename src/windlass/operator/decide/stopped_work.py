"""Activates Workloads again that drains have stopped: when their pods are gone, or when no drain needs that any more.

Called by `decide.main` after all stacks. That the operator has stopped one is an annotation, written together with
`spec.active: false`, so that whichever replica comes next activates it; what people deactivate stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.operator.decide.pool import Pool
from windlass.operator.observed import Observed
from windlass.operator.pods import PodView
from windlass.operator.queued_work import QueuedWork
from windlass.operator.writes import ResumeWorkload, Write


def resume_stopped(observed: Observed, pools: Sequence[Pool]) -> Iterator[Write]:
    stopped = [work for work in observed.queued.by_key.values() if work.stopped_for]
    if not stopped:
        return
    wanted: set[str] = set().union(*(pool.stopped for pool in pools))
    for work in stopped:
        pods = _pods_of(observed, work)
        has_ended = not pods and not work.is_admitted
        is_given_up = work.key not in wanted and not all(pod.is_deleting for pod in pods)
        if work.is_active or has_ended or is_given_up:
            yield ResumeWorkload(work.key, work.uid, work.api_version)


def _pods_of(observed: Observed, work: QueuedWork) -> list[PodView]:
    find = observed.queued.find
    return [
        pod for pods in observed.pods.values() for pod in pods if find(pod.workload, (pod.uid, pod.owner_uid)) == work
    ]
