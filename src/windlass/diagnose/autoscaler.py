"""Why the autoscaler adds no node for a waiting pod: events and status of cluster-autoscaler and Karpenter.

Called by `root_causes` and `why` if no existing node takes the pod. A missing event proves nothing: cluster-autoscaler
writes none while another scale-up runs.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import ClusterObject, Event, Evidence, once_per_evidence
from windlass.diagnose.explanations import FIXED_BY_NEW_NODE
from windlass.diagnose.finding import Finding
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.unstructured import find_condition, nested_maps, nested_string
from windlass.model.times import format_duration, parse_timestamp

COUNTED = re.compile(r"(\d+) ([^,;]+)")
AT_MAXIMUM = re.compile(
    r"max(imum)? (total )?(node ?|nodes )?(group|pool|cluster)?( ?size| \w+ limit| ?in cluster)?( is| was)? reached"
    r"|max cluster (cpu|memory|gpu) limit"
    r"|(at|reached|exceed\w*) (its |the |their )?max(imum)?\b.{0,20}(size|nodes|count|limit)",
    re.I,
)
NODE_POOL = re.compile(r"nodepool(?:: ?| |=)\"?([a-z0-9][\w.-]*)", re.I)
OVER_LIMITS = re.compile(r"exceed(s|ed)? limits? for nodepool|limits? (exceeded|reached).{0,40}nodepool", re.I)
NO_CAPACITY = re.compile(
    r"in backoff after failed scale-up|OUT_OF_RESOURCES|QUOTA_EXCEEDED|insufficient ?(instance)? ?capacity"
    r"|stockout|out of (resource|capacity)"
    r"|ZONE_RESOURCE_POOL|quota.{0,30}exceeded|exceeded.{0,30}quota|could not launch|no capacity|scale-up failed"
    r"|ScaleUpTimedOut|capacity-?block|limit ?exceeded|LaunchFailed|failed launching|launch(ing)? .{0,40}failed"
    r"|Allocation ?Failed|SkuNotAvailable|Overconstrained\w*Request|(not|n't) have (enough|sufficient) capacity"
    r"|\w*CountExceeded|UnfulfillableCapacity|out of host capacity|IP_SPACE_EXHAUSTED|RESOURCE_POOL_EXHAUSTED",
    re.I,
)
AUTOSCALERS = re.compile(r"cluster-autoscaler|karpenter")
NODE_GROUP_FILTER_CODES = (
    ("TAINT_NOT_TOLERATED", re.compile(r"taint", re.I)),
    ("SELECTOR_MISMATCH", re.compile(r"node affinity|selector", re.I)),
    ("CPU_MEM_INSUFFICIENT", re.compile(r"insufficient (cpu|memory)", re.I)),
)
"""Code → filter message of kube-scheduler for the nodes of a group's template."""
NO_MATCHING_GROUP = re.compile(
    r"incompatible with nodepool|no nodepools? found|no instance type|wouldn.t fit if a new node", re.I
)


def autoscaler_finding(evidence: Evidence, pod: ClusterObject, device: str, has_device: bool) -> Finding | None:
    """Why the autoscaler adds no node for the pod; None if it reports nothing, or is adding one.

    `has_device`: whether some node has the device, so that a group of such nodes is known to work.
    """
    events = evidence.events_of(pod)
    finding = next(
        (found for event in reversed(events) if (found := _of_event(event, device, has_device)) is not None),
        None,
    )
    failed = _provider_failed(evidence) if events or _is_known(evidence, pod) else None
    if finding is None or (failed is not None and finding.code == "AUTOSCALER_NO_MATCHING_GROUP"):
        return failed or finding
    return finding


def other_reason(evidence: Evidence, pod: ClusterObject) -> str:
    """That the autoscaler has looked for a node for the pod, and does not speak of taints; empty if it has not.

    A tainted node that has room is then rather one that others have for themselves.
    """
    found = autoscaler_finding(evidence, pod, "", False)
    said = found.evidence[0] if found is not None and found.evidence else ""
    return f"its autoscaler says something else: {said}" if said and "tolerat" not in said else ""


def capacity_code(text: str) -> str:
    """What a message about nodes that were asked for and do not come shows; empty if it shows neither."""
    if AT_MAXIMUM.search(text) or OVER_LIMITS.search(text):
        return "AUTOSCALER_MAX_SIZE"
    return "CLOUD_CAPACITY" if NO_CAPACITY.search(text) else ""


def coming_node_finding(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """A node that the autoscaler is adding for the pod, or whose machine was started and has not joined the cluster."""
    events = [event for event in evidence.events_of(pod) if event.reason in ASKED_FOR]
    if not events:
        return None
    last, age = events[-1], now - parse_timestamp(events[-1].last) if events[-1].last else JOINS_WITHIN
    proof = (f"{last.source or 'autoscaler'}: {last.message}",)
    for claim in evidence.of_kind("NodeClaim"):
        is_registered = nested_string(find_condition(claim.data, "Registered"), "status") == "True"
        if claim.name in last.message and not is_registered and age >= JOINS_WITHIN:
            message = f"the machine of {claim.title} was asked for {format_duration(age)} ago and has not joined"
            remedy = f"see its conditions and its kubelet's log: kubectl describe nodeclaim {claim.name}"
            return Finding("NODE_UNSCHEDULABLE", message, proof, remedy=remedy, explains=REMOVED)
    if age >= JOINS_WITHIN:
        return None
    message = f"the autoscaler began to add a node for it {format_duration(age)} ago"
    remedy = "wait until the node has joined and advertises its GPUs"
    return Finding("GPU_NOT_YET_ADVERTISED", message, proof, remedy=remedy, explains=REMOVED)


REMOVED = tuple(code for code in FIXED_BY_NEW_NODE if code != "NODE_UNSCHEDULABLE")
JOINS_WITHIN = 900
"""Seconds within which a started machine should have joined; Karpenter gives it up then."""


def has_triggered(evidence: Evidence, pod: ClusterObject) -> bool:
    """Whether an autoscaler has asked for a node for the pod: it has tried it on one of that kind."""
    return any(event.reason in ASKED_FOR for event in evidence.events_of(pod))


ASKED_FOR = ("TriggeredScaleUp", "Nominated")


def is_silent(evidence: Evidence, pod: ClusterObject) -> bool:
    """Whether an autoscaler runs here and does not say what became of a node for the pod."""
    if has_triggered(evidence, pod):
        return True
    said = any(
        AUTOSCALERS.search(event.source) or event.reason == "NotTriggerScaleUp" for event in evidence.events_of(pod)
    )
    return not said and _has_autoscaler(evidence)


@once_per_evidence
def _has_autoscaler(evidence: Evidence) -> bool:
    return (
        any(evidence.of_kind(kind) for kind in ("NodePool", "NodeClaim"))
        or any(AUTOSCALERS.search(pod.name) for pod in evidence.of_kind("Pod"))
        or any(item.name == "cluster-autoscaler-status" for item in evidence.of_kind("ConfigMap"))
    )


def loop_failure(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """The last attempt in an autoscaler's log to find a node for the pod ended in an error of its own."""
    for other in evidence.logged_pods:
        lines = (
            [line for log in evidence.logs_of(other) for line in log.lines] if AUTOSCALERS.search(other.name) else []
        )
        named = [place for place, line in enumerate(lines) if f"{pod.namespace}/{pod.name}" in line]
        errors = [found for line in lines[named[-1] :] if (found := FAILED_LOOP.search(line))] if named else []
        if errors:
            message = f"the autoscaler fails before it has looked for a node for it: {errors[-1][1].strip()}"
            proof = (f"log of {other.title}: {errors[-1].string.strip()[:200]}",)
            remedy = "mend what its error names; until then it adds no node of any kind"
            return Finding("AUTOSCALER_NO_MATCHING_GROUP", message, proof, remedy=remedy)
    return None


FAILED_LOOP = re.compile(r"^E.*\bfailed to scale up: (.+)", re.I)


def _is_known(evidence: Evidence, pod: ClusterObject) -> bool:
    """Whether an autoscaler's log names the pod, so that what failed there was for it."""
    name = f"{pod.namespace}/{pod.name}"
    logs = (log for other in evidence.logged_pods if AUTOSCALERS.search(other.name) for log in evidence.logs_of(other))
    return any(name in line for log in logs for line in log.lines)


def _of_event(event: Event, device: str, has_device: bool) -> Finding | None:
    message = event.message
    proof = (f"{event.source or 'autoscaler'}: {message}",)
    if event.reason in ("FailedToScaleUpGroup", "ScaleUpTimedOut", "FailedScaleUp"):
        return Finding("CLOUD_CAPACITY", f"the autoscaler's scale-up failed: {message}", proof)
    if event.reason == "NotTriggerScaleUp":
        return _not_triggered(message, proof, "" if has_device else device)
    if event.reason == "FailedScheduling" and "karpenter" in event.source.lower() + message.lower():
        if OVER_LIMITS.search(message):
            pools = ", ".join(dict.fromkeys(NODE_POOL.findall(message)))
            said = f"the limits of NodePool {pools} are reached" if pools else "the NodePool's limits are reached"
            return Finding("AUTOSCALER_MAX_SIZE", said, proof)
        if NO_CAPACITY.search(message):
            return Finding("CLOUD_CAPACITY", "", proof)
        if NO_MATCHING_GROUP.search(message):
            return Finding("AUTOSCALER_NO_MATCHING_GROUP", _refusing_pools(message), proof, remedy=POOL_REMEDY)
    return None


POOL_REMEDY = "let a NodePool allow machines that have what the pod asks for, or ask for what they allow"
REQUIREMENTS = re.compile(r"\brequirements ([^()]+?)(?: \(|;|$)")
TAINT_UNTOLERATED = re.compile(r"did not tolerate (?:taint )?(?:\(taint=)?([^\s;)]+)")


def _refusing_pools(message: str) -> str:
    """Which pools Karpenter has tried, and what each allows."""
    parts = re.split(r'nodepool(?:: ?| |=)"?(?=[a-z0-9])', message, flags=re.I)[1:]
    pools: dict[str, str] = {}
    for part in parts:
        name = re.match(r"[\w.-]+", part)
        allowed, taint = REQUIREMENTS.search(part), TAINT_UNTOLERATED.search(part)
        why = (
            f"it allows {allowed[1][:100]}" if allowed is not None else f"taint {taint[1]}" if taint is not None else ""
        )
        if name is not None:
            pools.setdefault(name[0], why)
    listed = "; ".join(f"{name}: {why}" if why else name for name, why in [*pools.items()][:MOST_POOLS])
    return (
        f"no machine that a NodePool allows fits the pod ({listed})" if listed else "no NodePool has matching machines"
    )


MOST_POOLS = 3


def _not_triggered(message: str, proof: tuple[str, ...], device: str) -> Finding | None:
    """The message counts node groups by reason. If no node has the device yet, the groups that lack it are GPU groups
    without a template; otherwise they are CPU groups, and the GPU group has another reason."""
    if "max total nodes in cluster reached" in message:
        return Finding("AUTOSCALER_MAX_SIZE", "the cluster has reached its maximum number of nodes", proof)
    counted = [(int(count), reason.strip()) for count, reason in COUNTED.findall(message.split(": ", 1)[-1])]
    reasons = [reason for _, reason in counted]
    if device and any(reason.startswith(f"Insufficient {device}") for reason in reasons):
        why = f"no node group's template has {device}, so the autoscaler never scales one up for it"
        remedy = "declare GPU, labels and taints in the group's template (node-template tags), or keep one node in it"
        return Finding("AUTOSCALER_NO_MATCHING_GROUP", why, proof, remedy=remedy)
    if full := sum(count for count, reason in counted if "max node group size" in reason):
        said = f"{full} matching node groups are at their maximum size"
        return Finding(
            "AUTOSCALER_MAX_SIZE", said if full > 1 else "the matching node group is at its maximum size", proof
        )
    if pausing := sum(count for count, reason in counted if "backoff" in reason):
        said = f"{pausing} matching node groups failed to scale up and are in backoff"
        alone = "the matching node group failed to scale up and is in backoff"
        return Finding("CLOUD_CAPACITY", said if pausing > 1 else alone, proof)
    if reasons or NO_MATCHING_GROUP.search(message):
        more = [code for code, pattern in NODE_GROUP_FILTER_CODES if any(pattern.search(reason) for reason in reasons)]
        return Finding("AUTOSCALER_NO_MATCHING_GROUP", "", proof, tuple(more))
    return None


def _provider_failed(evidence: Evidence) -> Finding | None:
    """Failed scale-ups in NodeClaims, the autoscaler's status and log, and events of node groups."""
    for claim in evidence.of_kind("NodeClaim"):
        for condition in nested_maps(claim.data, "status", "conditions"):
            message = " ".join(nested_string(condition, field) for field in ("reason", "message"))
            is_refused = NO_CAPACITY.search(message) or NOT_ALLOWED.search(message)
            if nested_string(condition, "status") != "True" and is_refused:
                return _not_launched(f"the machine of {claim.title}", nested_string(condition, "message"), claim.title)
    for item in evidence.of_kind("ConfigMap"):
        if item.name == "cluster-autoscaler-status":
            lines = nested_string(item.data, "data", "status").splitlines()
            failed = [line.strip() for line in lines if NO_CAPACITY.search(line)]
            if failed:
                return _not_launched("a machine of a node group", "; ".join(failed[:2]), item.title)
    for pod in evidence.logged_pods:
        if AUTOSCALERS.search(pod.name):
            failures = [line.strip() for log in evidence.logs_of(pod) for line in log.lines if NO_CAPACITY.search(line)]
            if failures:
                return _not_launched("a machine", failures[-1], f"log of {pod.title}")
    for event in evidence.events:
        if event.kind in ("NodeClaim", "ConfigMap", "MachineSet", "NodePool") and NO_CAPACITY.search(event.message):
            return _not_launched(
                f"the machine of {event.kind} {event.name}", event.message, f"{event.kind} {event.name}"
            )
    return None


NOT_ALLOWED = re.compile(
    r"Unauthorized\w*|AccessDenied|not authorized to perform|lacks? permission|PERMISSION_DENIED", re.I
)


def _not_launched(what: str, said: str, speaker: str) -> Finding:
    """The provider's own words; what is not allowed is no lack of machines."""
    proof = (f"{speaker}: {said[:200]}",)
    if NOT_ALLOWED.search(said):
        message = f"the cloud provider refuses {what}, since the autoscaler may not start it: {innermost(said)[:200]}"
        return Finding("CLOUD_CAPACITY", message, proof, remedy="grant the autoscaler's role what the message names")
    return Finding("CLOUD_CAPACITY", f"the cloud provider does not start {what}: {innermost(said)[:200]}", proof)
