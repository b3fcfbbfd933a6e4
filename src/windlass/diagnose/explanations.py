"""Which cause explains which finding: the edges of the graph that `hypothesis.conclude` follows to the deepest cause.

One table for every layer, so that a new cause is put in its place once. A cause explains its row and everything that
the row explains; the table has no cycles.
"""

from __future__ import annotations

from functools import cache

NO_ROOM = ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER")
"""Too few devices on the nodes that match."""
PROGRAM_FAILS = ("APP_ERROR", "GPU_OOM", "CGROUP_DEVICE_ACCESS_LOST")
"""What a program says when the layer below it fails."""
FIXED_BY_NEW_NODE = (
    *NO_ROOM,
    "SELECTOR_MISMATCH",
    "RESOURCE_NAME_MISMATCH",
    "CPU_MEM_INSUFFICIENT",
    "POD_COUNT_LIMIT",
    "DEVICE_PLUGIN_ABSENT",
    "NODE_UNSCHEDULABLE",
)
"""Findings that a new node would remove."""

EXPLAINS: dict[str, tuple[str, ...]] = {
    # Hardware and driver: what is broken below breaks everything above
    "GPU_HW_FAULT": (
        "DEVICE_UNHEALTHY",
        "DEVICE_ID_STALE",
        "MPS_NOT_READY",
        "RUNTIME_NOT_CONFIGURED",
        *PROGRAM_FAILS,
    ),
    "DEVICE_UNHEALTHY": (*NO_ROOM, "KUBELET_ADMISSION_RACE"),
    "DRIVER_LIB_MISMATCH": ("DRIVER_MISSING", "DEVICE_UNHEALTHY", *PROGRAM_FAILS),
    "DRIVER_UPGRADE_BLOCKED": ("DRIVER_MISSING", "DEVICE_PLUGIN_ABSENT", "NODE_UNSCHEDULABLE"),
    "DRIVER_MISSING": (
        "RUNTIME_NOT_CONFIGURED",
        "DEVICE_NODES_MISSING",
        "GFD_LABELS_MISSING",
        "DEVICE_PLUGIN_ABSENT",
        "FABRIC_NOT_READY",
        "MPS_NOT_READY",
        *PROGRAM_FAILS,
    ),
    "DEVICE_PERMISSION": ("MPS_NOT_READY", "MIG_CONFIG_NOT_APPLIED", "DEVICE_PLUGIN_FAILING", *PROGRAM_FAILS),
    "RUNTIME_NOT_CONFIGURED": ("DEVICE_PLUGIN_FAILING", "APP_ERROR"),
    "DEVICE_NODES_MISSING": ("DEVICE_PLUGIN_FAILING", "APP_ERROR"),
    "FABRIC_NOT_READY": ("RUNTIME_NOT_CONFIGURED", *PROGRAM_FAILS),
    # What a node advertises
    "MIG_CONFIG_NOT_APPLIED": ("DEVICE_PLUGIN_ABSENT", "DEVICE_PLUGIN_FAILING", "NODE_UNSCHEDULABLE", "APP_ERROR"),
    "MPS_NOT_READY": ("SHARING_CONFIG_NOT_APPLIED", "DEVICE_PLUGIN_FAILING", "APP_ERROR"),
    "GFD_LABELS_MISSING": ("DEVICE_PLUGIN_ABSENT", "SELECTOR_MISMATCH"),
    "TAINT_NOT_TOLERATED": ("DEVICE_PLUGIN_ABSENT",),
    "DEVICE_PLUGIN_ABSENT": ("RESOURCE_NAME_MISMATCH", "DEVICE_UNHEALTHY", *NO_ROOM),
    "DEVICE_PLUGIN_FAILING": ("RESOURCE_NAME_MISMATCH", "DEVICE_UNHEALTHY", *NO_ROOM),
    "GPU_NOT_YET_ADVERTISED": ("RESOURCE_NAME_MISMATCH", *NO_ROOM),
    "SHARING_CONFIG_NOT_APPLIED": ("RESOURCE_NAME_MISMATCH", *NO_ROOM),
    "NODE_UNSCHEDULABLE": (*NO_ROOM, "RESOURCE_NAME_MISMATCH"),
    # Nodes that do not come
    "AUTOSCALER_MAX_SIZE": FIXED_BY_NEW_NODE,
    "AUTOSCALER_NO_MATCHING_GROUP": FIXED_BY_NEW_NODE,
    "CLOUD_CAPACITY": ("AUTOSCALER_NO_MATCHING_GROUP", *FIXED_BY_NEW_NODE),
    # Queues and preemption
    "KUEUE_FLAVOR_MISMATCH": ("SELECTOR_MISMATCH",),
    "KUEUE_QUOTA_MISCONFIGURED": ("GPU_FULL", "REQUEST_EXCEEDS_CLUSTER"),
    "GPU_STRANDED": ("CPU_MEM_INSUFFICIENT",),
}
"""Cause → findings that it explains directly."""

USERS = "you, in the manifest"
ADMINISTRATORS = "a cluster administrator"
CHANGED_BY: dict[str, str] = {
    **dict.fromkeys(
        (
            "FRACTIONAL_GPU_REQUEST",
            "REQUESTS_NE_LIMITS",
            "RESOURCE_NAME_MISMATCH",
            "SHM_TOO_SMALL",
            "DRA_CLAIM_INVALID",
            "TAINT_NOT_TOLERATED",
            "SELECTOR_MISMATCH",
            "POD_AFFINITY_CONFLICT",
            "POD_SPREAD_CONFLICT",
            "REQUEST_EXCEEDS_CLUSTER",
            "CPU_MEM_INSUFFICIENT",
            "HOST_PORT_CONFLICT",
            "JOB_SUSPENDED",
            "IMAGE_PULL_FAILED",
            "CONTAINER_OOM",
            "GPU_OOM",
            "GPU_VISIBLE_UNREQUESTED",
            "APP_ERROR",
            "INVALID_OBJECT",
        ),
        USERS,
    ),
    **dict.fromkeys(
        (
            "DEVICE_PLUGIN_ABSENT",
            "DEVICE_PLUGIN_FAILING",
            "GFD_LABELS_MISSING",
            "RUNTIME_NOT_CONFIGURED",
            "DRIVER_MISSING",
            "DRIVER_LIB_MISMATCH",
            "DRIVER_UPGRADE_BLOCKED",
            "DEVICE_NODES_MISSING",
            "DEVICE_PERMISSION",
            "DEVICE_UNHEALTHY",
            "GPU_HW_FAULT",
            "FABRIC_NOT_READY",
            "MIG_CONFIG_NOT_APPLIED",
            "SHARING_CONFIG_NOT_APPLIED",
            "MPS_NOT_READY",
            "NODE_UNSCHEDULABLE",
            "AUTOSCALER_MAX_SIZE",
            "AUTOSCALER_NO_MATCHING_GROUP",
            "KUEUE_QUEUE_MISSING",
            "KUEUE_QUOTA_MISCONFIGURED",
            "KUEUE_FLAVOR_MISMATCH",
            "QUOTA_KEY_INVALID",
            "RESOURCE_QUOTA_EXCEEDED",
            "DRA_CLASS_MISSING",
            "POLICY_DENIED",
            "WRONG_SCHEDULER",
        ),
        ADMINISTRATORS,
    ),
    "CLOUD_CAPACITY": "the cloud provider, or whoever may ask it for quota",
}
"""Cause → who can change it; not listed where it depends, or where nobody has to."""


def leads_to(cause: str, finding: str) -> bool:
    """Whether the cause explains the finding, directly or through others."""
    return finding in _explained(cause)


@cache
def _explained(cause: str) -> frozenset[str]:
    direct = EXPLAINS.get(cause, ())
    return frozenset(direct).union(*(_explained(code) for code in direct))
