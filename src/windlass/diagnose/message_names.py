"""Sentences with the names that a message has or leads to, where the meaning of its code would leave them out.

Called by `pod_startup` for the kubelet's messages, and by `refusal` for what controllers say.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose.contradictions import current_events
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import PatternMatch, match_finding
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_bool, nested_map, nested_maps, nested_string

TOLD = {
    "EPHEMERAL_STORAGE": "{pod} was refused disk on node {node}",
    "IMAGE_PULL_FAILED": "node {node} can't pull the image of every pod's sandbox",
    "REQUEST_EXCEEDS_CLUSTER": "the device plugin of node {node} refused {pod}",
}
"""Code → what is said of the pod and its node, where the kubelet's message has the rest."""
ATTACHED_ELSEWHERE = re.compile(r'multi-attach error for volume "([^"]+)"', re.I)
NO_HANDLER = re.compile(r"(?:no runtime for|runtime ?handler) \W{0,3}(\w[\w.-]*)", re.I)
NO_ADDRESS = re.compile(r"\bip( address(es)?| range)?\b|InsufficientFreeAddresses", re.I)
OUTSIDE_LIMITS = re.compile(r"\b(max|min)imum (\S+) usage per (Container|Pod|PersistentVolumeClaim) is\b.*")


def kubelet_finding(evidence: Evidence, pod: ClusterObject, match: PatternMatch) -> Finding:
    """The cause that a message of the kubelet about the pod shows."""
    finding = match_finding(match)
    if match.code in TOLD:
        what = TOLD[match.code].format(pod=pod.title, node=node_of(pod))
        return msgspec.structs.replace(finding, headline=f"{what}: {innermost(match.line)}")
    if match.code == "POD_COUNT_LIMIT" and NO_ADDRESS.search(match.line):
        message = f"node {node_of(pod)} has no IP address left for {pod.title}"
        remedy = "give its subnet or address pool more addresses, or run fewer pods on it"
        return msgspec.structs.replace(finding, headline=message, remedy=remedy)
    handler = NO_HANDLER.search(match.line)
    if match.code == "RUNTIME_NOT_CONFIGURED" and handler is not None:
        message = f"the container runtime of node {node_of(pod)} has no handler {handler[1]}"
        remedy = f"install and configure the runtime {handler[1]} on the node, or use another RuntimeClass"
        remedy = finding.remedy if handler[1] == "nvidia" else remedy
        return msgspec.structs.replace(finding, headline=message, remedy=remedy)
    if match.code == "STORAGE_INSUFFICIENT":
        lines = (match.line, *(event.message for event in current_events(evidence, pod)))
        held = next(filter(None, map(ATTACHED_ELSEWHERE.search, lines)), None)
        return (
            _not_mounted(evidence, pod, match, finding)
            if held is None
            else _attached_elsewhere(evidence, pod, held[1], finding)
        )
    return finding


NOT_MOUNTED = re.compile(r'(?:MountVolume|MapVolume|AttachVolume)\.\w+ failed for volume "([^"]+)"')
DRIVER_LABELS = 2
"""How many labels of a driver's name (`s3.csi` of s3.csi.aws.com) its pods are called by."""


def _not_mounted(evidence: Evidence, pod: ClusterObject, match: PatternMatch, finding: Finding) -> Finding:
    """Which volume can't be mounted where, why, and whose log on that node says more."""
    named = NOT_MOUNTED.search(match.line)
    if named is None:
        return finding
    message = f"volume {named[1]} can't be mounted on node {node_of(pod)}: {innermost(match.line)}"
    volume = evidence.get("PersistentVolume", "", named[1])
    driver = nested_string(volume.data, "spec", "csi", "driver") if volume is not None else ""
    start = "-".join(driver.split(".")[:DRIVER_LABELS])
    mounters = [other for other in evidence.pods_on(node_of(pod)) if driver and start in other.name]
    remedy = "mend what the message names; the kubelet goes on trying"
    if mounters:
        remedy = f"see the log of {mounters[0].title}, which mounts the volumes of {driver} there"
    return msgspec.structs.replace(finding, headline=message, remedy=finding.remedy or remedy)


def _attached_elsewhere(evidence: Evidence, pod: ClusterObject, volume: str, finding: Finding) -> Finding:
    """A volume for one node that another node has; which, and who uses it there."""
    claim = next(
        (item for item in evidence.of_kind("PersistentVolumeClaim") if _spec(item, "volumeName") == volume), None
    )
    attachments = [
        item
        for item in evidence.of_kind("VolumeAttachment")
        if nested_string(item.data, "spec", "source", "persistentVolumeName") == volume
        and nested_bool(item.data, "status", "attached")
        and _spec(item, "nodeName") not in ("", node_of(pod))
    ]
    name = f"volume {volume}{f' of claim {claim.name}' if claim is not None else ''}"
    if not attachments:
        message = f"{name} is attached to another node, and {pod.title} needs it on node {node_of(pod)}"
        return msgspec.structs.replace(finding, headline=message, remedy="delete the pod that uses it there")
    holder = _spec(attachments[0], "nodeName")
    message = f"{name} is attached to node {holder}, and {pod.title} needs it on node {node_of(pod)}"
    users = [] if claim is None else [user for user in evidence.pods_on(holder) if claim.name in _claims_of(user)]
    remedy = f"delete {users[0].title}, which uses it there" if users else _stale(attachments[0], holder)
    return msgspec.structs.replace(finding, headline=message, remedy=remedy)


def _stale(attachment: ClusterObject, node: str) -> str:
    return f"no pod uses it there: kubectl delete volumeattachment {attachment.name}, once node {node} does not write"


def _spec(item: ClusterObject, field: str) -> str:
    return nested_string(item.data, "spec", field)


def _claims_of(pod: ClusterObject) -> list[str]:
    volumes = nested_maps(pod.data, "spec", "volumes")
    return [nested_string(volume, "persistentVolumeClaim", "claimName") for volume in volumes]


def with_limit_range(evidence: Evidence, namespace: str, finding: Finding) -> Finding:
    """A refusal for a size, with the LimitRange that sets it."""
    said = OUTSIDE_LIMITS.search(finding.headline)
    if said is None:
        return finding
    bound, resource, per = said[1].lower(), said[2], said[3]
    ranges = (item for item in evidence.of_kind("LimitRange") if item.namespace == namespace)
    found = next(
        (
            item
            for item in ranges
            for limit in nested_maps(item.data, "spec", "limits")
            if nested_string(limit, "type") == per and resource in nested_map(limit, bound)
        ),
        None,
    )
    if found is None:
        return finding
    remedy = f"ask for what LimitRange {found.name} allows, or have it changed (kubectl edit limitrange {found.name})"
    return msgspec.structs.replace(finding, headline=f"{found.title}: {said[0]}", remedy=remedy)
