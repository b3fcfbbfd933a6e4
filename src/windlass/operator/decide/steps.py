"""The steps of a node's bring-up, one function each: what is observed of the step now, with its reason.

`decide.bring_up` calls them in order and adds time: since when, until when, the how-manieth try. A step whose
predecessor is not done waits for it, except that each is looked at on its own, so that a step which others do is
never claimed.
"""

from __future__ import annotations

import fnmatch
import re

import msgspec

from windlass.model.names.nvidia import (
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_CONFIG_STATE_LABEL,
)
from windlass.model.names.windlass import (
    AGENT_REVISION_LABEL,
    CONTAINER_GPUS_ANNOTATION,
    DEVICES_LAYOUT_ANNOTATION,
    DRIVER_REVISION_LABEL,
)
from windlass.operator.decide.owners import HOST, NOBODY, WINDLASS, Owner, is_agent_pod, is_our_driver_pod
from windlass.operator.kinds.gpu_stack import Current, GPUStack
from windlass.operator.kinds.reasons import Reason
from windlass.operator.observed import NodeView, PodView

DRIVER_VERSION_LABEL = "nvidia.com/cuda.driver-version.full"
MIG_REASON_ANNOTATION = "windlass.dev/mig-config-reason"
STEP_SECONDS = {
    "driver": 21 * 60,
    "runtime": 5 * 60,
    "plugin": 5 * 60,
    "labels": 5 * 60,
    "exporter": 5 * 60,
    "mig": 15 * 60,
    "validator": 15 * 60,
}
"""How long a step may take; the driver's is `spec.driver.loadTimeout`."""
OPTIONAL_STEPS = ("exporter",)
"""Reported, and not waited for: work runs without metrics."""
_DRIVER_WORDS = (
    (Reason.KernelHeadersMissing, re.compile(r"Could not resolve Linux kernel version|linux-headers|kernel-devel")),
    (Reason.ModuleRejected, re.compile(r"Key was rejected by service|unsigned module is rejected|Operation not perm")),
    (Reason.NouveauLoaded, re.compile(r"nouveau")),
    (Reason.DriverInUse, re.compile(r"driver is in use|Could not unload NVIDIA driver")),
)
"""What the driver container's last words mean."""
_PULL_PROBLEMS = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_CONTAINERD = re.compile(r"containerd://v?([0-9]+)\.")


class Found(msgspec.Struct, frozen=True):
    """What a step looks like now, without time."""

    state: str
    reason: Reason = Reason.Done
    message: str = ""
    owner: str = WINDLASS


class NodeFacts(msgspec.Struct, frozen=True):
    """What the steps read."""

    node: NodeView
    pods: tuple[PodView, ...]
    stack: GPUStack
    current: Current
    owners: dict[str, Owner]
    """Steps that others do."""
    repaired_devices: frozenset[int] = frozenset()
    """GPUs that an open repair has out of service: nothing waits for them."""

    def owner(self, step: str) -> Owner:
        return self.owners.get(step, NOBODY)


def wanted_driver(facts: NodeFacts) -> str:
    """The driver version that this node shall run from a container; empty if the driver is not ours to bring."""
    driver = facts.stack.spec.driver
    revision = facts.node.labels.get(DRIVER_REVISION_LABEL, "")
    if revision:
        return revision
    has_host_driver = DRIVER_VERSION_LABEL in facts.node.labels
    if driver.source == "container" or (driver.source == "auto" and driver.image and not has_host_driver):
        return "" if facts.owner("driver").name else facts.current.driver
    return ""


def find_driver(facts: NodeFacts) -> Found:
    node = facts.node
    owner, is_cloud = facts.owner("driver")
    version = node.labels.get(DRIVER_VERSION_LABEL, "")
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
    holders = _first_choice_blocked(facts, DRIVER_REVISION_LABEL)
    if holders:
        return Found("Waiting", Reason.DriverInUse, f"driver {wanted} waits until these pods have ended: {holders}")
    if not ours:
        return Found("Waiting", Reason.ImagePulling, f"the driver container of {wanted} has not been started")
    pod = ours[0]
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
    if version != wanted:
        loaded = version or "none"
        return Found("Waiting", Reason.DriverVersionMismatch, f"wanted is driver {wanted}, loaded is {loaded}")
    return Found("Done", Reason.Done, f"driver {wanted} is loaded from a container")


def _first_choice_blocked(facts: NodeFacts, label: str) -> str:
    """Pods that hold GPUs of a node on which nothing has been chosen yet."""
    if label in facts.node.labels:
        return ""
    return ", ".join(sorted(pod.key for pod in facts.pods if pod.holds_gpus)[:3])


def find_runtime(facts: NodeFacts) -> Found:
    node, handler = facts.node, facts.stack.spec.runtime_class
    runtime = node.info.container_runtime_version
    if handler and handler not in node.handlers:
        return Found("Waiting", Reason.HandlerMissing, f"{runtime} has no handler {handler}", HOST)
    owner, is_cloud = facts.owner("runtime")
    if owner:
        reason = Reason.CloudManaged if is_cloud else Reason.OtherOwner
        return Found("NotOurs", reason, f"{owner} configures {runtime}", owner)
    version = _CONTAINERD.match(runtime)
    if version is not None and int(version[1]) < 2 and CONTAINER_GPUS_ANNOTATION not in node.annotations:
        return Found("Waiting", Reason.RuntimeUnsupported, f"{runtime} has CDI only if enable_cdi is set", HOST)
    return Found("Done", Reason.Done, f"{runtime} takes CDI devices; nothing is written", HOST)


def find_plugin(facts: NodeFacts) -> Found:
    node, spec = facts.node, facts.stack.spec
    owner, is_cloud = facts.owner("plugin")
    absent = _missing_agent(facts)
    if absent:
        return Found("Waiting", Reason.PluginNotRegistered, absent, owner or WINDLASS)
    wrong = _wrong_hardware(facts)
    if wrong:
        return Found("Failed", Reason.WrongHardware, wrong, owner or WINDLASS)
    if node.gpu_capacity:
        if owner:
            reason = Reason.CloudManaged if is_cloud else Reason.OtherOwner
            return Found("NotOurs", reason, f"{owner} runs the device plugin", owner)
        return Found("Done", Reason.Done, f"the kubelet has {node.gpu_capacity} GPU resources")
    if any(is_agent_pod(pod) for pod in facts.pods):
        return Found("Waiting", Reason.NothingAdvertised, "the node agent runs and advertises no GPU")
    expected = f" ({spec.expect.gpus} GPUs are expected)" if spec.expect.gpus else ""
    return Found("Waiting", Reason.PluginNotRegistered, f"no device plugin has registered a GPU{expected}")


def _missing_agent(facts: NodeFacts) -> str:
    """Where a version of the agent is chosen, what keeps it from being the one that runs."""
    wanted = facts.node.labels.get(AGENT_REVISION_LABEL, "")
    agents = [pod for pod in facts.pods if is_agent_pod(pod)]
    others = [pod for pod in agents if pod.labels.get(AGENT_REVISION_LABEL, "") != wanted]
    if others and (wanted or AGENT_REVISION_LABEL in others[0].labels):
        return f"another version of the node agent is still there: {others[0].key}"
    if not wanted or any(pod.is_ready for pod in agents):
        return ""
    problem = next((f": {pod.problem_message or pod.problem}" for pod in agents if pod.problem), "")
    return f"node agent {wanted} is not running yet{problem}"


def _wrong_hardware(facts: NodeFacts) -> str:
    node, spec = facts.node, facts.stack.spec
    product, count = node.labels.get(GPU_PRODUCT_LABEL, ""), node.labels.get(GPU_COUNT_LABEL, "")
    if product and spec.sku and not any(fnmatch.fnmatchcase(product, glob) for glob in spec.sku):
        return f"its GPUs are {product}, and the stack is for {', '.join(spec.sku)}"
    if count.isdigit() and spec.expect.gpus and int(count) != spec.expect.gpus:
        return f"{count} GPUs were found, and {spec.expect.gpus} are expected"
    return ""


def find_labels(facts: NodeFacts) -> Found:
    if GPU_PRODUCT_LABEL in facts.node.labels:
        owner, is_cloud = facts.owner("labels")
        if owner:
            reason = Reason.CloudManaged if is_cloud else Reason.OtherOwner
            return Found("NotOurs", reason, f"{owner} writes the labels", owner)
        return Found("Done", Reason.Done, facts.node.labels[GPU_PRODUCT_LABEL])
    return Found("Waiting", Reason.LabelsMissing, f"the node has no label {GPU_PRODUCT_LABEL}")


def find_exporter(facts: NodeFacts) -> Found:
    owner, is_cloud = facts.owner("exporter")
    if owner:
        reason = Reason.CloudManaged if is_cloud else Reason.OtherOwner
        return Found("NotOurs", reason, f"{owner} exports metrics", owner)
    agents = [pod for pod in facts.pods if is_agent_pod(pod)]
    if any(pod.is_ready for pod in agents) or (not agents and DEVICES_LAYOUT_ANNOTATION in facts.node.annotations):
        return Found("Done", Reason.Done, "the node agent exports metrics")
    return Found("Waiting", Reason.ExporterMissing, "no node agent exports metrics here")


def find_mig(facts: NodeFacts) -> Found:
    labels = facts.node.labels
    owner, _ = facts.owner("mig")
    wanted = labels.get(MIG_CONFIG_LABEL, "") or facts.current.mig
    if not facts.current.mig:
        return Found("Done", Reason.Done, "no MIG layout is asked for", owner or WINDLASS)
    state = labels.get(MIG_CONFIG_STATE_LABEL, "")
    if state == "success":
        return Found("Done", Reason.Done, f"MIG layout {wanted}", owner or WINDLASS)
    if state == "failed":
        why = facts.node.annotations.get(MIG_REASON_ANNOTATION, "the node's agent says so")
        return Found("Waiting", Reason.MigBlocked, f"MIG layout {wanted}: {why[:300]}", owner or WINDLASS)
    holders = _first_choice_blocked(facts, MIG_CONFIG_LABEL)
    if holders:
        words = f"MIG layout {wanted} waits until these pods have ended: {holders}"
        return Found("Waiting", Reason.MigBlocked, words, owner or WINDLASS)
    return Found("Working", Reason.MigPending, f"MIG layout {wanted} is being applied", owner or WINDLASS)


def find_validator(facts: NodeFacts) -> Found:
    """GPUs that are handed out have passed the agent's validator; those in repair are not waited for."""
    node = facts.node
    ill = {fault.device for fault in node.faults} | node.held
    if node.gpu_allocatable:
        beside = f"; {len(ill)} in repair" if ill else ""
        return Found("Done", Reason.Done, f"{node.gpu_allocatable} GPU resources are allocatable{beside}")
    if facts.repaired_devices:
        return Found("Waiting", Reason.NotValidated, "every GPU is out of service; see its repairs")
    return Found("Waiting", Reason.NotValidated, "no GPU is allocatable: the validator has not passed on any")


FINDERS = {
    "driver": find_driver,
    "runtime": find_runtime,
    "plugin": find_plugin,
    "labels": find_labels,
    "exporter": find_exporter,
    "mig": find_mig,
    "validator": find_validator,
}
