"""Whether a new version of an object differs in anything that matters.

Most watch events don't; `store`, `node_table` and `auxiliary_objects` drop those.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.device import NODE_ANNOTATIONS
from windlass.model.node import Node
from windlass.model.notices import is_shutting_down
from windlass.model.pod import Pod


def is_unchanged(old: Any, new: Any) -> bool:
    """Equal except for the resource version."""
    if type(old) is not type(new):
        return False
    version = old.metadata.resource_version
    if new.metadata.resource_version != version:
        metadata = msgspec.structs.replace(new.metadata, resource_version=version)
        new = msgspec.structs.replace(new, metadata=metadata)
    return bool(old == new)


def is_node_unchanged(old: Node, new: Node) -> bool:
    """In what placement reads: controllers change other annotations of nodes all the time."""

    def relevant(node: Node) -> object:
        annotations = [node.metadata.annotations.get(name) for name in NODE_ANNOTATIONS]
        status = node.status
        conditions = [(condition.type, condition.status) for condition in status.conditions]
        quantities = status.capacity, status.allocatable
        return node.spec, quantities, conditions, is_shutting_down(node), node.labels, annotations

    return relevant(old) == relevant(new)


def is_pod_unchanged(old: Pod, new: Pod) -> bool:
    """In what placement and grouping read."""

    def relevant(pod: Pod) -> object:
        meta, status = pod.metadata, pod.status
        times = meta.deletion_timestamp, status.start_time
        return pod.spec, meta.uid, meta.labels, meta.annotations, times, status.nominated_node_name

    return relevant(old) == relevant(new)


def is_pod_health_unchanged(old: Pod, new: Pod) -> bool:
    """In what disruption budgets read."""
    return (old.status.phase, old.is_ready) == (new.status.phase, new.is_ready)
