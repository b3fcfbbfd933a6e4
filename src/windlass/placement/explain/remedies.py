"""The remedy for a hold that an object causes, not capacity: a missing or stopped queue, a gate, a claim.

`advisor` asks for it where neither the end of running work nor a smaller request helps. The text is public: it names
only the workload's own queue and objects.
"""

from __future__ import annotations

from windlass.model.labels import matches_selector
from windlass.model.names.kubernetes import NAMESPACE_NAME_LABEL
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.queue import LocalQueue, QueueSystem
from windlass.model.reasons import NODE_REASONS, POD_REASONS
from windlass.model.workload import Workload
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.queueing.outcome import BEHIND_HEAD, FLAVOR_MISMATCH, QUEUE_MISSING, QUOTA_MISCONFIGURED

UNAVAILABLE_NODE_CODES = ("NODE_UNSCHEDULABLE", "TAINT_NOT_TOLERATED")
"""If the request is feasible and has one of these codes, it fits on nodes that are cordoned or not ready."""
CAPACITY_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT")
"""No remedy: relief and smaller requests have been looked for already."""
REMEDY_BY_CODE = {
    FLAVOR_MISMATCH: "add a flavor that its pods may use to the queue, or change their node selector, tolerations or "
    "topology request",
    BEHIND_HEAD: "wait for the head of the queue, or set the queue's queueingStrategy to BestEffortFIFO",
    "GANG_INCOMPLETE": "create the missing members: a gang starts when all of them exist",
    "JOB_SUSPENDED": "resume the Job or activate the Workload",
    "RESOURCE_QUOTA_EXCEEDED": "request less, or raise the ResourceQuota of its namespace",
    "POLICY_DENIED": "keep the request within the LimitRange of its namespace",
    **{reason.code: reason.remedy for reason in reversed((*NODE_REASONS, *POD_REASONS))},
}


def find_remedy(held: HeldWorkload, is_infeasible: bool = False) -> str:
    """What to do about the hold; empty where nothing is known to help."""
    code, piece = held.verdict.code, held.piece
    if code == QUEUE_MISSING:
        return _queue_remedy(piece, held.state.occupancy.system)
    if code == QUOTA_MISCONFIGURED:
        return "add the resource to the queue's coveredResources with a quota, or remove it from the request"
    if code in UNAVAILABLE_NODE_CODES and not held.state.overlay.snapshot.nodes.size:
        return "add nodes"
    if code in UNAVAILABLE_NODE_CODES and not is_infeasible:
        return "uncordon nodes, or repair those that are not ready"
    return "" if code in CAPACITY_CODES else REMEDY_BY_CODE.get(code, "")


def _queue_remedy(piece: Workload, system: QueueSystem) -> str:
    if not piece.queue_name:
        return f"name a LocalQueue of its namespace with the label {QUEUE_NAME_LABEL}"
    local = system.local_queues.get(f"{piece.namespace}/{piece.queue_name}")
    if local is None:
        return f"create LocalQueue {piece.queue_name} in namespace {piece.namespace}, or name an existing one"
    return _cluster_queue_remedy(piece, local, system)


def _cluster_queue_remedy(piece: Workload, local: LocalQueue, system: QueueSystem) -> str:
    queue = system.queues.get(local.cluster_queue)
    if queue is None:
        return f"create ClusterQueue {local.cluster_queue}, or let LocalQueue {piece.queue_name} name an existing one"
    if local.inactive_reason or "not implemented" in queue.inactive_reason:
        return "remove the unsupported field, or let Kueue manage the queue"
    if queue.inactive_reason:
        return f"create or correct the objects that ClusterQueue {queue.name} refers to"
    if queue.stop_policy != "None":
        return f"set spec.stopPolicy of ClusterQueue {queue.name} to None"
    if local.stop_policy != "None":
        return f"set spec.stopPolicy of LocalQueue {piece.queue_name} to None"
    labels = {NAMESPACE_NAME_LABEL: piece.namespace, **system.namespaces.get(piece.namespace, {})}
    if not matches_selector(queue.namespace_selector, labels):
        return (
            f"label namespace {piece.namespace} so that it matches spec.namespaceSelector of ClusterQueue {queue.name} "
            "(an empty selector matches every namespace, a missing one matches none)"
        )
    return f"correct ClusterQueue {queue.name} and the objects that it refers to"
