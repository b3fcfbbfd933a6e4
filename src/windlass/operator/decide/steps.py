"""The steps of a node's bring-up, one function each: what is observed of the step now, with its reason.

`decide.bring_up` calls them in order and adds time: since when, until when, the how-manieth try. A step whose
predecessor is not done waits for it, except that each is looked at on its own, so that a step which others do is
never claimed.
"""

from __future__ import annotations

import fnmatch
import re

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
)
from windlass.operator.decide.driver_step import find_driver
from windlass.operator.decide.node_facts import Found, NodeFacts, first_choice_blocked
from windlass.operator.decide.owners import HOST, WINDLASS, is_agent_pod
from windlass.operator.kinds.reasons import Reason

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
_CONTAINERD = re.compile(r"containerd://v?([0-9]+)\.")


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
    if facts.handover:
        return Found("Working", Reason.TakingOver, facts.handover, owner or WINDLASS)
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
    holders = first_choice_blocked(facts, MIG_CONFIG_LABEL)
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
