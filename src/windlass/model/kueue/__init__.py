"""Kueue's objects, in any version of its API, as the nouns of `model.queue` and `model.workload`.

objects ─► wire structs (decoded by model.codec) ─► queue_system ─► QueueSystem
                                                   └► kueue_workload ─► Workload
"""

from __future__ import annotations

from windlass.model.kueue.queue_system import has_shared_queues, queue_system
from windlass.model.kueue.queue_wire import QueueObject
from windlass.model.kueue.workload_wire import WorkloadObject
from windlass.model.kueue.workloads import is_finished, priority_class_hold, queue_hold, workload_from_object

__all__ = [
    "QueueObject",
    "WorkloadObject",
    "has_shared_queues",
    "is_finished",
    "priority_class_hold",
    "queue_hold",
    "queue_system",
    "workload_from_object",
]
