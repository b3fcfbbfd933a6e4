"""The agent on a real kubelet with containerd and runc: eight simulated GPUs, real pods, real devices inside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import FLEET
from tests.real_cluster.api import Object, until
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode
from tests.real_cluster.service import Service, free_ports

from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.backend.simulated_fleet import pool_of_node

GPU = "nvidia.com/gpu"
GIVEN = "windlass.dev/allocated-devices"
SHOW = "echo VISIBLE=$NVIDIA_VISIBLE_DEVICES; ls /dev | grep nvidia; "


class Agent:
    """`windlass node run` beside the real kubelet, with a simulated machine in a folder."""

    def __init__(self, node: RealNode, folder: Path) -> None:
        self.node = node
        self.api = node.plane.api
        self.folder = folder
        self.fleet = folder / "fleet.yaml"
        self.fleet.write_text(FLEET)
        self.configs = folder / "configs"
        self.configs.mkdir()
        self.config = self.configs / "default"
        self.config.write_text("flags: {plugin: {deviceListStrategy: cdi-cri}}")
        (self.port,) = free_ports(1)
        pool, number = pool_of_node(self.fleet, node.name)
        self.machine = SimulatedBackend(pool, number, folder=folder / "machine")
        command = [
            *(sys.executable, "-c", "from windlass.cli.main import main; main()", "node", "run"),
            *("--fleet", str(self.fleet), "--root", str(folder / "machine"), "--node-name", node.name),
            *("--config-file-srcdir", str(self.configs), "--state", str(folder / "state")),
            *("--device-plugins", str(node.device_plugins), "--cdi-folder", str(node.cdi)),
            *("--pod-resources", str(node.kubelet_root / "pod-resources/kubelet.sock")),
            *("--kubeconfig", str(node.plane.kubeconfig), "--label-sink", "node"),
            *("--listen", f"127.0.0.1:{self.port}", "--interval", "0.5"),
            *("--quiet-seconds", "0.5", "--reading-seconds", "0.2"),
        ]
        self.service = Service("windlass-node", command, folder / "agent.log", lambda: True)

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def registrations(self) -> int:
        return self.log.count(f"registered {GPU}")

    def children(self, name: str) -> list[int]:
        """The processes of one name under the supervisor."""
        assert self.service.pid
        listed = Path(f"/proc/{self.service.pid}/task/{self.service.pid}/children").read_text().split()
        return [int(pid) for pid in listed if f"child\0{name}" in Path(f"/proc/{pid}/cmdline").read_text()]

    def resource(self, kind: str, name: str = GPU) -> int:
        status = self.api.get(f"/api/v1/nodes/{self.node.name}")["status"]
        return int(status.get(kind, {}).get(name, -1))

    def allocatable(self, count: int, name: str = GPU) -> None:
        try:
            until(lambda: self.resource("allocatable", name) == count, 60, f"{count} {name} allocatable")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log[-3000:]}") from None

    def run_pod(self, name: str, gpus: int, script: str = "sleep 1000", resource: str = GPU, **spec: Any) -> None:
        main: Object = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", SHOW + script],
            "resources": {"limits": {resource: str(gpus)}},
        }
        annotations = spec.pop("annotations", {})
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {
                    "containers": [main],
                    "nodeName": self.node.name,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    **spec,
                },
            }
        )

    def pod(self, name: str) -> Object:
        return dict(self.api.get(f"/api/v1/namespaces/default/pods/{name}"))

    def running(self, name: str) -> str:
        """Waits for the pod to run; what it said about its devices."""
        until(lambda: self.pod(name)["status"].get("phase") == "Running", 60, f"{name} runs")
        until(lambda: "VISIBLE" in self.pod_log(name), 30, f"{name} has spoken")
        return self.pod_log(name)

    def runs_or_again(self, name: str, gpus: int) -> bool:
        """Whether the pod runs. A kubelet that has just started refuses pods until it has heard of the devices, which
        is after the registration: such a pod is made again, as its controller would."""
        status = self.pod(name)["status"]
        if status.get("reason") == "UnexpectedAdmissionError":
            self.delete(name)
            self.run_pod(name, gpus)
        return status.get("phase") == "Running"

    def gpus_inside(self, name: str) -> list[int]:
        """The GPUs that a running pod sees under /dev; minor numbers are indices on this machine."""
        lines = self.running(name).splitlines()
        until(lambda: "nvidiactl" in self.pod_log(name), 30, f"{name} has listed its devices: {lines}")
        return sorted(
            int(line[6:]) for line in self.pod_log(name).splitlines() if line[:6] == "nvidia" and line[6:].isdigit()
        )

    def pod_log(self, name: str) -> str:
        return str(self.api.get(f"/api/v1/namespaces/default/pods/{name}/log")["text"])

    def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.api.delete(path, gracePeriodSeconds=0)
        until(lambda: not self.api.exists(path), 60, f"{name} is gone")

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.machine.inventory().gpus]


@pytest.fixture
def agent(real_node: RealNode, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(real_node, tmp_path)
    agent.service.start()
    try:
        yield agent
    finally:
        agent.service.stop()
        real_node.kubelet.stop()
        # Every kubelet of the machine keeps its books here: the next one is not to inherit this one's.
        (real_node.device_plugins / "kubelet_internal_checkpoint").unlink(missing_ok=True)


def test_pods_get_their_gpus_and_faults_are_seen(agent: Agent) -> None:
    """One walk through a node's life: each step stands on the one before, and a kubelet takes seconds to start."""
    agent.allocatable(8)
    assert agent.resource("capacity") == 8
    check_labels(agent)
    check_devices_inside(agent)
    check_metrics_join(agent)
    check_fault_and_recovery(agent)
    check_exporter_killed(agent)
    check_plugin_killed(agent)
    check_kubelet_restarted(agent)


def check_labels(agent: Agent) -> None:
    def labels() -> dict[str, str]:
        return dict(agent.api.get(f"/api/v1/nodes/{agent.node.name}")["metadata"]["labels"])

    until(lambda: labels().get("nvidia.com/gpu.product") == "NVIDIA-H100-80GB-HBM3", 30, "the node is labelled")
    assert labels()["nvidia.com/gpu.count"] == "8"
    assert labels()["nvidia.com/gpu.memory"] == "81559"
    annotations = agent.api.get(f"/api/v1/nodes/{agent.node.name}")["metadata"]["annotations"]
    assert "windlass.dev/devices-layout" in annotations


def check_devices_inside(agent: Agent) -> None:
    """One, two and four GPUs: the CDI edits are seen from inside the containers."""
    given: list[int] = []
    for name, count in (("four", 4), ("two", 2), ("one", 1)):
        agent.run_pod(name, count)
        mine = agent.gpus_inside(name)
        assert len(mine) == count
        said = agent.pod_log(name)
        assert "VISIBLE=void" in said, "the environment of the spec's common edits"
        assert "nvidiactl" in said
        given += mine
        expected = ",".join(map(str, mine))
        until(
            lambda n=name, e=expected: agent.pod(n)["metadata"].get("annotations", {}).get(GIVEN) == e,
            30,
            f"{name} is told what it was given",
        )
    assert len(set(given)) == 7, "no GPU is given twice"
    assert len({index // 4 for index in given[:4]}) == 1, "four GPUs come from one NUMA node"


def check_metrics_join(agent: Agent) -> None:
    until(lambda: agent.metrics().count('pod="four"') > 0, 20, "the exporter knows the pod")
    line = next(
        line for line in agent.metrics().splitlines() if line.startswith("DCGM_FI_DEV_FB_USED") and 'pod="two"' in line
    )
    assert 'namespace="default"' in line
    assert 'container="main"' in line


def check_fault_and_recovery(agent: Agent) -> None:
    """A GPU of a running pod fails: allocatable drops, the pod's status says so; it heals, and all are back."""
    (index,) = agent.gpus_inside("one")
    uuid = agent.uuids()[index]
    agent.machine.inject(index, 48, recovery_action=1)
    agent.allocatable(7)
    assert agent.resource("capacity") == 8
    until(lambda: device_health(agent, "one") == ["Unhealthy"], 60, "the pod is told")
    until(lambda: 'windlass_device_unhealthy{UUID="' + uuid in agent.metrics(), 20, "the exporter tells")

    def told() -> bool:
        events = agent.api.items("/api/v1/namespaces/default/events")
        return any(event["reason"] == "GPUUnhealthy" and "Xid 48" in event["message"] for event in events)

    until(told, 20, "the node has an Event with reason and action")
    agent.machine.recover(index)
    agent.allocatable(8)
    agent.delete("one")


def device_health(agent: Agent, name: str) -> list[str]:
    found = []
    for status in agent.pod(name)["status"].get("containerStatuses", ()):
        for resource in status.get("allocatedResourcesStatus", ()):
            found += [item["health"] for item in resource.get("resources", ())]
    return found


def check_exporter_killed(agent: Agent) -> None:
    """Everything beside the plugin dies: no GPU goes, no pod ends, and it comes back."""
    (pid,) = agent.children("sidecar")
    os.kill(pid, signal.SIGKILL)
    assert agent.resource("allocatable") == 8
    until(lambda: agent.children("sidecar") not in ([], [pid]), 20, "it is started again")
    until(lambda: _answers(agent), 30, "the exporter answers again")
    assert agent.resource("allocatable") == 8
    assert agent.pod("four")["status"]["phase"] == "Running"


def _answers(agent: Agent) -> bool:
    try:
        return "DCGM_FI_DEV_GPU_TEMP" in agent.metrics()
    except OSError:
        return False


def check_plugin_killed(agent: Agent) -> None:
    """The plugin dies (or is upgraded): it registers again, and pods keep what they have."""
    (pid,) = agent.children("plugin")
    before = agent.registrations()
    os.kill(pid, signal.SIGKILL)
    until(lambda: agent.registrations() > before, 30, "a new plugin registers")
    agent.allocatable(8)
    agent.run_pod("after-plugin", 2)
    assert not set(agent.gpus_inside("after-plugin")) & set(agent.gpus_inside("four"))
    agent.delete("after-plugin")


def check_kubelet_restarted(agent: Agent) -> None:
    """In order and by a kill: the plugin registers with the new kubelet, and running pods go on."""
    for way in (agent.node.kubelet.stop, agent.node.kubelet.kill):
        before = agent.registrations()
        way()
        agent.node.kubelet.start()
        until(lambda b=before: agent.registrations() > b, 60, "the plugin registers with the new kubelet")
        until(agent.node.ready, 60, "the node is ready")
        agent.allocatable(8)
    assert agent.pod("four")["status"]["phase"] == "Running"
    agent.run_pod("after-kubelet", 1)
    until(lambda: agent.runs_or_again("after-kubelet", 1), 60, "after-kubelet runs")
    agent.delete("after-kubelet")


def test_mig_is_changed_by_label_while_pods_run(agent: Agent) -> None:
    agent.config.write_text("flags: {migStrategy: mixed, plugin: {deviceListStrategy: envvar}}")
    agent.allocatable(8)
    agent.run_pod("whole", 1)
    agent.running("whole")
    label_mig(agent, "all-1g.10gb")
    until(lambda: mig_state(agent) == "failed", 30, "a GPU in use is not cut")
    reason = agent.api.get(f"/api/v1/nodes/{agent.node.name}")["metadata"]["annotations"][
        "windlass.dev/mig-config-reason"
    ]
    assert "default/whole" in reason
    assert "drain" in reason
    assert agent.resource("allocatable") == 8, "nothing was touched"
    agent.delete("whole")
    label_mig(agent, "all-disabled")
    until(lambda: mig_state(agent) == "success", 30, "nothing to change is a success")
    label_mig(agent, "all-1g.10gb")
    until(lambda: mig_state(agent) == "success", 60, f"the GPUs are cut: {agent.log[-500:]}")
    agent.allocatable(56, "nvidia.com/mig-1g.10gb")
    agent.allocatable(0)
    agent.run_pod("slice", 1, resource="nvidia.com/mig-1g.10gb")
    said = agent.running("slice")
    assert said.startswith("VISIBLE=MIG-")
    label_mig(agent, "all-balanced")
    until(lambda: mig_state(agent) == "success", 60, "the layout changes around the running pod")
    agent.allocatable(8, "nvidia.com/mig-3g.40gb")
    agent.allocatable(16, "nvidia.com/mig-1g.10gb")
    assert agent.pod("slice")["status"]["phase"] == "Running"


def label_mig(agent: Agent, name: str) -> None:
    path = f"/api/v1/nodes/{agent.node.name}"
    labels = {"nvidia.com/mig.config": name, "nvidia.com/mig.config.state": None}
    agent.api.patch(path, {"metadata": {"labels": labels}}, "merge")


def mig_state(agent: Agent) -> str:
    return node_label(agent, "nvidia.com/mig.config.state")


def test_the_gate_is_seen_by_the_scheduler_and_a_second_plugin_stays_out(agent: Agent) -> None:
    """A node whose GPUs fail validation shows capacity and nothing to allocate; a second agent refuses to start."""
    agent.service.stop()
    for index in range(8):
        agent.machine.inject(index, refuses=["compute"])
    for old in (agent.folder / "state").glob("validated.json"):
        old.unlink()
    agent.service.start()
    until(lambda: agent.resource("capacity") == 8, 60, "capacity is there")
    until(lambda: agent.resource("allocatable") == 0, 30, "and nothing can be allocated")
    until(lambda: "numbers are wrong" in agent.log, 30, "the reason is told")
    for index in range(8):
        agent.machine.inject(index, refuses=[])
    agent.allocatable(8)
    check_a_label_switches_the_plugin(agent)
    check_a_label_picks_the_config(agent)
    check_second_agent_refuses(agent)


def check_a_label_switches_the_plugin(agent: Agent) -> None:
    """Off: capacity goes at once, and what runs goes on. On: it is as before."""
    agent.run_pod("stays", 2)
    agent.running("stays")
    registered = agent.registrations()
    label(agent, "nvidia.com/gpu.deploy.device-plugin", "false")
    until(lambda: agent.resource("capacity") in (0, -1), 60, "the kubelet has nothing to give")
    until(lambda: agent.resource("allocatable") in (0, -1), 60, "and says so")
    assert not (agent.node.device_plugins / "nvidia-gpu.sock").exists()
    assert agent.pod("stays")["status"]["phase"] == "Running"
    label(agent, "nvidia.com/gpu.deploy.device-plugin", "true")
    agent.allocatable(8)
    assert agent.registrations() == registered + 1
    agent.delete("stays")
    label(agent, "nvidia.com/gpu.deploy.device-plugin", None)


def check_a_label_picks_the_config(agent: Agent) -> None:
    """Live, there and back; a name that isn't there changes nothing, and what runs goes on."""
    (agent.configs / "shared").write_text(
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    )
    agent.run_pod("whole", 1)
    agent.running("whole")
    label(agent, "nvidia.com/device-plugin.config", "shared")
    agent.allocatable(32, f"{GPU}.shared")
    agent.allocatable(0)
    agent.run_pod("share", 1, resource=f"{GPU}.shared")
    assert agent.running("share").startswith("VISIBLE=GPU-")
    assert agent.pod("whole")["status"]["phase"] == "Running"
    until(lambda: node_label(agent, "nvidia.com/gpu.replicas") == "4", 60, "labels say it too")
    label(agent, "nvidia.com/device-plugin.config", "nobodys")
    until(lambda: "specified config nobodys does not exist" in agent.log, 30, "a wrong name is said")
    agent.allocatable(32, f"{GPU}.shared")
    label(agent, "nvidia.com/device-plugin.config", None)
    agent.allocatable(8)
    agent.allocatable(0, f"{GPU}.shared")
    for name in ("whole", "share"):
        agent.delete(name)


def node_label(agent: Agent, name: str) -> str:
    return str(agent.api.get(f"/api/v1/nodes/{agent.node.name}")["metadata"]["labels"].get(name, ""))


def label(agent: Agent, name: str, value: str | None) -> None:
    body = {"metadata": {"labels": {name: value}}}
    agent.api.patch(f"/api/v1/nodes/{agent.node.name}", body, "merge")


def check_second_agent_refuses(agent: Agent) -> None:
    log = agent.folder / "second.log"
    with log.open("w") as output:
        second = subprocess.Popen([*agent.service.command, "--parts", "plugin"], stderr=output)
    try:
        until(
            lambda: "another device plugin serves nvidia.com/gpu" in log.read_text(),
            30,
            "it refuses, saying why",
        )
    finally:
        second.terminate()
        second.wait(20)
    assert agent.resource("allocatable") == 8
