"""Whether an object that came again says anything new. Most watch events don't, and the store drops those here."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.device import NODE_ANNOTATIONS
from windlass.model.node import Node
from windlass.model.pod import Pod


def is_unchanged(old: Any, new: Any) -> bool:
    """Equal but for the version that the API server counts."""
    if type(old) is not type(new):
        return False
    version = old.metadata.resource_version
    if new.metadata.resource_version != version:
        metadata = msgspec.structs.replace(new.metadata, resource_version=version)
        new = msgspec.structs.replace(new, metadata=metadata)
    return bool(old == new)


def is_node_unchanged(old: Node, new: Node) -> bool:
    """As far as placement reads it: controllers write annotations of their own onto nodes all the time."""

    def part(node: Node) -> object:
        annotations = [node.metadata.annotations.get(name) for name in NODE_ANNOTATIONS]
        return node.spec, node.status, node.labels, annotations

    return part(old) == part(new)


def is_pod_unchanged(old: Pod, new: Pod) -> bool:
    """As far as placement and grouping read it."""

    def part(pod: Pod) -> object:
        meta, status = pod.metadata, pod.status
        times = meta.deletion_timestamp, status.start_time
        return pod.spec, meta.uid, meta.labels, meta.annotations, times, status.nominated_node_name

    return part(old) == part(new)


def is_pod_health_unchanged(old: Pod, new: Pod) -> bool:
    """As far as disruption budgets read it."""
    return (old.status.phase, old.is_ready) == (new.status.phase, new.is_ready)
