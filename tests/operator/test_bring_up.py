"""Bring-up of a node: each step blocked in turn is named with its reason, owner and deadline, and tried again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.play import Play, fleet, is_up
from tests.operator.world import World

from windlass.model.convert import convert
from windlass.model.names.windlass import DRIVER_REVISION_LABEL, NOT_READY_GPU_TAINT
from windlass.model.node import Taint
from windlass.operator.decide.node_facts import NodeFacts
from windlass.operator.decide.owners import step_owners
from windlass.operator.decide.steps import FINDERS
from windlass.operator.kinds.gpu_stack import Current, GPUStack
from windlass.operator.observed import NodeInfo, NodeView
from windlass.operator.pods import PodObject, PodView, pod_view

VERSION = "580.95.05"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": VERSION,
    DRIVER_REVISION_LABEL: VERSION,
}
NODE: dict[str, Any] = {
    "name": "gpu-1",
    "labels": LABELS,
    "annotations": {"windlass.dev/devices-layout": "[]"},
    "info": NodeInfo(container_runtime_version="containerd://2.4.2"),
    "gpu_capacity": 8,
    "gpu_allocatable": 8,
}
DRIVER: dict[str, Any] = {
    "key": "windlass-node/driver-1",
    "node": "gpu-1",
    "owner_kind": "DaemonSet",
    "labels": {
        "app.kubernetes.io/name": "windlass",
        "app.kubernetes.io/component": "driver",
        DRIVER_REVISION_LABEL: VERSION,
    },
}
STACK: dict[str, Any] = {
    "nodes": {"matchLabels": {"pool": "a"}},
    "driver": {"source": "container", "image": "driver", "version": VERSION},
    "expect": {"gpus": 8},
    "sku": ["NVIDIA-H100-*"],
}


def found(
    step: str, node: dict[str, Any] = NODE, pods: Any = ({},), stack: dict[str, Any] = STACK
) -> tuple[str, str, str]:
    view = NodeView(**node)
    whole = convert({"metadata": {"name": "a"}, "spec": stack}, GPUStack)
    assert isinstance(whole, GPUStack)
    there = tuple(PodView(**{**DRIVER, **pod}) for pod in pods)
    current = Current(driver=whole.spec.driver.version, mig=whole.spec.mig.config)
    result = FINDERS[step](NodeFacts(view, there, whole, current, step_owners(view)))
    return result.state, str(result.reason), result.owner


def node(*without: str, **fields: Any) -> dict[str, Any]:
    labels = {**LABELS, **fields.pop("labels", {})}
    return {**NODE, "labels": {key: value for key, value in labels.items() if key not in without}, **fields}


def problem(reason: str, message: str = "") -> tuple[dict[str, Any], ...]:
    return ({"problem": reason, "problem_message": message, "is_ready": False},)


HOST = STACK | {"driver": {"source": "host"}}
VERSION_LABEL = "nvidia.com/cuda.driver-version.full"


@pytest.mark.parametrize(
    ("step", "there", "pods", "stack", "expected"),
    [
        ("driver", node(), ({},), STACK, ("Done", "Done", "windlass")),
        ("driver", node(), (), STACK, ("Waiting", "ImagePulling", "windlass")),
        ("driver", node(), problem("ImagePullBackOff", "not found"), STACK, ("Waiting", "ImagePullFailed", "windlass")),
        ("driver", node(), problem("ContainerCreating"), STACK, ("Working", "ImagePulling", "windlass")),
        ("driver", node(), ({"is_ready": False},), STACK, ("Working", "DriverCompiling", "windlass")),
        (
            *("driver", node()),
            problem("CrashLoopBackOff", "Could not resolve Linux kernel version"),
            *(STACK, ("Waiting", "KernelHeadersMissing", "windlass")),
        ),
        (
            *("driver", node()),
            problem("CrashLoopBackOff", "modprobe: Key was rejected by service"),
            *(STACK, ("Waiting", "ModuleRejected", "windlass")),
        ),
        ("driver", node(), problem("Error", "nouveau is in use"), STACK, ("Waiting", "NouveauLoaded", "windlass")),
        (
            *("driver", node()),
            problem("CrashLoopBackOff", "Could not unload NVIDIA driver kernel modules, driver is in use"),
            *(STACK, ("Waiting", "DriverInUse", "windlass")),
        ),
        ("driver", node(), problem("CrashLoopBackOff", "segfault"), STACK, ("Waiting", "DriverFailed", "windlass")),
        ("driver", node(VERSION_LABEL), ({},), STACK, ("Waiting", "DriverVersionMismatch", "windlass")),
        (
            *("driver", node()),
            ({}, {"labels": {**DRIVER["labels"], DRIVER_REVISION_LABEL: "1"}}),
            *(STACK, ("Working", "DriverInUse", "windlass")),
        ),
        ("driver", node(DRIVER_REVISION_LABEL), (), HOST, ("Done", "Done", "host")),
        ("driver", node(DRIVER_REVISION_LABEL, VERSION_LABEL), (), HOST, ("Waiting", "DriverMissing", "host")),
        (
            *("driver", node(labels={"cloud.google.com/gke-accelerator": "h100"}), (), STACK),
            ("NotOurs", "CloudManaged", "gke"),
        ),
        (
            *("driver", node(DRIVER_REVISION_LABEL, labels={"nvidia.com/gpu.deploy.driver": "true"}), (), STACK),
            ("NotOurs", "OtherOwner", "gpu-operator"),
        ),
        (
            *(
                "driver",
                node(DRIVER_REVISION_LABEL, labels={"nvidia.com/gpu.deploy.driver": "pre-installed"}),
                (),
                STACK,
            ),
            ("NotOurs", "OtherOwner", "host"),
        ),
        (
            *("driver", node(labels={"nvidia.com/gpu.deploy.driver": "false"}), ({},), STACK),
            ("Done", "Done", "windlass"),
        ),
        ("runtime", node(), (), STACK, ("Done", "Done", "host")),
        (
            *("runtime", node(info=NodeInfo(container_runtime_version="containerd://1.7.35")), (), STACK),
            ("Waiting", "RuntimeUnsupported", "host"),
        ),
        ("runtime", node(), (), STACK | {"runtimeClass": "nvidia"}, ("Waiting", "HandlerMissing", "host")),
        (
            *("runtime", node(handlers=frozenset({"nvidia"})), (), STACK | {"runtimeClass": "nvidia"}),
            ("Done", "Done", "host"),
        ),
        (
            *("runtime", node(info=NodeInfo(os_image="Bottlerocket OS 1.30")), (), STACK),
            ("NotOurs", "CloudManaged", "bottlerocket"),
        ),
        ("plugin", node(gpu_capacity=0), (), STACK, ("Waiting", "PluginNotRegistered", "windlass")),
        (
            *("plugin", node(gpu_capacity=0)),
            ({"labels": {"app.kubernetes.io/name": "windlass", "app.kubernetes.io/component": "node"}},),
            *(STACK, ("Waiting", "NothingAdvertised", "windlass")),
        ),
        ("plugin", node(labels={"nvidia.com/gpu.count": "7"}), (), STACK, ("Failed", "WrongHardware", "windlass")),
        (
            *("plugin", node(labels={"nvidia.com/gpu.product": "NVIDIA-A100"}), (), STACK),
            ("Failed", "WrongHardware", "windlass"),
        ),
        ("labels", node("nvidia.com/gpu.product"), (), STACK, ("Waiting", "LabelsMissing", "windlass")),
        ("exporter", node(annotations={}), (), STACK, ("Waiting", "ExporterMissing", "windlass")),
        (
            *(
                "mig",
                node(labels={"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"}),
                (),
            ),
            *(STACK | {"mig": {"config": "all-1g.10gb"}}, ("Working", "MigPending", "windlass")),
        ),
        (
            *(
                "mig",
                node(labels={"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "failed"}),
                (),
            ),
            *(STACK | {"mig": {"config": "all-1g.10gb"}}, ("Waiting", "MigBlocked", "windlass")),
        ),
        ("validator", node(gpu_allocatable=0), (), STACK, ("Waiting", "NotValidated", "windlass")),
        ("validator", node(gpu_allocatable=7), (), STACK, ("Done", "Done", "windlass")),
    ],
)
def test_every_cause_has_its_reason(
    step: str, there: dict[str, Any], pods: Any, stack: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert found(step, there, pods, stack) == expected


def test_a_node_that_fails_stays_closed_and_is_tried_again_while_others_go_on() -> None:
    world = fleet(3)
    for each in world.nodes.values():
        each.taints = (Taint(key=NOT_READY_GPU_TAINT, effect="NoSchedule"),)
    world.nodes["gpu-001"].bad_versions = frozenset({VERSION})
    play = Play(world).run(seconds=1000)
    assert not world.nodes["gpu-000"].taints
    assert not world.nodes["gpu-002"].taints
    status = world.gpu_node("gpu-001").status
    driver = status.steps[0]
    assert (status.phase, status.reason, driver.state, driver.tries) == ("NotReady", "DriverCompiling", "Working", 0)
    assert [step.reason for step in status.steps[2:4]] == ["AwaitsStep", "AwaitsStep"]
    play.run(seconds=300)  # the 21 minutes of the first try are over
    driver = world.gpu_node("gpu-001").status.steps[0]
    assert (driver.state, driver.tries) == ("Failed", 1)
    play.run(seconds=60)
    driver = world.gpu_node("gpu-001").status.steps[0]
    assert (driver.state, driver.tries) == ("Working", 1)
    assert [taint.key for taint in world.nodes["gpu-001"].taints] == [NOT_READY_GPU_TAINT]
    assert world.nodes["gpu-001"].condition == "False"
    assert "gpu-001" in world.stack("h100").status.conditions[0].message


def test_drift_is_repaired_and_a_closed_node_opens_again() -> None:
    world = fleet(3)
    play = Play(world).run(lambda: is_up(world))
    world.nodes["gpu-001"].labels.pop(DRIVER_REVISION_LABEL)
    world.nodes["gpu-001"].version += 1
    play.run(seconds=300)
    assert world.nodes["gpu-001"].labels[DRIVER_REVISION_LABEL] == VERSION
    assert is_up(world)


def test_a_mistake_in_a_stack_does_not_close_a_fleet() -> None:
    world = fleet(10)
    play = Play(world).run(lambda: is_up(world))
    world.put_spec("GPUStack", "h100", runtimeClass="typo")
    play.run(seconds=3600)
    closed = [each for each in world.nodes.values() if each.taints]
    assert len(closed) == 2  # maxUnavailable
    world.put_spec("GPUStack", "h100", runtimeClass="")
    play.run(seconds=3600)
    assert is_up(world)


def test_two_stacks_that_select_one_node_both_leave_it_alone() -> None:
    world = fleet(2)
    Play(world).run(lambda: is_up(world))
    other = {"nodes": {"matchLabels": {"other": "yes"}}, "driver": {"source": "host"}}
    world.add("GPUStack", "other", other)
    world.nodes["gpu-000"].labels["other"] = "yes"
    world.nodes["gpu-000"].version += 1
    Play(world).run(seconds=60)
    status = world.gpu_node("gpu-000").status
    assert (status.phase, status.reason) == ("NotOurs", "StackConflict")
    assert "h100, other" in status.message


def test_what_a_pod_is_to_the_operator() -> None:
    pod = {
        "metadata": {
            "namespace": "team",
            "name": "p",
            "annotations": {"windlass.dev/allocated-devices": "0,3"},
            "ownerReferences": [
                {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": "u", "controller": True}
            ],
        },
        "spec": {"nodeName": "n", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    decoded = convert(pod, PodObject)
    assert isinstance(decoded, PodObject)
    view = pod_view(decoded)
    assert view is not None
    assert (view.gpus, view.devices, view.gang, view.holds_gpus) == (2, {0, 3}, "team/u", True)
    pod["status"] = {"phase": "Succeeded"}
    ended = convert(pod, PodObject)
    assert isinstance(ended, PodObject)
    assert pod_view(ended) is None


def test_a_new_node_gets_what_the_stack_runs_now() -> None:
    world: World = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    world.add(
        "FleetChange",
        "r",
        {"stack": "h100", "driver": {"version": "590.1"}, "waves": [{"nodes": "100%", "bake": "1m"}]},
    )
    assert play.until_phase("r", "Succeeded") == "Succeeded"
    world.add_node("gpu-new", labels={"pool": "h100"})
    play.run(lambda: is_up(world), 3600)
    assert world.nodes["gpu-new"].loaded == "590.1"
    assert "the nodes run driver 590.1 (spec: 580.95.05)" in world.stack("h100").status.conditions[1].message
