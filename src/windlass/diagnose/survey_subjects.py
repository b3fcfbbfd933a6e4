"""The objects that a survey asks about: whatever does not run, is not ready, lacks pods or is out of order.

Called by `survey`. Pods stand for their topmost owner, or for the gang that they name; what runs and is ready is left
out without a question, so that a large cluster costs no more than its troubles.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.operator_reports import failures_of, is_done, wanted_pods
from windlass.diagnose.subject import ALIASES, group_of, owners_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.node import Node
from windlass.model.pod import Pod

WORKLOAD_KINDS = frozenset(ALIASES.values()) - {"Pod", "Node", "CronJob", "Namespace"}
"""Kinds that should have pods, or that say why they have none."""
POLICY_KINDS = ("ClusterQueue", "ResourceQuota")
TOP_KINDS = ("Node", "CronJob")
"""Owners that are not asked about instead of what they own."""


def troubled_objects(evidence: Evidence, namespace: str) -> list[ClusterObject]:
    """The objects to ask about, of one namespace or of all and of the cluster itself; each once."""
    found = {id(item): item for item in _by_pods(evidence, namespace)}
    found |= {id(item): item for item in _without_pods(evidence, namespace) if id(item) not in found}
    if not namespace:
        found |= {id(item): item for item in evidence.of_kind("Node") if _is_out_of_order(item)}
    return list(found.values())


def _by_pods(evidence: Evidence, namespace: str) -> Iterator[ClusterObject]:
    gangs: set[tuple[str, str, str]] = set()
    for pod in evidence.of_kind("Pod"):
        if (namespace and pod.namespace != namespace) or not is_troubled(evidence, pod):
            continue
        root = root_of(evidence, pod)
        group = group_of(pod) if root is pod else None
        if group is not None:
            key = (pod.namespace, group.source, group.name)
            if key in gangs:
                continue
            gangs.add(key)
        yield root


def root_of(evidence: Evidence, item: ClusterObject) -> ClusterObject:
    """The topmost owner that is in the evidence."""
    owners = [owner for owner in owners_of(evidence, item) if owner.kind not in TOP_KINDS]
    return owners[-1] if owners else item


def is_troubled(evidence: Evidence, pod: ClusterObject) -> bool:
    """Whether it waits, has failed or is not ready, or whether a warning or a log of it may say what it lacks."""
    decoded = pod.decoded
    if not isinstance(decoded, Pod):
        return True
    phase = decoded.status.phase
    if phase == "Succeeded":
        return False
    if phase != "Running" or not decoded.is_ready or evidence.logs_of(pod):
        return True
    if not decoded.status.conditions and not all(map(_is_ready, nested_maps(pod.data, "status", "containerStatuses"))):
        return True
    return any(event.warning for event in evidence.events_of(pod))


def _is_ready(container: dict[str, object]) -> bool:
    return container.get("ready") is True


def _without_pods(evidence: Evidence, namespace: str) -> Iterator[ClusterObject]:
    """Objects whose own status says that they failed, whose pods do not exist, and queues and quotas."""
    for item in evidence.items.values():
        if item.kind in ("Pod", "Node", "ConfigMap") or (namespace and item.namespace != namespace):
            continue
        is_asked = item.kind in POLICY_KINDS
        if (
            item.kind == "LocalQueue"
        ):  # what its ClusterQueue lacks is said once, where the whole cluster is asked about
            is_asked = bool(namespace or nested_string(item.data, "spec", "stopPolicy"))
        if item.kind == "CronJob":
            is_asked = any(event.warning for event in evidence.events_of(item))
        owner = evidence.owner(item)
        if is_asked or ((owner is None or owner.kind in TOP_KINDS) and _may_lack_pods(evidence, item)):
            yield item


def _may_lack_pods(evidence: Evidence, item: ClusterObject) -> bool:
    if is_done(item):
        return False
    if any(failures_of(item)):
        return True
    if item.kind not in WORKLOAD_KINDS:
        return False
    wanted = wanted_pods(nested_map(item.data, "spec"))
    is_whole = item.kind in ("DaemonSet", "PodGroup") and bool(evidence.children(item))
    return (bool(wanted) or item.kind in ("Workload", "DaemonSet")) and not is_whole


def _is_out_of_order(item: ClusterObject) -> bool:
    """Whether a node takes no pods, or offers other devices than it has or should have."""
    node = item.decoded
    if not isinstance(node, Node) or nodes.unschedulable_reason(node):
        return True
    if not nodes.looks_like_gpu_node(node):
        return False
    has = nodes.gpu_resources(node)
    return not has or any(nodes.unhealthy_device_count(node, name) for name in has)
