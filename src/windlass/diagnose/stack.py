"""Why a node that has GPUs does not offer them: labels, DaemonSets, the stack's pods and logs, the host's logs.

`why` asks it about a pod's own node, or about the GPU nodes of a cluster where nobody advertises what is asked for.
That a pod of the stack is Running is no evidence of health; what it wrote and what the node advertises is.
"""

from __future__ import annotations

from windlass.diagnose import nodes, signs, tree
from windlass.diagnose.evidence import Evidence, Item, LogLines
from windlass.diagnose.finding import Finding, Missing
from windlass.diagnose.parts import COMPONENTS, failing_parts, gpu_nodes, stack_pods
from windlass.diagnose.shared_config import sharing_findings
from windlass.diagnose.signs import Sighting
from windlass.diagnose.smi import with_sentences
from windlass.diagnose.subject import template_pods
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.taints import LIFECYCLE_TAINTS
from windlass.model.times import seconds_of

YOUNG = 600
"""Seconds for which a node without GPUs is merely new."""

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
    """What is wrong with the node's GPU stack, the deepest cause first. Nothing, where nothing shows."""
    found: list[Finding] = []
    down = nodes.is_down(node)
    if down:
        found.append(Finding("NODE_UNSCHEDULABLE", f"GPU node {node.name} is {down}"))
    found += label_findings(node)
    found += _by_logs(evidence, node)
    found += sharing_findings(evidence, node, resource)
    if not nodes.gpu_resources(node):
        found += failing_parts(evidence, node.name)
        found += _by_plugin(evidence, node, now)
    return found


def label_findings(node: Node) -> list[Finding]:
    """Work on the node that its labels tell of: MIG layouts and driver upgrades that are under way or stuck."""
    labels = node.labels
    state = labels.get("nvidia.com/mig.config.state", "")
    paused = sorted(
        {
            value
            for key, value in labels.items()
            if key.startswith("nvidia.com/gpu.deploy.") and "paused" in value
        }
    )
    upgrade = labels.get("nvidia.com/gpu-driver-upgrade-state", "")
    found = []
    if state in ("failed", "pending", "rebooting") or any("mig" in value for value in paused):
        layout = labels.get("nvidia.com/mig.config", "?")
        said = f"MIG layout {layout} of node {node.name} is in state {state or 'paused'}"
        found.append(Finding("MIG_CONFIG_NOT_APPLIED", said, tuple(paused)))
    if upgrade in UPGRADING or any("driver" in value for value in paused):
        said = f"the driver upgrade of node {node.name} is in state {upgrade or 'paused'}"
        found.append(Finding("DRIVER_UPGRADE_BLOCKED", said))
    return found


def _by_logs(evidence: Evidence, node: Node) -> list[Finding]:
    found: list[Finding] = []
    sightings = signs.look(host_lines(evidence, node.name), signs.HOST)
    sightings += signs.look(stack_logs(evidence, node.name), signs.STACK)
    for seen in sightings:
        if seen.code not in [one.code for one in found]:
            found.append(sighting_finding(seen))
    found.sort(key=lambda one: DEEPEST.index(one.code) if one.code in DEEPEST else len(DEEPEST))
    return found


DEEPEST = (
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
"""Where several things are wrong with a node, the lower one is the cause of the others."""


def host_lines(evidence: Evidence, node: str) -> list[LogLines]:
    """The host's own logs, and what detectors on it have said of the node."""
    item = evidence.get("Node", "", node)
    said = [event.message for event in evidence.events_of(item)] if item is not None else []
    events = [LogLines(f"events of node {node}", said)] if said else []
    return [*with_sentences(evidence.host_logs(node)), *events]


def stack_logs(evidence: Evidence, node: str) -> list[LogLines]:
    """What the stack's pods on the node wrote, and what their containers' last words were."""
    logs: list[LogLines] = []
    for component, pod in stack_pods(evidence, node):
        if component == "exporter":
            continue
        logs += evidence.logs_of(pod)
        logs += status_words(evidence, pod)
    return logs


def status_words(evidence: Evidence, pod: Item) -> list[LogLines]:
    """Messages of a pod's own status and events, as lines."""
    lines = [tree.text(pod.data, "status", "message"), tree.text(pod.data, "status", "reason")]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in tree.rows(pod.data, "status", kind):
            for moment in ("state", "lastState"):
                for state in tree.table(status, moment).values():
                    lines += [tree.text(state, "message"), tree.text(state, "reason")]
    lines += [event.message for event in evidence.events_of(pod)]
    return [
        LogLines(f"status of {pod.title}", [line for text in lines if text for line in text.splitlines()])
    ]


def sighting_finding(seen: Sighting) -> Finding:
    return Finding(seen.code, "", (f"{seen.origin}: {_cut(seen.line)}",))


def _cut(line: str) -> str:
    return line if len(line) <= 200 else line[:197] + "..."


# The plugin itself


def _by_plugin(evidence: Evidence, node: Node, now: int) -> list[Finding]:
    plugins = [pod for component, pod in stack_pods(evidence, node.name) if component == "device plugin"]
    running = [pod for pod in plugins if tree.text(pod.data, "status", "phase") not in ("Succeeded",)]
    age = now - seconds_of(node.metadata.creation_timestamp) if node.metadata.creation_timestamp else None
    if running:
        if age is not None and 0 <= age < YOUNG and not any(_restarts(pod) for pod in running):
            return [
                Finding(
                    "GPU_NOT_YET_ADVERTISED",
                    f"node {node.name} is {age} s old; its device plugin is starting",
                )
            ]
        return [_failing(evidence, node, running[0])]
    sets = [one for one in evidence.of_kind("DaemonSet") if COMPONENTS["device plugin"].search(one.name)]
    if not sets and not evidence.knows("DaemonSet") and not evidence.knows("Pod"):
        return []
    if age is not None and 0 <= age < YOUNG and sets and kept_off(sets[0], node) == "":
        return [
            Finding(
                "GPU_NOT_YET_ADVERTISED",
                f"node {node.name} is {age} s old; its device plugin has not started",
            )
        ]
    return [absent(evidence, node, sets)]


def _restarts(pod: Item) -> int:
    return sum(
        tree.number(status, "restartCount") for status in tree.rows(pod.data, "status", "containerStatuses")
    )


def _failing(evidence: Evidence, node: Node, pod: Item) -> Finding:
    restarts = _restarts(pod)
    said = f"the device plugin {pod.name} is on node {node.name}"
    said += f" and has restarted {restarts} times" if restarts else ", but has advertised no GPU"
    missing: tuple[Missing, ...] = ()
    if not evidence.logs_of(pod):
        missing = (Missing("the device plugin's log", f"kubectl logs -n {pod.namespace} {pod.name}"),)
    return Finding("DEVICE_PLUGIN_FAILING", said, missing=missing)


def absent(evidence: Evidence, node: Node, sets: list[Item]) -> Finding:
    operators = [pod for part, pod in stack_pods(evidence) if part == "operator" and not sets]
    for seen in signs.look([log for pod in operators for log in evidence.logs_of(pod)], signs.STACK):
        return sighting_finding(seen)
    if not sets:
        return Finding("DEVICE_PLUGIN_ABSENT", f"no device plugin is installed for GPU node {node.name}")
    plugin = sets[0]
    why = kept_off(plugin, node)
    desired = tree.number(plugin.data, "status", "desiredNumberScheduled")
    said = f"DaemonSet {plugin.name} ({desired} pods wanted) has no pod on GPU node {node.name}"
    contributing: list[str] = []
    if why.startswith("label"):
        contributing = ["GFD_LABELS_MISSING", *_blocked_discovery(evidence, node)]
    elif why.startswith("taint"):
        contributing = ["TAINT_NOT_TOLERATED"]
    return Finding("DEVICE_PLUGIN_ABSENT", f"{said}{f': {why}' if why else ''}", (), tuple(contributing))


def _blocked_discovery(evidence: Evidence, node: Node) -> list[str]:
    """The label is missing because the pod that sets labels can't run there."""
    for one in evidence.of_kind("DaemonSet"):
        if COMPONENTS["node feature discovery"].search(one.name) and kept_off(one, node).startswith("taint"):
            return ["TAINT_NOT_TOLERATED"]
    return []


def kept_off(daemon: Item, node: Node) -> str:
    """Why a DaemonSet has no pod on the node; empty where it should have one."""
    pods, _ = template_pods(daemon)
    if not pods:
        return ""
    pod = pods[0]
    misses = nodes.selector_misses(node, pod)
    if misses:
        return f"label {misses[0]}"
    taints = [one for one in nodes.blocking_taints(node, pod) if one.key not in LIFECYCLE_TAINTS]
    return f"taint {nodes.taint_words(taints[0])} is not tolerated" if taints else ""


def labels_missing(evidence: Evidence, pod: Pod) -> Finding | None:
    """A selector on a label that feature discovery should have set, on a GPU node that hasn't got it."""
    keys = [*pod.spec.node_selector, *(key for key, _, _ in nodes.required_labels(pod))]
    discovered = [key for key in keys if key.startswith(("nvidia.com/", "feature.node.kubernetes.io/"))]
    for node in gpu_nodes(evidence):
        absent = [key for key in discovered if key not in node.labels]
        if absent and nodes.gpu_resources(node):
            said = f"GPU node {node.name} lacks the label {absent[0]}, which the pod selects by"
            logs = [
                line
                for part, one in stack_pods(evidence, node.name)
                if "discovery" in part
                for line in _last(evidence, one)
            ]
            return Finding("GFD_LABELS_MISSING", said, tuple(logs))
    return None


def _last(evidence: Evidence, pod: Item) -> list[str]:
    return [f"{log.origin}: {_cut(log.lines[-1])}" for log in evidence.logs_of(pod) if log.lines]
