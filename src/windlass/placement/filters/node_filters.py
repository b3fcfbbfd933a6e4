"""Filters on the pod and the Node object: cordon, node name, taints, node selector and affinity, unknown GPUs.

Called by `static_reasons`; `placement.preferences` calls those that spread constraints refer to.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.gpu import gpu_request
from windlass.model.names.kubernetes import UNSCHEDULABLE_TAINT
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests
from windlass.model.taints import HARD_EFFECTS, find_untolerated_taint, tolerates

_CORDONED = Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")


def refused_as_unschedulable(pod: Pod, nodes: NodeColumns) -> Bools | None:
    """Cordoned nodes refuse pods, except those that tolerate the taint of a cordon."""
    return None if tolerates(pod.spec.tolerations, _CORDONED) else nodes.unschedulable


def refused_by_node_name(pod: Pod, nodes: NodeColumns) -> Bools | None:
    return ~nodes.mask_of_names([pod.spec.node_name]) if pod.spec.node_name else None


def refused_by_taints(pod: Pod, nodes: NodeColumns) -> Bools | None:
    """Untolerated NoSchedule and NoExecute taints; evaluated once per distinct set, of which there are few."""
    refused = np.array(
        [find_untolerated_taint(taints, pod.spec.tolerations, HARD_EFFECTS) is not None for taints in nodes.taint_sets],
        dtype=np.bool_,
    )
    if not refused.any():
        return None
    mask: Bools = refused[nodes.taint_set_codes]
    return mask


def refused_by_node_affinity(pod: Pod, nodes: NodeColumns) -> Bools | None:
    """`nodeSelector` and required node affinity: both have to match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None and not pod.spec.node_selector:
        return None
    matching = nodes.matching_labels(pod.spec.node_selector)
    if required is not None:
        matching &= nodes.matching(required)
    return ~matching


def refused_by_unknown_gpus(pod: Pod, nodes: NodeColumns) -> Bools | None:
    """A share is of one GPU: nodes of which only the number of replicas is known have none to give."""
    if not pod.metadata.annotations or not nodes.gpus_unknown.any():  # shares are asked for by annotations
        return None
    asked = gpu_request(pod, pod_requests(pod))
    return nodes.gpus_unknown if asked is not None and asked.is_share else None
