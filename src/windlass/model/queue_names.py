"""The queue that an object names: the one table of the labels and annotations of Kueue, KAI and Volcano.

`cluster.workloads` finds the queue of a workload by it, `scheduler.cache` whether an owner is queued, and `diagnose`
what to say. KAI's and Volcano's queues have no namespace; `kai/team-a` and `volcano/team-a` are their names here, so
that they can't be mistaken for each other's, or for a LocalQueue's.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.kai import KAI_OLD_QUEUE_LABEL, KAI_QUEUE_LABEL
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.volcano import VOLCANO_JOB_QUEUE, VOLCANO_QUEUE_ANNOTATION

KAI_PREFIX = "kai/"
VOLCANO_PREFIX = "volcano/"
_QUEUE_KEYS = (
    (QUEUE_NAME_LABEL, ""),
    (KAI_QUEUE_LABEL, KAI_PREFIX),
    (KAI_OLD_QUEUE_LABEL, KAI_PREFIX),
    (VOLCANO_JOB_QUEUE, VOLCANO_PREFIX),
)
"""Labels in order of precedence, and the prefix of the queues that they name."""
_QUEUE_ANNOTATIONS = ((VOLCANO_QUEUE_ANNOTATION, VOLCANO_PREFIX), (VOLCANO_JOB_QUEUE, VOLCANO_PREFIX))
QUEUE_LABELS = frozenset(label for label, _ in _QUEUE_KEYS)
QUEUE_ANNOTATIONS = frozenset(annotation for annotation, _ in _QUEUE_ANNOTATIONS)


def named_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The queue that an object with these is in; empty where it names none."""
    if QUEUE_LABELS.isdisjoint(labels) and QUEUE_ANNOTATIONS.isdisjoint(annotations):
        return ""  # most objects
    for keys, values in ((_QUEUE_KEYS, labels), (_QUEUE_ANNOTATIONS, annotations)):
        for key, prefix in keys:
            name = values.get(key)
            if name:
                return f"{prefix}{name}"
    return ""


def is_shared_queue(queue: str) -> bool:
    """Whether all namespaces can use it: it is KAI's or Volcano's."""
    return queue.startswith((KAI_PREFIX, VOLCANO_PREFIX))


def describe_queue(queue: str) -> str:
    """The queue as its owner's tools name it, such as `Queue.scheduling.run.ai team-a` or `LocalQueue main`."""
    if queue.startswith(KAI_PREFIX):
        return f"Queue.scheduling.run.ai {queue.removeprefix(KAI_PREFIX)}"
    if queue.startswith(VOLCANO_PREFIX):
        return f"Queue.scheduling.volcano.sh {queue.removeprefix(VOLCANO_PREFIX)}"
    return f"LocalQueue {queue}"


def describe_cluster_queue(queue: str) -> str:
    """The queue that has the quota, as its owner's tools name it."""
    return describe_queue(queue) if is_shared_queue(queue) else f"ClusterQueue {queue}"
