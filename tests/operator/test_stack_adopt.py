"""`windlass stack adopt` and `release`: what they find in NVIDIA's objects, and both over the API of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.operator.gpu_operator_world import DEPLOY, PLUGIN, GpuOperatorWorld
from tests.operator.test_embedded import Cluster

from windlass.cli.errors import run_command
from windlass.cli.install_crds import make_crd
from windlass.cli.install_operator_crds import operator_crds
from windlass.cli.main import cli
from windlass.embedded.embedded_cluster import EmbeddedCluster, EmbeddedClusterOptions
from windlass.model.unstructured import Unstructured
from windlass.operator.adoption import Adoption, survey
from windlass.operator.decide import take_over
from windlass.operator.kinds.codec import decode_operator_object
from windlass.operator.kinds.gpu_stack import TAKEABLE

POLICY: Unstructured = {
    "spec": {
        "driver": {"version": "580.95.05", "upgradePolicy": {"autoUpgrade": True, "maxUnavailable": "25%"}},
        "devicePlugin": {"enabled": True, "image": "k8s-device-plugin", "config": {"name": "shared"}, "env": []},
        "dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": True}},
    },
    "status": {"state": "ready"},
}
POOL = {"pool": "h100"}
LOST = "not carried over from the ClusterPolicy"


def found(world: GpuOperatorWorld, policy: Unstructured = POLICY, **options: Any) -> Adoption:
    chosen = {"name": "a", "selector": POOL, "take": TAKEABLE} | options
    ignored = {"spec": {}, "status": {"state": "ignored"}}
    return survey(**chosen, observed=world.observe(), policies=[ignored, policy])


def bare_world(count: int = 3) -> GpuOperatorWorld:
    """Nodes of NVIDIA's operator without a stack."""
    world = GpuOperatorWorld(count)
    world.objects["GPUStack"].clear()
    return world


def test_the_stack_says_what_the_nodes_are_and_what_passes() -> None:
    adoption = found(bare_world())
    assert adoption.stack["spec"] == {
        "nodes": {"matchLabels": POOL},
        "driver": {"source": "gpu-operator"},
        "sku": ["NVIDIA-H100-80GB-HBM3"],
        "expect": {"gpus": 8},
        "takeOver": ["plugin", "labels", "exporter", "mig"],
        "maxUnavailable": "25%",
    }
    decode_operator_object(adoption.stack)
    said = {part.step: (part.passes, part.message) for part in adoption.parts}
    assert said["driver"] == (False, "stays with gpu-operator (580.95.05); a FleetChange drives it")
    assert said["plugin"] == (True, f"passes to the node agent on 3 of 3 nodes ({PLUGIN}=windlass)")
    assert [part.step for part in adoption.parts] == [*("driver", "runtime", *TAKEABLE), "validator"]
    assert adoption.obstacles == ()
    assert adoption.differences == (
        f"{LOST}: devicePlugin.config; see the options of `windlass install node`",
        f"{LOST}: dcgmExporter.serviceMonitor; see the options of `windlass install node`",
        "driver.upgradePolicy.autoUpgrade stays on: an edit of a version there reaches all nodes without waves",
    )


def test_what_stays_and_in_what_the_nodes_differ_is_said() -> None:
    world = bare_world()
    world.drivers.clear()
    nodes = list(world.nodes.values())
    nodes[0].loaded, nodes[1].gpus = "570.1", 4
    nodes[2].labels["nvidia.com/gpu.deploy.mig-manager"] = "false"
    adoption = found(world, take=["plugin", "mig"])
    said = {part.step: part.message for part in adoption.parts}
    assert "a FleetChange can't drive it: a driver of gpu-operator is changed beside" in said["driver"]
    assert said["mig"].startswith("passes to the node agent on 2 of 3 nodes")
    assert said["labels"] == "stays with gpu-operator on 3 of 3 nodes"
    assert "expect" not in adoption.stack["spec"]
    assert adoption.differences[:2] == (
        "the nodes have several driver versions: 570.1 on 1, 580.95.05 on 2",
        "the nodes have several numbers of GPUs: 4 on 1, 8 on 2",
    )


def change(label: str, value: str) -> Any:
    return lambda world: world.nodes["gpu-001"].labels.update({label: value})


def add_stack(world: GpuOperatorWorld) -> None:
    world.add("GPUStack", "other", {"nodes": {"matchLabels": POOL}})


@pytest.mark.parametrize(
    ("arrange", "options", "words"),
    [
        (lambda world: None, {"selector": {"pool": "typo"}}, "no node has the labels pool=typo"),
        (
            change("nvidia.com/gpu-driver-upgrade-state", "drain-required"),
            {},
            "is upgrading the driver of gpu-001: wait",
        ),
        (
            change("nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-driver-upgrade"),
            *({}, "a part of gpu-001 is paused (nvidia.com/gpu.deploy.dcgm-exporter=paused-for-driver-upgrade)"),
        ),
        (
            lambda world: None,
            {"selector": {"nvidia.com/gpu.present": "true"}},
            "choose the nodes by a label of your own",
        ),
        (lambda world: None, {"policy": {"spec": {"sandboxWorkloads": {"enabled": True}}}}, "sandboxWorkloads"),
        (add_stack, {}, "GPUStack other selects gpu-000, gpu-001, gpu-002 already"),
    ],
)
def test_what_forbids_it_is_named(arrange: Any, options: dict[str, Any], words: str) -> None:
    world = bare_world()
    arrange(world)
    assert words in "\n".join(found(world, **options).obstacles)


def test_without_the_node_agent_nobody_would_do_it() -> None:
    observed = msgspec.structs.replace(bare_world().observe(), pods={})
    (obstacle,) = survey("a", POOL, TAKEABLE, observed, [POLICY]).obstacles
    assert obstacle.startswith("no node agent runs on gpu-000, gpu-001, gpu-002: windlass install node")
    assert survey("a", POOL, [], observed, [POLICY]).obstacles == ()


def test_nodes_without_gpu_operator_are_not_adopted() -> None:
    world = bare_world()
    for node in world.nodes.values():
        node.labels = {key: value for key, value in node.labels.items() if key not in DEPLOY}
    assert "gpu-operator does not look after these nodes" in found(world).obstacles[0]


# over the API

AGENT = {"app.kubernetes.io/name": "windlass", "app.kubernetes.io/component": "node"}
OURS = "example.com/theirs"
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def nvidia_crd(kind: str, plural: str, version: str) -> Unstructured:
    return make_crd(
        *("nvidia.com", (version,), kind, plural, {"spec": STATUS, "status": STATUS}, ()), namespaced=False, columns=()
    )


def gpu_node(name: str) -> Unstructured:
    labels = {
        "pool": "h100",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        OURS: "yes",
        **DEPLOY,
    }
    taint = {"key": OURS, "effect": "PreferNoSchedule"}
    gpus = {"nvidia.com/gpu": "8", "cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {
        "capacity": gpus,
        "allocatable": gpus,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "nodeInfo": {"containerRuntimeVersion": "containerd://2.4.2"},
    }
    metadata = {"name": name, "labels": labels, "annotations": {OURS: "yes"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}, "status": status}


def daemon_pod(made: Cluster, name: str, number: int, labels: dict[str, str]) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "u", "controller": True}
    metadata = {"name": f"{name}-{number}", "labels": labels, "ownerReferences": [owner]}
    spec = {"nodeName": f"gpu-{number}", "containers": [{"name": name, "image": name}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    made.client.create("pods", "default", {"metadata": metadata, "spec": spec})
    made.client.patch("pods", "default", f"{name}-{number}", {"status": status}, "status")


class AdoptedCluster(Cluster):
    """Nodes whose plugins are not played: what is looked at is what is written."""

    def state(self) -> Any:
        return {
            node["metadata"]["name"]: (
                node["metadata"]["labels"],
                node["metadata"]["annotations"],
                node["spec"],
                [condition["type"] for condition in node["status"]["conditions"]],
            )
            for node in self.nodes()
        }

    def are_open_again(self) -> bool:
        return all([taint["key"] for taint in node["spec"]["taints"]] == [OURS] for node in self.nodes())

    def labels(self) -> set[str]:
        return {node["metadata"]["labels"][PLUGIN] for node in self.nodes()}


@asynccontextmanager
async def nvidia_cluster() -> AsyncIterator[AdoptedCluster]:
    crds = [
        nvidia_crd("ClusterPolicy", "clusterpolicies", "v1"),
        nvidia_crd("NVIDIADriver", "nvidiadrivers", "v1alpha1"),
    ]
    embedded = EmbeddedCluster(EmbeddedClusterOptions(crds=[*operator_crds(), *crds]))
    await embedded.start()
    made = AdoptedCluster(embedded)
    for number in range(2):
        made.client.create("nodes", "", gpu_node(f"gpu-{number}"))
        daemon_pod(made, "agent", number, AGENT)
    made.client.create("clusterpolicies.nvidia.com", "", {"metadata": {"name": "cluster-policy"}, **POLICY})
    try:
        yield made
    finally:
        await made.stop_operator()
        await embedded.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("way", ["the operator gives back", "abandoned", "abandoned after the stack was deleted"])
async def test_adopted_nodes_come_back_as_they_were(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_over, "SETTLE_SECONDS", 1)
    async with nvidia_cluster() as made:
        kubeconfig = tmp_path / "kubeconfig"
        made.embedded.write_kubeconfig(kubeconfig)

        async def windlass(*arguments: str, code: int = 0) -> str:
            command = [*arguments, "--kubeconfig", str(kubeconfig)]
            answer = await asyncio.to_thread(run_command, cli, command, "windlass")
            shown = capsys.readouterr()
            assert answer == code, shown.out + shown.err
            return shown.out + shown.err

        before = made.state()
        adopt = ("stack", "adopt", "h100", "--nodes", "pool=h100", "--keep", "mig")
        said = await windlass(*adopt)
        assert "source: gpu-operator" in said
        assert "nothing was written (--yes writes the GPUStack)" in said
        assert made.client.list("gpustacks.windlass.dev") == []
        assert made.state() == before
        assert "no node has the labels pool=typo" in await windlass(*adopt[:4], "pool=typo", "--yes", code=1)
        await windlass(*adopt, "--yes")
        made.start_operator()
        await made.until(lambda: made.labels() == {"windlass"} and made.are_open_again(), "both nodes have passed")
        assert made.nodes()[0]["metadata"]["labels"]["nvidia.com/gpu.deploy.mig-manager"] == "true"

        release = ("stack", "release", "h100")
        assert f"{PLUGIN}=true" in await windlass(*release)
        assert made.labels() == {"windlass"}
        if way == "the operator gives back":
            # Nothing plays NVIDIA's plugin, which the operator waits for.
            for number in range(2):
                daemon_pod(made, "plugin", number, {"app": "nvidia-device-plugin-daemonset"})
            await windlass(*release, "--yes", "--timeout", "50s")
        else:
            await made.kill_operator()
            if way != "abandoned":
                made.client.delete("gpustacks.windlass.dev", "", "h100")
            await windlass(*release, "--abandon", "--yes")
        assert made.state() == before
        assert made.client.list("gpustacks.windlass.dev") == made.client.list("gpunodes.windlass.dev") == []
        assert "no node was of it" in await windlass(*release, code=2)
