"""Why a GPU node does not advertise its GPUs: labels, DaemonSets, pods and logs of the GPU stack, host logs.

Called for a pod's node (`pod_startup`), for the GPU nodes of the cluster (`root_causes`) and by `doctor`. A Running pod
of the stack is no evidence of health; its log and what the node advertises are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from windlass.diagnose import log_patterns, nodes
from windlass.diagnose.contradictions import current_events, current_logs, is_ready, refutation, started, unhealed
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.fit import capacity_and_allocatable
from windlass.diagnose.hypothesis import Hypothesis, conclude
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch, match_finding
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.node_words import down_words, ready_condition
from windlass.diagnose.nvidia_smi import annotate_nvidia_smi_logs
from windlass.diagnose.promised_devices import promised_instances, sharing_findings
from windlass.diagnose.reports import complaints
from windlass.diagnose.stack_components import (
    COMPONENTS,
    FAILURE_CODES,
    component_of,
    container_failure,
    failing_components,
    gpu_nodes,
    stack_pods,
)
from windlass.diagnose.stack_waits import waiting_components
from windlass.diagnose.unstructured import find_condition, nested_int, nested_map, nested_maps, nested_string
from windlass.diagnose.workload_faults import daemonset_exclusion, discovery_faults, unworking_discovery, workload_fault
from windlass.model.names.nvidia import (
    DEPLOY_LABEL_PREFIX,
    MIG_CONFIG_LABEL,
    MIG_CONFIG_STATE_LABEL,
    NVIDIA_PREFIX,
)
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp

NEW_NODE_SECONDS = 600
"""Age in seconds up to which a node without advertised GPUs counts as new."""

UPGRADING = (
    "upgrade-required",
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
    "pod-restart-required",
    "validation-required",
    "uncordon-required",
    "upgrade-failed",
)


def node_findings(evidence: Evidence, node: Node, now: int, resource: str) -> list[Finding]:
    """Faults of the node's GPU stack, the deepest cause first."""
    found: list[Finding] = []
    down = nodes.unschedulable_reason(node)
    if down:
        said = down_words(evidence, node)
        message = f"GPU node {node.name} is {down}"
        found.append(Finding("NODE_UNSCHEDULABLE", message, said, remedy=nodes.down_remedy(node)))
    found += label_findings(evidence, node)
    found += _by_logs(evidence, node)
    found += sharing_findings(evidence, node, resource)
    if not nodes.gpu_resources(node):
        found += failing_components(evidence, node.name) or waiting_components(evidence, node.name, now)
        found += _by_plugin(evidence, node, now)
        found += [fault for finding in found for fault in _behind_component(evidence, node, finding.code, now)]
        if {finding.code for finding in found} & {"DEVICE_PLUGIN_ABSENT", "GFD_LABELS_MISSING"}:
            found += discovery_faults(evidence, now, node.name)
    elif any(finding.code == "MIG_CONFIG_NOT_APPLIED" for finding in found):
        found += _behind_component(evidence, node, "MIG_CONFIG_NOT_APPLIED", now)
    return found


def lost_plugin_findings(evidence: Evidence, node: Node, now: int) -> list[Finding]:
    """Why no device plugin works on a node whose GPUs are all not allocatable: gone with it, they are not unhealthy.

    The kubelet keeps them in capacity for some minutes after the plugin has ended.
    """
    _, allocatable = capacity_and_allocatable(node)
    is_lost = not any(allocatable.get(name, 0) for name in nodes.gpu_resources(node))
    plugins = [pod for component, pod in stack_pods(evidence, node.name) if component == "device plugin"]
    is_known = evidence.has_kind("DaemonSet") or any(part == "device plugin" for part, _ in stack_pods(evidence))
    if not is_lost or not is_known or any(not container_failure(pod) for pod in plugins):
        return []
    if plugins and any(sharing_findings(evidence, node, name) for name in nodes.gpu_resources(node)):
        return []  # the configuration that it can't apply is why it fails
    found = [
        *label_findings(evidence, node),
        *failing_components(evidence, node.name),
        *_by_plugin(evidence, node, now),
    ]
    return [*found, *(fault for seen in found for fault in _behind_component(evidence, node, seen.code, now))]


def _behind_component(evidence: Evidence, node: Node, code: str, now: int) -> list[Finding]:
    """Why the component whose failure has this code does not run on the node: any cause that a workload may have."""
    components = [part for part, failure in COMPONENT_CODES.items() if code in failure]
    for owner in evidence.of_kind("DaemonSet"):
        if component_of(owner) in components and not daemonset_exclusion(owner, node):
            fault = workload_fault(evidence, owner, now, node.name)
            if fault is not None and fault.code not in DEPTH_ORDER:
                message = f"{owner.title} has no working pod on node {node.name}: {fault.message}"
                return [msgspec.structs.replace(fault, headline=message, explains=(code,))]
    return []


def node_cause(evidence: Evidence, node: Node, now: int, more: Sequence[Finding] = ()) -> Finding | None:
    """The deepest fault of the node, or of `more`, that nothing rules out."""
    found = (*node_findings(evidence, node, now, ""), *more)
    faults = [fault for fault in found if not refutation(evidence, fault, node)]
    if not faults:
        return None
    cause = conclude(faults[0], [Hypothesis(fault) for fault in faults[1:]]).cause
    return msgspec.structs.replace(cause, headline=cause.headline or f"on node {node.name}, {cause.message}")


def layer_below_finding(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """The fault of its node for which a component of the stack waits; None if it is none, or if its own is all."""
    component, node = component_of(pod), evidence.nodes.get(nested_string(pod.data, "spec", "nodeName"))
    if not component or node is None:
        return None
    cause = node_cause(evidence, node, now)
    if cause is None or cause.code in (*COMPONENT_CODES.get(component, ()), *PLUGIN_CODES, "NODE_UNSCHEDULABLE"):
        return None
    waits = f"{pod.title} has not started, and waits for the layer below it"
    return msgspec.structs.replace(cause, evidence=(waits, *cause.evidence))


PLUGIN_CODES = ("DEVICE_PLUGIN_ABSENT", "DEVICE_PLUGIN_FAILING")
COMPONENT_CODES = {
    **{component: (code,) for component, code in FAILURE_CODES.items()},
    "device plugin": PLUGIN_CODES,
}
"""Component → codes of its failure."""


def label_findings(evidence: Evidence, node: Node) -> list[Finding]:
    """MIG layouts and driver upgrades that the node's labels show as pending or failed."""
    labels = node.labels
    state = labels.get(MIG_CONFIG_STATE_LABEL, "")
    paused = sorted(
        {value for key, value in labels.items() if key.startswith(DEPLOY_LABEL_PREFIX) and "paused" in value}
    )
    upgrade = labels.get("nvidia.com/gpu-driver-upgrade-state", "")
    found = []
    if state in ("failed", "pending", "rebooting") or any("mig" in value for value in paused):
        layout = labels.get(MIG_CONFIG_LABEL, "?")
        message = f"MIG layout {layout} of node {node.name} is in state {state}"
        if state not in ("failed", "pending", "rebooting"):
            message = (
                f"MIG layout {layout} of node {node.name} is being applied: the operator has paused its components"
            )
        found.append(Finding("MIG_CONFIG_NOT_APPLIED", message, tuple(paused)))
    elif promised := promised_instances(node):
        found.append(_layout_missing(evidence, node, next(iter(promised))))
    if upgrade in UPGRADING or (any("driver" in value for value in paused) and not _lacks_driver_pod(evidence, node)):
        message = f"the driver upgrade of node {node.name} is in state {upgrade}"
        if not upgrade:
            message = f"the driver of node {node.name} is being upgraded: the operator has paused its components"
        has_driver = any(component == "driver" for component, _ in stack_pods(evidence, node.name))
        wanted = MissingEvidence(
            "the driver's pod on the node", f"kubectl get pods -A --field-selector spec.nodeName={node.name}"
        )
        found.append(Finding("DRIVER_UPGRADE_BLOCKED", message, missing=() if upgrade or has_driver else (wanted,)))
    return found


def _layout_missing(evidence: Evidence, node: Node, resource: str) -> Finding:
    """The label asks for a layout that the node does not have, and nothing is at work on it."""
    message = f"node {node.name} is labelled with MIG layout {node.labels[MIG_CONFIG_LABEL]}, but has no {resource}"
    for manager in evidence.of_kind("DaemonSet"):
        why = daemonset_exclusion(manager, node) if component_of(manager) == "MIG manager" else ""
        if why:
            message += f"; the MIG manager does not run there: {why}"
    return Finding("MIG_CONFIG_NOT_APPLIED", message)


def _lacks_driver_pod(evidence: Evidence, node: Node) -> bool:
    """Whether the node has no driver that could be upgraded: then the labels are left over."""
    drivers = [daemon for daemon in evidence.of_kind("DaemonSet") if component_of(daemon) == "driver"]
    running = any(component == "driver" for component, _ in stack_pods(evidence, node.name))
    sightings = log_patterns.find_matches(evidence.host_logs(node.name), log_patterns.HOST)
    return not running and (bool(drivers) or any(seen.code == "DRIVER_MISSING" for seen in sightings))


def _by_logs(evidence: Evidence, node: Node) -> list[Finding]:
    found: list[Finding] = []
    sightings = log_patterns.find_matches(host_log_lines(evidence, node.name), log_patterns.HOST)
    sightings += log_patterns.find_matches(stack_logs(evidence, node.name), log_patterns.STACK)
    for seen in sightings:
        known = [finding for finding in found if finding.code == seen.code]
        if not known or seen.explains:  # a line that says what it leads to says more than the host's
            found = [finding for finding in found if finding not in known] + [_component_finding(seen)]
    found.sort(key=lambda finding: DEPTH_ORDER.index(finding.code) if finding.code in DEPTH_ORDER else len(DEPTH_ORDER))
    return found


def _component_finding(seen: PatternMatch) -> Finding:
    """What a line shows; a component of the stack that is denied something is no container of the user."""
    found = match_finding(seen)
    if seen.code != "DEVICE_PERMISSION" or seen.remedy or not seen.origin.startswith("pod "):
        return found
    message = f"{seen.origin} is denied what it needs: {innermost(seen.line)}"
    return msgspec.structs.replace(found, headline=message, remedy=DENIED_REMEDY)


DEPTH_ORDER = (
    "GPU_HW_FAULT",
    "DRIVER_LIB_MISMATCH",
    "DRIVER_UPGRADE_BLOCKED",
    "DRIVER_MISSING",
    "FABRIC_NOT_READY",
    "MIG_CONFIG_NOT_APPLIED",
    "MPS_NOT_READY",
    "DEVICE_PERMISSION",
    "RUNTIME_NOT_CONFIGURED",
)
"""Deepest layer first: its fault causes the faults of the layers above."""


def host_log_lines(evidence: Evidence, node: str) -> list[LogLines]:
    """The host's logs, messages of the Node's events (node-problem-detector), and why it is not ready."""
    item = evidence.get("Node", "", node)
    messages = [event.message for event in unhealed(evidence.events_of(item))] if item is not None else []
    events = [LogLines(f"events of node {node}", messages)] if messages else []
    return [*annotate_nvidia_smi_logs(evidence.host_logs(node)), *events, *ready_condition(evidence, node)]


def down_findings(evidence: Evidence, node: Node) -> list[Finding]:
    """What its host says about why the node takes no pods."""
    seen = log_patterns.find_matches(host_log_lines(evidence, node.name), log_patterns.HOST)
    return [match_finding(match) for match in seen if "NODE_UNSCHEDULABLE" in match.explains]


def stack_logs(evidence: Evidence, node: str) -> list[LogLines]:
    """Logs and status messages of the stack's pods on the node, without the exporter.

    A pod that was started before the driver or the toolkit was ready says what was then, not what is.
    """
    logs: list[LogLines] = []
    for component, pod in stack_pods(evidence, node):
        if component == "exporter" or late_foundation(evidence, node, pod) is not None:
            continue
        logs += current_logs(evidence, pod)
        logs += pod_status_lines(evidence, pod)
    return logs


def pod_status_lines(evidence: Evidence, pod: ClusterObject) -> list[LogLines]:
    """Messages of the pod's status, container states and events; of a ready pod, no earlier ones."""
    moments = ("state",) if is_ready(pod) else ("state", "lastState")
    lines = [nested_string(pod.data, "status", "message"), nested_string(pod.data, "status", "reason")]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in nested_maps(pod.data, "status", kind):
            for moment in moments:
                for state in nested_map(status, moment).values():
                    lines += [nested_string(state, "message"), nested_string(state, "reason")]
    lines += [event.message for event in current_events(evidence, pod)]
    return [LogLines(f"status of {pod.title}", [line for text in lines if text for line in text.splitlines()])]


def late_foundation(evidence: Evidence, node: str, pod: ClusterObject) -> ClusterObject | None:
    """The node's driver or toolkit pod that became ready only after the device plugin's pod was started."""
    if component_of(pod) != "device plugin" or not is_ready(pod):
        return None
    since = started(pod)
    for component, other in stack_pods(evidence, node):
        ready = find_condition(other.data, "Ready")
        is_late = since and nested_string(ready, "lastTransitionTime") > since
        if component in ("driver", "toolkit") and is_late and nested_string(ready, "status") == "True":
            return other
    return None


# The device plugin


def _by_plugin(evidence: Evidence, node: Node, now: int) -> list[Finding]:
    plugins = [pod for component, pod in stack_pods(evidence, node.name) if component == "device plugin"]
    running = [pod for pod in plugins if nested_string(pod.data, "status", "phase") not in ("Succeeded",)]
    age = now - parse_timestamp(node.metadata.creation_timestamp) if node.metadata.creation_timestamp else None
    if running:
        if age is not None and 0 <= age < NEW_NODE_SECONDS and not any(_restarts(pod) for pod in running):
            return [
                Finding(
                    "GPU_NOT_YET_ADVERTISED",
                    f"node {node.name} is {age} s old; its device plugin {running[0].name} is starting",
                )
            ]
        return [_failing(evidence, node, running[0])]
    sets = [daemonset for daemonset in evidence.of_kind("DaemonSet") if component_of(daemonset) == "device plugin"]
    if not sets and not evidence.has_kind("DaemonSet") and not evidence.has_kind("Pod"):
        return []
    if age is not None and 0 <= age < NEW_NODE_SECONDS and sets and daemonset_exclusion(sets[0], node) == "":
        return [
            Finding(
                "GPU_NOT_YET_ADVERTISED",
                f"node {node.name} is {age} s old; its device plugin has not started",
            )
        ]
    return [plugin_absent_finding(evidence, node, sets)]


def _restarts(pod: ClusterObject) -> int:
    return sum(nested_int(status, "restartCount") for status in nested_maps(pod.data, "status", "containerStatuses"))


def _failing(evidence: Evidence, node: Node, pod: ClusterObject) -> Finding:
    restarts = _restarts(pod)
    message = f"the device plugin {pod.name} is on node {node.name}"
    message += f" and has restarted {restarts} times" if restarts else ", but has advertised no GPU"
    late = late_foundation(evidence, node.name, pod)
    if late is not None:
        message += f": it started before {late.name} was ready and has not checked again"
        return Finding(
            "DEVICE_PLUGIN_FAILING", message, remedy=f"delete pod {pod.name}; its DaemonSet creates it again"
        )
    unread = MissingEvidence("the device plugin's log", f"kubectl logs -n {pod.namespace} {pod.name}")
    last = complaints(evidence, pod)[-1:] if restarts else ()
    if last and DENIED.search(last[0]):
        return Finding("DEVICE_PERMISSION", f"{message}: it is denied what it needs", last, remedy=DENIED_REMEDY)
    message += f": {innermost(_line_of(last[0]))}" if last else ""
    is_told = bool(last) or (not restarts and bool(evidence.logs_of(pod)))
    return Finding("DEVICE_PLUGIN_FAILING", message, last, missing=() if is_told else (unread,))


def _line_of(quote: str) -> str:
    """The line of a log, without where it stands."""
    return quote.partition("): ")[2] or quote


DENIED = re.compile(r": permission denied\b", re.I)
DENIED_REMEDY = (
    "see the denials in the host's audit log (SELinux); load the vendor's policy there, or run that container "
    "privileged"
)


def plugin_absent_finding(evidence: Evidence, node: Node, sets: list[ClusterObject]) -> Finding:
    operators = [pod for part, pod in stack_pods(evidence) if part == "operator" and not sets]
    logs = [log for pod in operators for log in evidence.logs_of(pod)]
    for source in (log_patterns.API, log_patterns.STACK):  # the operator may be refused its DaemonSets
        for seen in log_patterns.find_matches(logs, source):
            return match_finding(seen)
    if not sets:
        unread = MissingEvidence("the DaemonSets", "kubectl get daemonsets -A -o json")
        message = f"no device plugin is installed for GPU node {node.name}"
        missing = () if evidence.has_kind("DaemonSet") else (unread,)
        if (owner := unworking_discovery(evidence)) is not None:
            command = f"kubectl describe {owner.kind.lower()} -n {owner.namespace} {owner.name}"
            missing = (MissingEvidence(f"why {owner.title} has no ready pod", command),)
        remedy = "install NVIDIA's device plugin or GPU operator, or whichever serves this node"
        return Finding("DEVICE_PLUGIN_ABSENT", message, remedy=remedy, missing=missing)
    plugin = sets[0]
    why = daemonset_exclusion(plugin, node)
    desired = nested_int(plugin.data, "status", "desiredNumberScheduled")
    message = f"DaemonSet {plugin.name} ({desired} pods wanted) has no pod on GPU node {node.name}"
    contributing: list[str] = []
    if why.startswith("label"):
        contributing = ["GFD_LABELS_MISSING", *_blocked_discovery(evidence, node)]
    elif why.startswith("taint"):
        contributing = ["TAINT_NOT_TOLERATED"]
    command = f"kubectl describe daemonset -n {plugin.namespace} {plugin.name}"
    unsaid = () if why else (MissingEvidence("why the DaemonSet has no pod there", command),)
    said = f"{message}: {why or f'see {command}'}"
    return Finding("DEVICE_PLUGIN_ABSENT", said, (), tuple(contributing), missing=unsaid)


def _blocked_discovery(evidence: Evidence, node: Node) -> list[str]:
    """Whether the label is missing because a taint keeps node feature discovery off the node."""
    for daemonset in evidence.of_kind("DaemonSet"):
        if COMPONENTS["node feature discovery"].search(daemonset.name) and daemonset_exclusion(
            daemonset, node
        ).startswith("taint"):
            return ["TAINT_NOT_TOLERATED"]
    return []


def missing_labels_finding(evidence: Evidence, pod: Pod) -> Finding | None:
    """A label of the pod's selector that feature discovery should have set on a GPU node, and has not."""
    keys = [*pod.spec.node_selector, *(key for key, _, _ in nodes.required_labels(pod))]
    discovered = [key for key in keys if key.startswith((NVIDIA_PREFIX, "feature.node.kubernetes.io/"))]
    for node in gpu_nodes(evidence):
        absent = [key for key in discovered if key not in node.labels]
        if absent and nodes.gpu_resources(node):
            message = f"GPU node {node.name} lacks the label {absent[0]}, which the pod selects by"
            logs = [
                line
                for part, stack_pod in stack_pods(evidence, node.name)
                if "discovery" in part
                for line in _last(evidence, stack_pod)
            ]
            return Finding("GFD_LABELS_MISSING", message, tuple(logs))
    return None


def _last(evidence: Evidence, pod: ClusterObject) -> list[str]:
    return [f"{log.origin}: {log.lines[-1][:LONG_LINE]}" for log in evidence.logs_of(pod) if log.lines]
