"""The driver step of a node's bring-up: brought by the host, a cloud, our driver container, or by NVIDIA's operator as
a FleetChange drives it.

Called by `decide.steps`. Of a driver that NVIDIA's operator brings, what counts is what that operator has done: to
which NVIDIADriver the node belongs, that none of its parts is paused any more, that one driver pod is ready, and the
version that its feature discovery reports.
"""

from __future__ import annotations

import re

import msgspec

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL
from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX
from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.operator.decide.gpu_operator import NVIDIA_OWNER_LABEL, nvidia_driver_name
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL, Found, NodeFacts, first_choice_blocked
from windlass.operator.decide.owners import GPU_OPERATOR, HOST, is_our_driver_pod
from windlass.operator.kinds.reasons import Reason
from windlass.operator.pods import PodView

NVIDIA_DRIVER_COMPONENT = "nvidia-driver"
_DRIVER_WORDS = (
    (Reason.KernelHeadersMissing, re.compile(r"Could not resolve Linux kernel version|linux-headers|kernel-devel")),
    (Reason.ModuleRejected, re.compile(r"Key was rejected by service|unsigned module is rejected|Operation not perm")),
    (Reason.NouveauLoaded, re.compile(r"nouveau")),
    (Reason.DriverInUse, re.compile(r"driver is in use|Could not unload NVIDIA driver")),
)
"""What the driver container's last words mean."""
_PULL_PROBLEMS = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")


def wanted_driver(facts: NodeFacts) -> str:
    """The driver version that this node shall run from a container; empty if the driver is not ours to choose."""
    driver = facts.stack.spec.driver
    revision = facts.node.labels.get(DRIVER_REVISION_LABEL, "")
    if revision:
        return revision
    if driver.source == GPU_OPERATOR:
        return facts.current.driver
    has_host_driver = DRIVER_VERSION_LABEL in facts.node.labels
    if driver.source == "container" or (driver.source == "auto" and driver.image and not has_host_driver):
        return "" if facts.owner("driver").name else facts.current.driver
    return ""


def find_driver(facts: NodeFacts) -> Found:
    node = facts.node
    owner, is_cloud = facts.owner("driver")
    version = node.labels.get(DRIVER_VERSION_LABEL, "")
    if facts.stack.spec.driver.source == GPU_OPERATOR and owner in ("", GPU_OPERATOR):
        return _driven_driver(facts, version)
    if owner:
        reason = Reason.CloudManaged if is_cloud else Reason.OtherOwner
        return Found("NotOurs", reason, f"{owner} brings the driver" + (f" ({version})" if version else ""), owner)
    if facts.stack.spec.driver.source == "none":
        return Found("NotOurs", Reason.OtherOwner, "driver.source is none", HOST)
    wanted = wanted_driver(facts)
    if wanted:
        return _container_driver(facts, wanted, version)
    if version:
        return Found("Done", Reason.Done, f"the host has driver {version}", HOST)
    return Found(
        "Waiting", Reason.DriverMissing, "no driver was found on the host, and driver.image names no container", HOST
    )


def _container_driver(facts: NodeFacts, wanted: str, version: str) -> Found:
    pods = [pod for pod in facts.pods if is_our_driver_pod(pod)]
    ours = [pod for pod in pods if pod.labels.get(DRIVER_REVISION_LABEL) == wanted]
    others = [pod for pod in pods if pod not in ours]
    if others:
        what = ", ".join(sorted(pod.labels.get(DRIVER_REVISION_LABEL, "?") for pod in others))
        return Found("Working", Reason.DriverInUse, f"the driver container of {what} is still unloading")
    holders = first_choice_blocked(facts, DRIVER_REVISION_LABEL)
    if holders:
        return Found("Waiting", Reason.DriverInUse, f"driver {wanted} waits until these pods have ended: {holders}")
    if not ours:
        return Found("Waiting", Reason.ImagePulling, f"the driver container of {wanted} has not been started")
    blocked = _pod_problem(ours[0], wanted)
    if blocked is not None:
        return blocked
    if version != wanted:
        loaded = version or "none"
        return Found("Waiting", Reason.DriverVersionMismatch, f"wanted is driver {wanted}, loaded is {loaded}")
    return Found("Done", Reason.Done, f"driver {wanted} is loaded from a container")


def _driven_driver(facts: NodeFacts, version: str) -> Found:
    """Nodes for which nothing has been chosen are as NVIDIA's operator has them, but for those on their way back."""
    node, default = facts.node, facts.default_driver
    revision = node.labels.get(DRIVER_REVISION_LABEL, "")
    if not revision and not facts.is_changing:
        if not version:
            return _awaited("it has not loaded a driver")
        return Found("NotOurs", Reason.OtherOwner, f"{GPU_OPERATOR} brings the driver ({version})", GPU_OPERATOR)
    if default is None:
        return _awaited("there is no NVIDIADriver with `default: true`")
    wanted = revision or default.version
    expected = nvidia_driver_name(revision) if revision else default.name
    found = _obeyed(facts, expected, wanted)
    if found is not None:
        return found
    if version != wanted and not version.startswith(f"{wanted}."):  # precompiled drivers are named by their branch
        words = f"wanted is driver {wanted}, loaded is {version or 'none'}"
        return Found("Waiting", Reason.DriverVersionMismatch, words, GPU_OPERATOR)
    return Found("Done", Reason.Done, f"NVIDIADriver {expected} has loaded driver {version}", GPU_OPERATOR)


def _obeyed(facts: NodeFacts, expected: str, wanted: str) -> Found | None:
    """What NVIDIA's operator has not done yet."""
    labels = facts.node.labels
    owner = labels.get(NVIDIA_OWNER_LABEL, "")
    if owner != expected:
        return _awaited(f"the node belongs to NVIDIADriver {owner or 'none'}, not to {expected} yet")
    paused = sorted(key for key, value in labels.items() if key.startswith(DEPLOY_LABEL_PREFIX) and "paused" in value)
    if paused:
        return _awaited(f"{paused[0]} is {labels[paused[0]]}")
    pods = [pod for pod in facts.pods if pod.labels.get(APP_COMPONENT_LABEL) == NVIDIA_DRIVER_COMPONENT]
    if len(pods) > 1 or any(pod.is_deleting for pod in pods):
        return Found("Working", Reason.DriverInUse, "the driver before is still unloading", GPU_OPERATOR)
    if not pods:
        return _awaited(f"no driver pod of {expected} is on the node")
    blocked = _pod_problem(pods[0], wanted)
    return msgspec.structs.replace(blocked, owner=GPU_OPERATOR) if blocked is not None else None


def _awaited(message: str) -> Found:
    return Found("Waiting", Reason.AwaitsGpuOperator, message, GPU_OPERATOR)


def _pod_problem(pod: PodView, wanted: str) -> Found | None:
    """Why the pod of a driver container has not loaded it."""
    if pod.problem in _PULL_PROBLEMS:
        return Found("Waiting", Reason.ImagePullFailed, f"{pod.key}: {pod.problem_message or pod.problem}")
    if pod.problem == "ContainerCreating":
        return Found("Working", Reason.ImagePulling, f"{pod.key} is being created")
    if pod.problem:
        text = pod.problem_message or pod.problem
        reason = next((reason for reason, words in _DRIVER_WORDS if words.search(text)), Reason.DriverFailed)
        return Found("Waiting", reason, f"{pod.key}: {text[:300]}")
    if not pod.is_ready:
        return Found("Working", Reason.DriverCompiling, f"{pod.key} is loading driver {wanted}")
    return None
