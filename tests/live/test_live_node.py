"""The shipped image in the DaemonSet that `windlass install node` prints, on a real kubelet with simulated GPUs: it
gets ready, serves pods that are not root, stays within its limit of memory, and is upgraded under running pods."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.node.machines import FLEET
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode
from tests.real_cluster.service_proxy import service_proxy

from windlass.cli.install import install
from windlass.cli.install_node_manifests import HOST_PATHS
from windlass_bench.cgroup_memory import CgroupMemory, cgroup_of, read_memory

GPU = "nvidia.com/gpu"
AGENTS = "/api/v1/namespaces/windlass-node/pods"
PODS = "/api/v1/namespaces/default/pods"
DAEMON_SET = "/apis/apps/v1/namespaces/windlass-node/daemonsets/windlass-node"
OPENS_DEVICE = "while true; do id -u; cat /dev/nvidia[0-9]* 2>&1; sleep 0.5; done"
NO_DRIVER = "No such device or address"
"""What the kernel answers to one who may open a device node that no driver serves."""
MIB = 1 << 20


@pytest.fixture
def cluster_with_image(
    control_plane: ControlPlane, installed_node: RealNode, node_image: Path
) -> Iterator[ControlPlane]:
    """A node as users have it, with the agent's image; pods get tokens and find the API server."""
    installed_node.import_image(node_image)
    peer = control_plane.scheduler()
    with control_plane.service_accounts(), service_proxy(control_plane):
        until(installed_node.ready, 60, "the node is seen again")
        peer.start()
        try:
            yield control_plane
        finally:
            peer.stop()


@pytest.fixture
def lab(installed_node: RealNode) -> Iterator[Path]:
    """A folder that the agent's pod sees, for the machine that its GPUs are simulated on."""
    new = [Path(path) for path in HOST_PATHS.values() if not Path(path).exists()]
    folder = Path(HOST_PATHS["state"], "lab")
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    folder.mkdir(parents=True)
    yield folder
    installed_node.stop()  # the agent writes there as long as it lives
    for path in (folder, *new):
        shutil.rmtree(path, ignore_errors=True)


class Agent:
    """The printed DaemonSet on the real node; its arguments say that the GPUs are simulated, and nothing is changed."""

    def __init__(self, api: Api, node: RealNode, lab: Path, gpus: int) -> None:
        self.api, self.node, self.gpus = api, node, gpus
        self.node_path = f"/api/v1/nodes/{node.name}"
        make_machine(lab, gpus)
        arguments = (f"--arg=--fleet={lab}/fleet.yaml", f"--arg=--root={lab}/machine", f"--config={lab}/config.yaml")
        done = CliRunner().invoke(install, ["node", *arguments], catch_exceptions=False)
        api.create(*yaml.safe_load_all(done.stdout))
        api.patch(self.node_path, {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}, "merge")

    def pod(self) -> Object:
        """The agent's pod that is not on its way out; an empty object if there is none."""
        pods = self.api.items(AGENTS, labelSelector="app.kubernetes.io/component=node")
        return next((pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), {})

    def status(self) -> Object:
        statuses = self.pod().get("status", {}).get("containerStatuses") or [{}]
        return dict(statuses[0])

    def log(self) -> str:
        return str(self.api.get(f"{AGENTS}/{self.pod()['metadata']['name']}/log")["text"])

    def allocatable(self) -> str:
        return str(self.api.get(self.node_path)["status"]["allocatable"].get(GPU, ""))

    def wait_until_serving(self) -> None:
        def is_serving() -> bool:
            status = self.status()
            assert not status.get("restartCount"), f"the agent has ended: {status}"
            return bool(status.get("ready")) and self.allocatable() == str(self.gpus)

        until(is_serving, 120, f"the agent is ready and the kubelet advertises {self.gpus} GPUs")

    def process(self) -> Path:
        """The container's own process, as this machine's kernel sees it."""
        container = self.status()["containerID"].partition("//")[2]
        (line,) = [each for each in self.node.ctr("tasks", "list").splitlines() if container in each]
        return Path("/proc") / line.split()[1]

    def memory(self) -> CgroupMemory:
        return read_memory(cgroup_of(self.process()))


def make_machine(folder: Path, gpus: int) -> None:
    """The Fleet, and the GPUs' device nodes as a driver makes them: real ones, with no driver behind them."""
    (folder / "fleet.yaml").write_text(FLEET.replace("count: 8", f"count: {gpus}"))
    (folder / "config.yaml").write_text("flags: {plugin: {deviceListStrategy: cdi-cri}}")
    devices = folder / "machine/dev"
    devices.mkdir(parents=True)
    for number in range(gpus):
        os.mknod(devices / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(195, number))
        (devices / f"nvidia{number}").chmod(0o666)


def run_pod(agent: Agent, name: str) -> None:
    """A pod with one GPU and a user who is not root, which opens its device again and again."""
    until(lambda: agent.api.exists("/api/v1/namespaces/default/serviceaccounts/default"))
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", OPENS_DEVICE],
        "resources": {"limits": {GPU: "1"}},
        "securityContext": {"runAsUser": 65534, "runAsNonRoot": True, "allowPrivilegeEscalation": False},
    }
    spec = {"containers": [container], "nodeName": agent.node.name, "terminationGracePeriodSeconds": 0}
    agent.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def output_of(api: Api, name: str) -> list[str]:
    """What a running pod has said so far, line by line."""
    path = f"{PODS}/{name}"
    until(lambda: api.get(path)["status"].get("phase") == "Running", 60, f"{name} runs")
    return str(api.get(f"{path}/log")["text"]).splitlines()


def check_opens_its_device(agent: Agent, name: str) -> str:
    """Not root, one device, and the kernel lets it open that; the device's name."""
    lines = until(lambda: output_of(agent.api, name)[1:2] and output_of(agent.api, name), 30, f"{name} has spoken")
    assert lines[0] == "65534"
    assert NO_DRIVER in lines[1], "neither cgroup nor permissions keep it from the device"
    assert set(lines) <= {"65534", lines[1]}, "one device, and from then on the same answer"
    (device,) = re.findall(r"/dev/nvidia\d+", lines[1])
    return str(device)


def check_rollout(agent: Agent) -> None:
    """An upgrade as users do it: a new pod in place of the old one, the same GPUs."""
    before = agent.pod()["metadata"]["name"]
    template = {"metadata": {"annotations": {"windlass.test/version": "next"}}}
    agent.api.patch(DAEMON_SET, {"spec": {"template": template}}, "strategic")
    until(lambda: agent.pod().get("metadata", {}).get("name") not in (None, before), 60, "another pod of the agent")
    agent.wait_until_serving()
    rolled_out = agent.api.get(DAEMON_SET)["status"]
    until(lambda: agent.api.get(DAEMON_SET)["status"].get("numberReady") == 1, 30, f"{rolled_out}")


def test_the_printed_daemon_set_serves_pods_and_is_upgraded_under_them(
    cluster_with_image: ControlPlane, installed_node: RealNode, lab: Path
) -> None:
    """One walk: a kubelet takes seconds to start, and each step stands on the one before."""
    api = cluster_with_image.api
    agent = Agent(api, installed_node, lab, gpus=8)
    agent.wait_until_serving()
    assert is_root(agent.process()), "the image's own user may write to no folder of the host"
    labels = until(lambda: "nvidia.com/gpu.count" in labels_of(api, agent) and labels_of(api, agent), 60, "labels")
    assert labels["nvidia.com/gpu.count"] == "8", agent.log()
    run_pod(agent, "before")
    device = check_opens_its_device(agent, "before")
    container = container_of(api, "before")
    check_rollout(agent)
    said = len(output_of(api, "before"))
    until(lambda: len(output_of(api, "before")) > said + 2, 30, "the pod goes on")
    assert check_opens_its_device(agent, "before") == device
    assert container_of(api, "before") == container, "it was not started again"
    run_pod(agent, "after")
    assert check_opens_its_device(agent, "after") != device, "the new agent knows what is taken"
    check_memory(agent)


def test_sixteen_gpus_fit_into_the_limit(cluster_with_image: ControlPlane, installed_node: RealNode, lab: Path) -> None:
    agent = Agent(cluster_with_image.api, installed_node, lab, gpus=16)
    agent.wait_until_serving()
    check_memory(agent)


def check_memory(agent: Agent) -> None:
    """In the container's own cgroup, where the kernel compares it with the limit."""
    until(lambda: agent.memory().anonymous < 100 * MIB, 60, f"it has settled: {agent.memory()}")
    memory = agent.memory()
    limits = agent.pod()["spec"]["containers"][0]["resources"]["limits"]
    assert f"{memory.limit // MIB}Mi" == limits["memory"], "the limit is in force"
    assert memory.highest < memory.limit // 2, f"{memory}"
    assert memory.failures == 0, f"{memory}"
    print(f"{agent.gpus} GPUs: {memory}")


def is_root(process: Path) -> bool:
    lines = (process / "status").read_text().splitlines()
    return next(line for line in lines if line.startswith("Uid:")).split()[1] == "0"


def labels_of(api: Api, agent: Agent) -> dict[str, str]:
    return dict(api.get(agent.node_path)["metadata"].get("labels") or {})


def container_of(api: Api, name: str) -> tuple[str, int]:
    (status,) = api.get(f"{PODS}/{name}")["status"]["containerStatuses"]
    return str(status["containerID"]), int(status["restartCount"])
