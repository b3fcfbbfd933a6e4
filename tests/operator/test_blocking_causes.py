"""Every cause that keeps a node from GPU work: its reason in the node's status with a deadline and what follows, an
event, and the answer of `windlass why node/NAME`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import ask
from tests.diagnose.objects import node as kubernetes_node
from tests.operator.test_bring_up import DRIVER, HOST, LABELS, NODE, STACK, VERSION_LABEL, node, problem

from windlass.kube.events import Event
from windlass.model.convert import convert
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import AGENT_REVISION_LABEL, DRIVER_REVISION_LABEL
from windlass.operator.apply import report_event
from windlass.operator.decide import decide
from windlass.operator.kinds.base import Metadata
from windlass.operator.kinds.codec import status_tree
from windlass.operator.kinds.gpu_node import GPUNode, GPUNodeStatus
from windlass.operator.kinds.gpu_stack import GPUStack
from windlass.operator.kinds.reasons import REASONS, Reason
from windlass.operator.observed import NodeInfo, NodeView, NvidiaDriver, Observed
from windlass.operator.pods import PodView
from windlass.operator.writes import PutStatus

NOW = 1_800_000_000
AGENT: dict[str, Any] = {"labels": {"app.kubernetes.io/name": "windlass", "app.kubernetes.io/component": "node"}}
HOLDER: dict[str, Any] = {"key": "team/train", "labels": {}, "owner_kind": "Job", "gpus": 1}
MIG = STACK | {"mig": {"config": "all-1g.10gb"}}
DRIVEN = STACK | {"driver": {"source": "gpu-operator"}}
OWNER = "nvidia.com/gpu-operator.driver.owner"
TAKEN = '{"stack":"a","at":"2027-01-15T08:00:00Z","labels":{"nvidia.com/gpu.deploy.device-plugin":"true"}}'
CRASH = "CrashLoopBackOff"
Pods = tuple[dict[str, Any], ...]
OK: Pods = ({},)
ABSENT = node(gpu_capacity=0, gpu_allocatable=0)
CAUSES: dict[str, tuple[str, dict[str, Any], Pods, dict[str, Any]]] = {
    "kubelet": ("NodeNotReady", node(is_ready=False), OK, STACK),
    "driver container not started": ("ImagePulling", node(), (), STACK),
    "driver image is pulled": ("ImagePulling", node(), problem("ContainerCreating"), STACK),
    "driver image missing": ("ImagePullFailed", node(), problem("ImagePullBackOff", "not found"), STACK),
    "driver image name invalid": ("ImagePullFailed", node(), problem("InvalidImageName", "bad"), STACK),
    "driver compiles": ("DriverCompiling", node(), ({"is_ready": False},), STACK),
    "kernel headers": ("KernelHeadersMissing", node(), problem(CRASH, "linux-headers-6.8.0-41 not found"), STACK),
    "secure boot": ("ModuleRejected", node(), problem(CRASH, "Key was rejected by service"), STACK),
    "nouveau": ("NouveauLoaded", node(), problem(CRASH, "nouveau is loaded"), STACK),
    "driver in use": ("DriverInUse", node(), problem(CRASH, "Could not unload NVIDIA driver kernel modules"), STACK),
    "old driver unloads": (
        *("DriverInUse", node()),
        *(({}, {"key": "d/old", "labels": {**DRIVER["labels"], DRIVER_REVISION_LABEL: "1"}}), STACK),
    ),
    "pods before the first driver": ("DriverInUse", node(DRIVER_REVISION_LABEL), (HOLDER,), STACK),
    "driver crashes": ("DriverFailed", node(), problem(CRASH, "segfault"), STACK),
    "other version loaded": ("DriverVersionMismatch", node(VERSION_LABEL), OK, STACK),
    "no host driver": ("DriverMissing", node(DRIVER_REVISION_LABEL, VERSION_LABEL), (), HOST),
    "gpu-operator does not obey": ("AwaitsGpuOperator", node(labels={OWNER: "default"}), OK, DRIVEN),
    "containerd 1.7": (
        *("RuntimeUnsupported", node(info=NodeInfo(container_runtime_version="containerd://1.7.35"))),
        *(OK, STACK),
    ),
    "no handler": ("HandlerMissing", node(), OK, STACK | {"runtimeClass": "nvidia"}),
    "no plugin": ("PluginNotRegistered", ABSENT, OK, STACK),
    "plugin advertises nothing": ("NothingAdvertised", ABSENT, ({}, {"key": "w/agent", **AGENT}), STACK),
    "chosen agent missing": ("PluginNotRegistered", node(labels={AGENT_REVISION_LABEL: "2.0"}), OK, STACK),
    "seven GPUs": ("WrongHardware", node(labels={"nvidia.com/gpu.count": "7"}), OK, STACK),
    "other model": ("WrongHardware", node(labels={"nvidia.com/gpu.product": "NVIDIA-A100"}), OK, STACK),
    "parts change hands": (
        *("TakingOver", node(annotations={**NODE["annotations"], "windlass.dev/taken-over": TAKEN})),
        *(OK, STACK),
    ),
    "no labels": ("LabelsMissing", node("nvidia.com/gpu.product"), OK, STACK),
    "MIG under way": ("MigPending", node(labels={"nvidia.com/mig.config": "all-1g.10gb"}), OK, MIG),
    "MIG refused": (
        *("MigBlocked", node(labels={"nvidia.com/mig.config": "x", "nvidia.com/mig.config.state": "failed"})),
        *(OK, MIG),
    ),
    "pods before the first MIG layout": ("MigBlocked", node(), ({}, HOLDER), MIG),
    "validator": ("NotValidated", node(gpu_allocatable=0), OK, STACK),
}


def observed(there: dict[str, Any], pods: Pods, stack: dict[str, Any]) -> Observed:
    view = NodeView(**{**there, "labels": {**there["labels"], "pool": "a"}})
    whole = convert({"metadata": {"name": "a"}, "spec": stack}, GPUStack)
    assert isinstance(whole, GPUStack)
    default = NvidiaDriver("default", "u", {"default": True, "version": "580.95.05"}, "ready")
    return Observed(
        stacks=(whole,),
        nodes={view.name: view},
        gpu_nodes={view.name: GPUNode(metadata=Metadata(name=view.name, resource_version="1"))},
        pods={view.name: tuple(PodView(**{**DRIVER, **pod}) for pod in pods)},
        nvidia_drivers={"default": default},
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_named_with_its_deadline_by_status_event_and_why(cause: str) -> None:
    reason, there, pods, stack = CAUSES[cause]
    writes = decide(observed(there, pods, stack), NOW).writes
    write = next(found for found in writes if isinstance(found, PutStatus) and found.kind == "GPUNode")
    status = write.status
    assert isinstance(status, GPUNodeStatus)
    assert (status.phase, status.reason) == ("NotReady", reason)
    assert status.message
    assert status.deadline > status.since
    assert REASONS[Reason(reason)].after, "nothing is said to follow"

    event = report_event(write, ObjectMeta(name="gpu-1", uid="uid"))
    assert isinstance(event, Event)
    assert (event.regarding.kind, event.reason) == ("GPUNode", reason)
    assert status.message in event.note

    gpu_node = {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": "gpu-1"},
        "status": status_tree(status),
    }
    answer = ask("node/gpu-1", kubernetes_node("gpu-1", 8), gpu_node)
    said = " ".join((answer.headline, *answer.evidence))
    assert f" is not ready for GPU work until about {status.deadline[11:16]} UTC: {reason}: " in said
    assert status.message in said


def test_at_least_twenty_causes_are_told_apart() -> None:
    assert len({reason for reason, *_ in CAUSES.values()}) >= 20
    assert LABELS  # the node of the table is a whole one: without a cause it is ready
    status = next(
        write.status
        for write in decide(observed(node(), OK, STACK), NOW).writes
        if isinstance(write, PutStatus) and write.kind == "GPUNode"
    )
    assert isinstance(status, GPUNodeStatus)
    assert status.phase == "Ready"
