"""Which queues that `--take-over` names must stay with a live Kueue, and why.

Two admitters that share a quota lend it twice: each sees the other's admissions only after they were written. Hence a
cohort is taken over whole, with everything that may borrow from it, and only while Kueue admits nothing there.
`scheduler.cache` has one `TakeOver`, and asks it again when queues change; `scheduler.scheduler` reports the refusals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.kueue.queue_wire import ClusterQueueObject, CohortObject, LocalQueueObject
from windlass.model.names.kueue import KUEUE_API_VERSION

log = logging.getLogger(__name__)

STOP_POLICY_HOLD = "Hold"
Queue = TypeVar("Queue", ClusterQueueObject, LocalQueueObject, CohortObject)
Objects = Mapping[tuple[str, str, str], Any]
"""API group, kind and key → object."""


class TakeOver:
    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = self.names = wanted
        """ClusterQueues, and LocalQueues by `namespace/name`: those that were asked for, and those that are ours."""
        self.refusals: dict[str, str] = {}
        """Why the others are not."""
        self.local_queues = frozenset(name for name in wanted if "/" in name)
        """The LocalQueues that are ours, by `namespace/name`, also through their ClusterQueue."""
        self._reported: dict[str, str] = {}
        self.is_stale = False
        """Queues have changed since the last `reevaluate`."""

    def reevaluate(self, objects: Objects, kueue_is_live: bool) -> bool:
        """Whether other queues are ours than before. A LocalQueue that is observed after its Jobs is one of those:
        until then nothing said that they are ours."""
        self.is_stale = False
        before = self.names, self.local_queues
        local_queues = _of_kind(objects, LocalQueueObject)
        queues = _of_kind(objects, ClusterQueueObject), local_queues, _of_kind(objects, CohortObject)
        self.refusals = refused_take_overs(self.wanted, *queues) if kueue_is_live else {}
        self.names = self.wanted - self.refusals.keys()
        through_cluster_queue = {key for key, local in local_queues.items() if local.spec.cluster_queue in self.names}
        self.local_queues = frozenset({name for name in self.names if "/" in name} | through_cluster_queue)
        return before != (self.names, self.local_queues)

    def report(self, recorder: EventRecorder, objects: Objects, may_write: Callable[[], bool]) -> None:
        """Each refusal once, and again if its reason changes."""
        for name, reason in self.refusals.items():
            if self._reported.get(name) == reason:
                continue
            log.error("%s is not taken over, and Kueue keeps it: %s", name, reason)
            kind = "LocalQueue" if "/" in name else "ClusterQueue"
            queue = objects.get((KUEUE_API_GROUP, kind, name))
            if queue is not None and may_write():
                regarding = EventRegarding(kind, name, queue.metadata.uid, KUEUE_API_VERSION)
                recorder.record(Event(regarding, "TakeOverRefused", reason, "TakingOver", "Warning"))
        self._reported = dict(self.refusals)


def _of_kind(objects: Objects, kind: type[Queue]) -> dict[str, Queue]:
    return {key: obj for (_, _, key), obj in objects.items() if isinstance(obj, kind)}


def refused_take_overs(
    names: Iterable[str],
    cluster_queues: Mapping[str, ClusterQueueObject],
    local_queues: Mapping[str, LocalQueueObject],
    cohorts: Mapping[str, CohortObject],
) -> dict[str, str]:
    """Name as it was given (a ClusterQueue, or `namespace/name` of a LocalQueue) → the reason."""
    names = sorted(names)
    queue_of = {name: local_queues[name].spec.cluster_queue if name in local_queues else name for name in names}
    wanted = set(queue_of.values())
    roots = {name: _root(queue, cohorts) for name, queue in cluster_queues.items()}
    refusals: dict[str, str] = {}
    for name in names:
        queue = cluster_queues.get(queue_of[name])
        if queue is not None:
            key = queue.metadata.name
            kept = sorted(other for other, root in roots.items() if root == roots[key] and other not in wanted)
            feeding = {name: local for name, local in local_queues.items() if local.spec.cluster_queue == key}
            reason = _reason(queue, roots[key], kept, feeding, names)
            refusals.update({name: reason} if reason else {})
    for name in names:  # the whole cohort, or nothing of it
        root = roots.get(queue_of[name])
        cause = next((other for other in refusals if root is not None and roots[queue_of[other]] == root), "")
        if cause and name not in refusals:
            refusals[name] = f"{cause}, of the same cohort, is not taken over"
    return refusals


def _reason(
    queue: ClusterQueueObject,
    root: str,
    kept: Sequence[str],
    local_queues: Mapping[str, LocalQueueObject],
    names: Sequence[str],
) -> str:
    """Empty if nothing speaks against it."""
    key = queue.metadata.name
    others = sorted(local for local in local_queues if local not in names) if key not in names else []
    if kept:
        return (
            f"cohort {root.partition('/')[2]} also has ClusterQueue {', '.join(kept)}, which Kueue keeps: both would "
            "lend the same quota; take over all of them, or none"
        )
    if others:
        return (
            f"ClusterQueue {key} also has LocalQueue {', '.join(others)}, which Kueue keeps: both would give the same "
            f"quota; take over ClusterQueue {key}"
        )
    policies = {queue.spec.stop_policy} if queue.spec.stop_policy != "None" else set()
    policies = policies or {local.spec.stop_policy for local in local_queues.values()} or {"None"}
    if policies != {STOP_POLICY_HOLD}:
        wrong = next(policy for policy in sorted(policies) if policy != STOP_POLICY_HOLD)
        does = "still admits there" if wrong == "None" else "would evict what Windlass admits there"
        return f"Kueue {does} (stopPolicy {wrong}): set spec.stopPolicy of ClusterQueue {key} to {STOP_POLICY_HOLD}"
    return ""


def _root(queue: ClusterQueueObject, cohorts: Mapping[str, CohortObject]) -> str:
    """The root of its cohorts, as `cohort/NAME`; `queue/NAME` for one that is in none."""
    name = queue.spec.cohort_name or queue.spec.cohort
    if not name:
        return f"queue/{queue.metadata.name}"
    path = [name]
    while (cohort := cohorts.get(path[-1])) is not None and (cohort.spec.parent_name or cohort.spec.parent):
        parent = cohort.spec.parent_name or cohort.spec.parent
        if parent in path:  # a cycle
            return f"cohort/{min(path[path.index(parent) :])}"
        path.append(parent)
    return f"cohort/{path[-1]}"
