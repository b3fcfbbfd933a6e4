"""The closed list of reasons why a pod does not fit on a node, or is not considered at all.

Filters set bits of a 64-bit mask per (pod shape, node) cell while they decide; `placement.verdicts` turns the mask into
a verdict and the reports print it. Each reason is defined once: its bit, its kind, its code, kube-scheduler's wording
(interface text of Kubernetes, Apache-2.0), our sentence and the remedy. kube-scheduler has no wording for what happens
inside a GPU; those entries follow its style.

Bits 0 to 31 belong to the entries below, in order of their bits; a new reason takes the lowest free one. Bit
32 + j says that the j-th resource of the shape's own sorted request list is insufficient: `insufficient_reason(name)`
makes that entry. Of several reasons the lowest bit is named first, so that devices come before resources; apart from
that, the order of the bits means nothing. What sort of reasons a mask has is asked with the masks by kind
(`PERMANENT_BITS`, `CAPACITY_BITS` and others).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from windlass.model.names.nvidia import GPU_PRODUCT_LABEL
from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION

WHY_UNSCHEDULABLE = 1 << 0
WHY_NODE_NAME = 1 << 1
WHY_TAINT = 1 << 2
WHY_NODE_AFFINITY = 1 << 3
WHY_PORTS = 1 << 4
WHY_POD_AFFINITY = 1 << 5
WHY_POD_ANTI_AFFINITY = 1 << 6
WHY_EXISTING_ANTI_AFFINITY = 1 << 7
WHY_SPREAD = 1 << 8
WHY_SPREAD_MISSING_LABEL = 1 << 9
WHY_VOLUME_NODE_AFFINITY = 1 << 10
WHY_VOLUME_ZONE = 1 << 11
WHY_NOT_UNDERSTOOD = 1 << 12
WHY_EXCLUSIVE_CLAIM = 1 << 13
WHY_VOLUME_BINDING = 1 << 14
WHY_VOLUME_LIMIT = 1 << 15
WHY_GPU_DEVICE_ROOM = 1 << 16
WHY_GPU_MODEL = 1 << 17
WHY_GPU_UNHEALTHY = 1 << 18
WHY_MIG_NO_ROOM = 1 << 19
WHY_GPU_ALIGNMENT = 1 << 20
WHY_GPU_MEMORY = 1 << 21
WHY_BIND_REFUSED = 1 << 22
WHY_GPU_UNLABELLED = 1 << 23

FIRST_RESOURCE_BIT = 32
MAX_RESOURCES = 32
"""Bits for the resources of one pod. `cluster.node_state.MAX_REQUESTS` is the limit that pods meet."""


def insufficient_bit(position: int) -> int:
    """The mask bit of the resource at `position` of a shape's sorted request list."""
    if not 0 <= position < MAX_RESOURCES:
        raise ValueError(f"resource position {position} is outside 0..{MAX_RESOURCES - 1}")
    return 1 << (FIRST_RESOURCE_BIT + position)


ReasonKind = Literal["rule", "inter-pod", "capacity", "health", "pod"]
RULE: ReasonKind = "rule"
"""A rule about the pod and the node: no pod that ends or moves makes the node fit."""
INTER_POD: ReasonKind = "inter-pod"
"""A rule about other pods, or a thing that another pod holds alone: no amount of free capacity makes the node fit."""
CAPACITY: ReasonKind = "capacity"
"""Too little is free: pods that end on the node make it fit, if it is large enough."""
HEALTH: ReasonKind = "health"
"""GPUs that are unhealthy now: it takes a repair, or that pods end on the healthy ones."""
POD: ReasonKind = "pod"
"""Holds the pod as a whole, without counting nodes."""


class Reason(msgspec.Struct, frozen=True):
    """A reason for which a pod is refused."""

    name: str
    """Unique; the constant of its bit is `WHY_` and this name. Only code and tests use it."""
    code: str
    """What users and scripts see, and never renamed: a key of `diagnose.causes.CAUSES`. Reasons may share a code."""
    kube_words: str
    """kube-scheduler's literal text where it has this reason, otherwise ours in its style."""
    message: str
    remedy: str
    kind: ReasonKind = POD
    bit: int | None = None
    """Position in the mask; None where it has no position of its own: resources, and reasons of kind `pod`."""


NODE_REASONS = (
    Reason(
        "UNSCHEDULABLE",
        "NODE_UNSCHEDULABLE",
        "node(s) were unschedulable",
        "the node is cordoned",
        "uncordon it (kubectl uncordon), or tolerate node.kubernetes.io/unschedulable",
        RULE,
        0,
    ),
    Reason(
        "NODE_NAME",
        "SELECTOR_MISMATCH",
        "node(s) didn't match the requested node name",
        "spec.nodeName asks for another node",
        "remove spec.nodeName",
        RULE,
        1,
    ),
    Reason(
        "TAINT",
        "TAINT_NOT_TOLERATED",
        "node(s) had untolerated taint(s)",
        "the node has a taint that the pod doesn't tolerate",
        "add a toleration with the taint's key, value and effect, or remove the taint",
        RULE,
        2,
    ),
    Reason(
        "NODE_AFFINITY",
        "SELECTOR_MISMATCH",
        "node(s) didn't match Pod's node affinity/selector",
        "the node's labels don't match the pod's node selector or required node affinity",
        "compare nodeSelector and nodeAffinity with the node's labels, letter by letter",
        RULE,
        3,
    ),
    Reason(
        "PORTS",
        "HOST_PORT_CONFLICT",
        "node(s) didn't have free ports for the requested pod ports",
        "a host port that the pod asks for is taken on the node",
        "remove hostPort, or use a free port",
        INTER_POD,
        4,
    ),
    Reason(
        "POD_AFFINITY",
        "POD_AFFINITY_CONFLICT",
        "node(s) didn't match pod affinity rules",
        "no pod that the required pod affinity selects runs in the node's topology domain",
        "check the affinity's selector, namespaces and topologyKey, or make it preferred",
        INTER_POD,
        5,
    ),
    Reason(
        "POD_ANTI_AFFINITY",
        "POD_AFFINITY_CONFLICT",
        "node(s) didn't match pod anti-affinity rules",
        "a pod that the required anti-affinity selects runs in the node's topology domain",
        "add nodes or domains, or make the anti-affinity preferred",
        INTER_POD,
        6,
    ),
    Reason(
        "EXISTING_ANTI_AFFINITY",
        "POD_AFFINITY_CONFLICT",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "the anti-affinity of a pod in the node's topology domain selects this pod",
        "change that pod's anti-affinity, or this pod's labels",
        INTER_POD,
        7,
    ),
    Reason(
        "SPREAD",
        "POD_SPREAD_CONFLICT",
        "node(s) didn't match pod topology spread constraints",
        "one more pod on this node would exceed maxSkew of a topology spread constraint",
        "raise maxSkew, use ScheduleAnyway, or exclude domains without GPU nodes by node affinity",
        INTER_POD,
        8,
    ),
    Reason(
        "SPREAD_MISSING_LABEL",
        "POD_SPREAD_CONFLICT",
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "the node lacks the label that a topology spread constraint counts by",
        "label the node with the constraint's topologyKey",
        RULE,
        9,
    ),
    Reason(
        "VOLUME_NODE_AFFINITY",
        "STORAGE_INSUFFICIENT",
        "node(s) didn't match PersistentVolume's node affinity",
        "the pod's volume can't be reached from this node",
        "use a volume that this node can reach, or let the pod run on nodes that reach the volume",
        RULE,
        10,
    ),
    Reason(
        "VOLUME_ZONE",
        "STORAGE_INSUFFICIENT",
        "node(s) had no available volume zone",
        "the pod's volume is in another zone",
        "add GPU nodes in the volume's zone, or use a storage class with volumeBindingMode WaitForFirstConsumer",
        RULE,
        11,
    ),
    Reason(
        "NOT_UNDERSTOOD",
        "NODE_NOT_UNDERSTOOD",
        "node(s) could not be read or held a pod that could not be read",
        "the node or a pod on it could not be read, so what is free there is not known",
        "correct the object that the event Unreadable is about "
        "(kubectl get events -A --field-selector reason=Unreadable)",
        RULE,
        12,
    ),
    Reason(
        "EXCLUSIVE_CLAIM",
        "STORAGE_INSUFFICIENT",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod",
        "another pod uses the ReadWriteOncePod claim",
        "wait for that pod to end, or use another access mode",
        INTER_POD,
        13,
    ),
    Reason(
        "VOLUME_BINDING",
        "STORAGE_INSUFFICIENT",
        "node(s) didn't find available persistent volumes to bind",
        "no available volume that the node can reach fits the pod's claim, and its class can't provision one here",
        "add a volume that this node can reach, or let the class provision in the node's zone",
        RULE,
        14,
    ),
    Reason(
        "VOLUME_LIMIT",
        "STORAGE_INSUFFICIENT",
        "node(s) exceed max volume count",
        "the node can't have more volumes of this driver attached",
        "use fewer volumes, add nodes, or wait until pods with volumes end on this node",
        INTER_POD,
        15,
    ),
    Reason(
        "GPU_DEVICE_ROOM",
        "GPU_FULL",
        "node(s) didn't have enough GPUs with room for the requested share",
        "too few of the node's GPUs have the requested share free",
        "ask for fewer or smaller shares, or wait until pods on these GPUs end",
        CAPACITY,
        16,
    ),
    Reason(
        "GPU_MODEL",
        "SELECTOR_MISMATCH",
        "node(s) didn't have the requested GPU model",
        "the node's GPUs are of another model than the pod allows",
        f"allow a GPU model that the cluster has (kubectl get nodes -L {GPU_PRODUCT_LABEL})",
        RULE,
        17,
    ),
    Reason(
        "GPU_UNHEALTHY",
        "DEVICE_UNHEALTHY",
        "node(s) had unhealthy GPUs",
        "the node would have enough free GPUs if its unhealthy ones worked",
        "look at the node's kernel log for Xid messages; reset or replace the GPU",
        HEALTH,
        18,
    ),
    Reason(
        "MIG_NO_ROOM",
        "GPU_FRAGMENTED",
        "node(s) didn't have a GPU whose MIG geometry has room for the profile",
        "no GPU of the node has free slices in a position that the MIG profile allows",
        "ask for a smaller profile, or change the node's MIG layout (windlass plan mig)",
        CAPACITY,
        19,
    ),
    Reason(
        "GPU_ALIGNMENT",
        "TOPOLOGY_MANAGER_REFUSED",
        "node(s) didn't have enough free GPUs on one NUMA node",
        "the free GPUs of the node are on different NUMA nodes, and its kubelet's topology manager refuses such a pod",
        "ask for as many GPUs as one NUMA node has, wait until pods on them end, or relax topologyManagerPolicy",
        CAPACITY,
        20,
    ),
    Reason(
        "GPU_MEMORY",
        "REQUEST_EXCEEDS_CLUSTER",
        "node(s) didn't have GPUs with the requested memory",
        "the node's GPUs have less memory than the pod asks for",
        "ask for less GPU memory, or for a GPU model with more memory",
        RULE,
        21,
    ),
    Reason(
        "BIND_REFUSED",
        "POLICY_DENIED",
        "node(s) to which the pod's binding was just refused",
        "the API server has just refused to bind the pod to this node: a webhook or a policy forbids it",
        "read the refusal in the pod's events; the scheduler tries the node again after 30 s",
        RULE,
        22,
    ),
    Reason(
        "GPU_UNLABELLED",
        "GFD_LABELS_MISSING",
        "node(s) had shared GPUs without labels that say how they are shared",
        "the node advertises more GPUs than a machine has, and no label says of which GPUs they are replicas",
        "run GPU Feature Discovery or the node agent on the node, or ask for whole nvidia.com/gpu there",
        RULE,
        23,
    ),
)
"""Reasons of one (pod, node) pair, by bit. Bits 24 to 31 are free."""


def _bits(*kinds: ReasonKind) -> int:
    return sum(1 << reason.bit for reason in NODE_REASONS if reason.kind in kinds and reason.bit is not None)


# Plain integers: the kernels and numpy take them as np.uint64.
RESOURCE_BITS = sum(insufficient_bit(position) for position in range(MAX_RESOURCES))
CAPACITY_BITS = RESOURCE_BITS | _bits(CAPACITY)
"""Too little of a resource, or too little room inside the GPUs."""
DEVICE_BITS = _bits(CAPACITY, HEALTH)
"""Why the GPUs of the node don't suffice, apart from the number that the node advertises."""
INTER_POD_BITS = _bits(INTER_POD)
PERMANENT_BITS = _bits(RULE, INTER_POD)
"""Reasons that no freed capacity removes."""

SCHEDULING_GATED = Reason(
    "SCHEDULING_GATED",
    "SCHEDULING_GATED",
    "waiting for scheduling gates",
    "the pod still has scheduling gates",
    "wait until the gate's controller removes it, or remove it from spec.schedulingGates",
)
UNBOUND_CLAIM = Reason(
    "UNBOUND_CLAIM",
    "STORAGE_INSUFFICIENT",
    "pod has unbound immediate PersistentVolumeClaims",
    "a volume claim of the pod is not bound, and its storage class binds immediately",
    "check the claim's events and its storage class",
)
CLAIM_MISSING = Reason(
    "CLAIM_MISSING",
    "STORAGE_INSUFFICIENT",
    "persistentvolumeclaim not found",
    "a volume claim of the pod doesn't exist",
    "create the claim, or correct its name",
)
RESOURCE_CLAIMS_NOT_IMPLEMENTED = Reason(
    "RESOURCE_CLAIMS_NOT_IMPLEMENTED",
    "NOT_IMPLEMENTED",
    "cannot allocate all claims",
    "the pod needs resource claims, which Windlass does not allocate",
    "request the GPU as an extended resource, or set spec.schedulerName to another scheduler",
)
INVALID_OBJECT = Reason(
    "INVALID_OBJECT",
    "INVALID_OBJECT",
    "pod is invalid",
    "a field of the pod can't be read, or has a value that is not allowed",
    "correct the field that the message names",
)

RESERVED_FOR_OTHERS = Reason(
    "RESERVED_FOR_OTHERS",
    "RESERVED_FOR_OTHERS",
    "there is room, but it is kept for a planned start or a reservation",
    "room is free, but kept for a planned start or a reservation",
    f"set {DECLARED_DURATION_ANNOTATION} so that it ends before the planned start or the reservation begins",
)

POD_REASONS = (
    SCHEDULING_GATED,
    UNBOUND_CLAIM,
    CLAIM_MISSING,
    RESOURCE_CLAIMS_NOT_IMPLEMENTED,
    INVALID_OBJECT,
    RESERVED_FOR_OTHERS,
)
"""Reasons of the pod as a whole: no node is counted for them."""

_BY_BIT = {reason.bit: reason for reason in NODE_REASONS}


def reason_of_bit(bit: int) -> Reason:
    """The entry of a bit below `FIRST_RESOURCE_BIT`; KeyError for a bit that means nothing."""
    return _BY_BIT[bit]


def insufficient_reason(resource: str) -> Reason:
    """The entry for a resource of which a node has too little free."""
    if resource == "pods":
        return Reason(
            "INSUFFICIENT_PODS",
            "POD_COUNT_LIMIT",
            "Too many pods",
            "the node has reached its maximum number of pods",
            "raise the kubelet's maxPods, or add nodes",
            CAPACITY,
        )
    # Devices of any vendor that a node has are in use; what no node has is found before its nodes are asked.
    code = _RESOURCE_CODES.get(resource, "GPU_FULL" if "/" in resource else "CPU_MEM_INSUFFICIENT")
    return Reason(
        f"INSUFFICIENT_{resource}",
        code,
        f"Insufficient {resource}",
        f"the node has too little {resource} free",
        f"ask for less {resource}, or wait until some is freed",
        CAPACITY,
    )


_RESOURCE_CODES = {
    "cpu": "CPU_MEM_INSUFFICIENT",
    "memory": "CPU_MEM_INSUFFICIENT",
    "ephemeral-storage": "EPHEMERAL_STORAGE",
}
