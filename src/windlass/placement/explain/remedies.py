"""The remedy for a hold that an object causes, not capacity: a missing or stopped queue, a gate, a claim.

`advisor` asks for it where neither the end of running work nor a smaller request helps. The text is public: it names
only the workload's own queue and objects.
"""

from __future__ import annotations

from windlass.model.labels import matches_selector
from windlass.model.names.kubernetes import NAMESPACE_NAME_LABEL
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION
from windlass.model.queue import LocalQueue, QueueSystem
from windlass.model.queue_names import describe_cluster_queue, describe_queue, is_shared_queue
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.verdict import MAX_NAMED
from windlass.model.workload import Workload
from windlass.placement.empty_cluster import TOO_LARGE
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.node_reasons import NO_SUCH_RESOURCE, is_unknown_resource
from windlass.placement.verdicts import reason_of
from windlass.queueing.admit import NOT_CONSIDERED
from windlass.queueing.outcome import (
    ADMISSION_DEFERRED,
    BEHIND_HEAD,
    FLAVOR_MISMATCH,
    LIMIT_REACHED,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    QUOTA_MISCONFIGURED,
)

UNAVAILABLE_NODE_CODES = ("NODE_UNSCHEDULABLE", "TAINT_NOT_TOLERATED")
"""If the request is feasible and has one of these codes, it fits on nodes that are cordoned or not ready."""
CAPACITY_CODES = ("GPU_FULL", "GPU_FRAGMENTED", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT")
"""No remedy: relief and smaller requests have been looked for already."""
REMEDY_BY_CODE = {
    QUOTA_MISCONFIGURED: "add the resource to the queue's coveredResources with a quota, or remove it from the request",
    FLAVOR_MISMATCH: "add a flavor that its pods may use to the queue, or change their node selector, tolerations or "
    "topology request",
    BEHIND_HEAD: "run `windlass why` on the head of the queue, or set the queue's queueingStrategy to BestEffortFIFO",
    ADMISSION_DEFERRED: "run `windlass why` on the workload whose pods are not ready, or set "
    "waitForPodsReady.blockAdmission to false",
    LIMIT_REACHED: "wait until jobs of the same user end, ask for fewer GPUs, or ask an administrator to raise the "
    "limit",
    "INVALID_OBJECT": "correct the field that the message names",
    "DURATION_EXCEEDED": f"raise or remove {DECLARED_DURATION_ANNOTATION}, or save checkpoints",
    "JOB_SUSPENDED": "set spec.suspend of the owner to false; if its Workload is deactivated, set spec.active to true",
    "NOT_IMPLEMENTED": "remove the field that the message names, or set spec.schedulerName to a scheduler that "
    "supports it",
    "INTERNAL_ERROR": "report the bug with its id, and set spec.schedulerName to another scheduler until it is fixed",
    "POLICY_DENIED": "keep the request within the LimitRange of its namespace",
    "RESOURCE_QUOTA_EXCEEDED": "request less, or raise the ResourceQuota of its namespace",
    RESERVED_FOR_OTHERS.code: RESERVED_FOR_OTHERS.remedy,
    TOO_LARGE: "request fewer or smaller pods, or add nodes",
    NO_SUCH_RESOURCE: "request a resource that the nodes advertise",
}
"""For codes of holds that neither carry a remedy of their own nor come from what nodes refuse."""


def find_remedy(held: HeldWorkload, is_infeasible: bool = False) -> str:
    """What to do about the hold; empty where nothing is known to help."""
    code, piece = held.verdict.code, held.piece
    if held.verdict.remedy:
        return held.verdict.remedy
    if code == QUEUE_MISSING:
        return _queue_remedy(piece, held.state.occupancy.system)
    if code == ADMISSION_DEFERRED and held.verdict.detail.startswith(NOT_CONSIDERED):
        return "report it, with a `windlass dump`: decisions should end before"
    if code == QUOTA_INSUFFICIENT and is_infeasible:
        return "ask for less, or have the quota of its queue raised"
    if code == "GANG_INCOMPLETE":
        return _gang_remedy(piece)
    if code in UNAVAILABLE_NODE_CODES and not held.state.overlay.snapshot.nodes.size:
        return "add nodes"
    if code in UNAVAILABLE_NODE_CODES and not is_infeasible:
        return "uncordon nodes, or repair those that are not ready"
    return "" if code in CAPACITY_CODES else _node_remedy(held) or REMEDY_BY_CODE.get(code, "")


def _gang_remedy(piece: Workload) -> str:
    if not piece.hold:
        return ""  # it is above the minimum: the hold of the minimum says what to do
    if piece.min_pods is not None:
        return "create the missing pods: a gang starts when its minimum exists"
    # No minimum is known: the object that states it does not exist.
    if piece.kind == "PodGroup":
        return "create the PodGroup, or correct its name in the pods"
    return f"read the conditions of the {piece.kind} and the log of its controller"


def _node_remedy(held: HeldWorkload) -> str:
    """The remedy of the reason for which most nodes refuse it, among those with the code of the hold."""
    if not held.pod_sets or not held.verdict.counts:
        return ""
    index = held.tightest_pod_set()
    pod_set = held.pod_sets[index]
    if is_unknown_resource(held.state.overlay, pod_set):
        return ""
    reasons = (reason_of(pod_set.shape, bit) for bit, _ in held.feasibility(index).reason_counts())
    found = next((reason for reason in reasons if reason.code == held.verdict.code), None)
    if found is None:
        return ""
    models = sorted(filter(None, held.state.overlay.snapshot.gpu_models.names))
    if found.name == "GPU_MODEL" and models:
        more = f" and {len(models) - MAX_NAMED} more" if len(models) > MAX_NAMED else ""
        return f"allow one of the GPU models that the cluster has: {', '.join(models[:MAX_NAMED])}{more}"
    return found.remedy


def _queue_remedy(piece: Workload, system: QueueSystem) -> str:
    if not piece.queue_name:
        return f"name a LocalQueue of its namespace with the label {QUEUE_NAME_LABEL}"
    local = system.local_queue(piece.namespace, piece.queue_name)
    if local is None:
        where = "" if is_shared_queue(piece.queue_name) else f" in namespace {piece.namespace}"
        return f"create {describe_queue(piece.queue_name)}{where}, or name an existing one"
    return _cluster_queue_remedy(piece, local, system)


def _cluster_queue_remedy(piece: Workload, local: LocalQueue, system: QueueSystem) -> str:
    queue = system.queues.get(local.cluster_queue)
    if queue is None:
        missing, own = describe_cluster_queue(local.cluster_queue), describe_queue(piece.queue_name)
        return f"create {missing}, or name an existing one in {own}"
    if local.inactive_reason or "not implemented" in queue.inactive_reason:
        if is_shared_queue(piece.queue_name):
            return f"correct {describe_queue(piece.queue_name)} as the message says"
        return "remove the unsupported field, or let Kueue manage the queue"
    if queue.inactive_reason:
        return f"create or correct the objects that {describe_cluster_queue(queue.name)} refers to"
    if queue.stop_policy != "None" and is_shared_queue(piece.queue_name):  # Volcano's, which is closed
        name = piece.queue_name.partition("/")[2]
        return f"open {describe_queue(piece.queue_name)}: vcctl queue operate --name {name} --action open"
    if queue.stop_policy != "None":
        return f"set spec.stopPolicy of {describe_cluster_queue(queue.name)} to None"
    if local.stop_policy != "None":
        return f"set spec.stopPolicy of {describe_queue(piece.queue_name)} to None"
    labels = {NAMESPACE_NAME_LABEL: piece.namespace, **system.namespaces.get(piece.namespace, {})}
    if not matches_selector(queue.namespace_selector, labels):
        return (
            f"label namespace {piece.namespace} so that it matches spec.namespaceSelector of ClusterQueue {queue.name} "
            "(an empty selector matches every namespace, a missing one matches none)"
        )
    return f"correct {describe_cluster_queue(queue.name)} and the objects that it refers to"
