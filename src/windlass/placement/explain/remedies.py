"""What would lift a hold that is about objects and not about room: a queue that is missing or stopped, a gate, a claim.

`advisor` asks for it where neither an end of others nor a smaller request helps. It speaks of the workload's own queue
and its own objects only, so its owner may read it.
"""

from __future__ import annotations

from windlass.model.labels import matches_selector
from windlass.model.queue import LocalQueue, QueueSystem
from windlass.model.reasons import NODE_REASONS, POD_REASONS
from windlass.model.workload import Workload
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.queueing.outcome import BEHIND_HEAD, FLAVOR_MISMATCH, QUEUE_MISSING, QUOTA_MISCONFIGURED

NAMESPACE_NAME = "kubernetes.io/metadata.name"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
UNAVAILABLE_NODE_CODES = ("NODE_UNSCHEDULABLE", "TAINT_NOT_TOLERATED")
"""Where such a request is feasible, it is so on nodes that are cordoned or not ready."""
CAPACITY_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT")
"""Whose end helps has been looked for, and so has a smaller request."""
REMEDY_BY_CODE = {
    FLAVOR_MISMATCH: "let a flavor of its queue allow its pods, or change what it asks of nodes and topology",
    BEHIND_HEAD: "wait for the head of the queue, or make the queue BestEffortFIFO",
    "GANG_INCOMPLETE": "create what is missing: it starts once the whole group is there",
    "JOB_SUSPENDED": "resume or activate it",
    "RESOURCE_QUOTA_EXCEEDED": "ask for less, or raise the ResourceQuota of its namespace",
    "POLICY_DENIED": "keep the request within the LimitRange of its namespace",
    **{reason.code: reason.remedy for reason in reversed((*NODE_REASONS, *POD_REASONS))},
}


def find_remedy(held: HeldWorkload, is_infeasible: bool = False) -> str:
    """Empty where nothing is known to help."""
    code, piece = held.verdict.code, held.piece
    if code == QUEUE_MISSING:
        return _of_queue(piece, held.state.occupancy.system)
    if code == QUOTA_MISCONFIGURED:
        return "add the resource to the queue's coveredResources with a quota, or leave it out of the request"
    if code in UNAVAILABLE_NODE_CODES and not held.state.overlay.snapshot.nodes.size:
        return "add nodes"
    if code in UNAVAILABLE_NODE_CODES and not is_infeasible:
        return "uncordon the nodes, or bring those back that are not ready"
    return "" if code in CAPACITY_CODES else REMEDY_BY_CODE.get(code, "")


def _of_queue(piece: Workload, system: QueueSystem) -> str:
    if not piece.queue_name:
        return f"name a LocalQueue of its namespace with the label {QUEUE_LABEL}"
    local = system.local_queues.get(f"{piece.namespace}/{piece.queue_name}")
    if local is None:
        return (
            f"create LocalQueue {piece.queue_name} in namespace {piece.namespace}, or name one that is there"
        )
    return _of_cluster_queue(piece, local, system)


def _of_cluster_queue(piece: Workload, local: LocalQueue, system: QueueSystem) -> str:
    queue = system.queues.get(local.cluster_queue)
    if queue is None:
        return f"create ClusterQueue {local.cluster_queue}, or let LocalQueue {piece.queue_name} name one that is there"
    if local.inactive_reason or "not implemented" in queue.inactive_reason:
        return "take that field out, or leave the queue to Kueue"
    if queue.inactive_reason:
        return f"create or correct what ClusterQueue {queue.name} names"
    if queue.stop_policy != "None":
        return f"set spec.stopPolicy of ClusterQueue {queue.name} to None"
    if local.stop_policy != "None":
        return f"set spec.stopPolicy of LocalQueue {piece.queue_name} to None"
    labels = {NAMESPACE_NAME: piece.namespace, **system.namespaces.get(piece.namespace, {})}
    if not matches_selector(queue.namespace_selector, labels):
        return (
            f"label namespace {piece.namespace} as spec.namespaceSelector of ClusterQueue {queue.name} asks "
            "(an empty selector takes every namespace, a queue without one takes none)"
        )
    return f"correct ClusterQueue {queue.name} and what it names"
