"""Kueue's objects, in any version of its API, as the nouns of `model.queue` and `model.workload`.

objects ─► wire structs (decoded by model.objects) ─► queue_system ─► QueueSystem
                                                   └► kueue_workload ─► Workload
"""

from __future__ import annotations

from windlass.model.kueue.system import queue_system
from windlass.model.kueue.wire import QueueKind
from windlass.model.kueue.workload_wire import WorkloadObject
from windlass.model.kueue.workloads import is_finished, kueue_workload, queue_hold

__all__ = ["QueueKind", "WorkloadObject", "is_finished", "kueue_workload", "queue_hold", "queue_system"]
