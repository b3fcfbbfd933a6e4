"""The operator on the embedded cluster, over its API: a good change, a bad one, a silent one, a repair, and
restarts.

The cluster is whole (store, API server, DaemonSet controller, simulated kubelets and drivers) but for the scheduler,
whose place a few lines take, since all that is placed are driver containers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.cli.errors import run_command
from windlass.cli.install_operator_crds import operator_crds
from windlass.cli.main import cli
from windlass.embedded.controllers.daemonset import node_of
from windlass.embedded.embedded_cluster import SCHEDULER, EmbeddedCluster, EmbeddedClusterOptions
from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.embedded.runtime.simulated_drivers import DriverBehaviour
from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.model.fleet_spec import Fleet, FleetGpus, FleetPool, FleetSpec
from windlass.model.names.windlass import HELD_DEVICES_ANNOTATION, NOT_READY_GPU_TAINT
from windlass.model.node import Taint
from windlass.operator.controller import Operator, OperatorOptions

PATIENCE = 60.0
OLD, NEW = "580.95.05", "590.44.01"
TAINT = Taint(key=NOT_READY_GPU_TAINT, effect="NoSchedule")
POOL = FleetPool(
    name="h100", count=4, gpus=(FleetGpus(model="H100", count=8),), labels={"pool": "h100"}, taints=(TAINT,)
)
STACK = {
    "nodes": {"matchLabels": {"pool": "h100"}},
    "driver": {"source": "container", "image": "registry.example.com/driver", "version": OLD},
    "maxUnavailable": 2,
    "repair": {"settle": "1s"},
}
CHANGE = {
    "stack": "h100",
    "driver": {"version": NEW},
    "waves": [{"nodes": 1, "bake": "3s"}, {"nodes": "100%", "bake": "1s"}],
}
STACKS, CHANGES, REPAIRS = "gpustacks.windlass.dev", "fleetchanges.windlass.dev", "gpurepairs.windlass.dev"


class Cluster:
    def __init__(self, embedded: EmbeddedCluster) -> None:
        self.embedded, self.client = embedded, embedded.client
        self._operator: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def start_operator(self, **options: Any) -> None:
        token = self.embedded.server.authenticator.issue_token(SCHEDULER, math.inf)
        config = ClientConfig(
            server=self.embedded.server.url,
            credentials=StaticCredentials({"Authorization": f"Bearer {token}"}),
            ca=self.embedded.identity.authority.encode(),
        )
        self._stop = asyncio.Event()

        async def run() -> None:
            async with KubeClient(config) as client:
                chosen = OperatorOptions(leader_elect=False, identity="test", gate_seconds=1, **options)
                await Operator(client, chosen).run(self._stop)

        self._operator = asyncio.create_task(run())

    async def kill_operator(self) -> None:
        """Without a goodbye: whatever it was doing ends there."""
        assert self._operator is not None
        self._operator.cancel()
        with suppress(asyncio.CancelledError):
            await self._operator

    async def stop_operator(self) -> None:
        if self._operator is not None:
            await self.kill_operator()

    async def until(self, seen: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not seen():
                assert self._operator is None or not self._operator.done(), self._operator
                await asyncio.sleep(0.05)
        assert seen(), what

    def nodes(self) -> list[dict[str, Any]]:
        return self.client.list("nodes")

    def drivers(self) -> list[str]:
        label = "nvidia.com/cuda.driver-version.full"
        return sorted(node["metadata"]["labels"].get(label, "") for node in self.nodes())

    def are_open(self) -> bool:
        return all(not node["spec"].get("taints") for node in self.nodes())

    def phase(self, name: str = "r590") -> str:
        found = self.client.find(CHANGES, "", name)
        return (found or {}).get("status", {}).get("phase", "")

    def message(self, name: str = "r590") -> str:
        return str(self.client.get(CHANGES, "", name)["status"]["message"])

    def start_change(self, **fields: Any) -> None:
        self.client.create(CHANGES, "", {"metadata": {"name": "r590"}, "spec": CHANGE | fields})

    def place_drivers(self, kind: str, pod: dict[str, Any], old: dict[str, Any] | None) -> None:
        if kind == "ADDED" and not pod["spec"].get("nodeName") and node_of(pod):
            metadata = pod["metadata"]
            place = (metadata["namespace"], metadata["name"], node_of(pod))
            asyncio.get_running_loop().call_soon(lambda: self.client.bind(*place))


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    import time

    nodes = fleet_nodes(Fleet(spec=FleetSpec(pools=(POOL,))), time.time())
    embedded = EmbeddedCluster(EmbeddedClusterOptions(nodes=nodes, crds=operator_crds()))
    await embedded.start()
    made = Cluster(embedded)
    embedded.client.create("namespaces", "", {"metadata": {"name": "windlass-node"}})
    embedded.client.subscribe("pods", made.place_drivers)
    assert embedded.simulated_nodes is not None
    for version in (OLD, NEW):
        embedded.simulated_nodes.drivers.behaviours[version] = DriverBehaviour(load_seconds=0.2)
    embedded.client.create(STACKS, "", {"metadata": {"name": "h100"}, "spec": STACK})
    try:
        yield made
    finally:
        await made.stop_operator()
        await embedded.stop()


async def brought_up(made: Cluster, **options: Any) -> None:
    assert not made.are_open()
    made.start_operator(**options)
    await made.until(lambda: made.drivers() == [OLD] * 4 and made.are_open(), "all nodes are up")


@pytest.mark.asyncio
async def test_a_good_change_and_a_bad_one() -> None:
    async with cluster() as made:
        await brought_up(made)
        made.start_change()
        await made.until(lambda: made.phase() == "Baking", "the canary bakes")
        assert made.drivers() == [OLD] * 3 + [NEW]
        # A crash of a driver pod outside the canary brings the old version back.
        other = next(pod for pod in made.client.list("pods", "windlass-node") if _revision(pod) == OLD)
        made.client.delete("pods", "windlass-node", other["metadata"]["name"], grace=0)
        await made.kill_operator()
        made.start_operator()
        await made.until(lambda: made.phase() == "Succeeded", "it reaches all nodes")
        await made.until(lambda: made.drivers() == [NEW] * 4 and made.are_open(), "they are open")

        assert made.embedded.simulated_nodes is not None
        behaviours = made.embedded.simulated_nodes.drivers.behaviours
        behaviours["600.1"] = DriverBehaviour(load_seconds=0.2, xid=119, xid_after=0.5)
        made.client.create(
            CHANGES, "", {"metadata": {"name": "r600"}, "spec": CHANGE | {"driver": {"version": "600.1"}}}
        )
        await made.until(lambda: made.phase("r600") in ("RollingBack", "RolledBack"), "it goes back")
        await made.kill_operator()
        made.start_operator()
        await made.until(lambda: made.phase("r600") == "RolledBack", "it is back")
        assert "Xid 119 on 1 of 1 changed, 0 of 3 control nodes" in made.message("r600")
        await made.until(lambda: made.drivers() == [NEW] * 4 and made.are_open(), "as before")
        assert made.client.list(REPAIRS) == []


@pytest.mark.asyncio
async def test_a_change_without_data_is_held_and_goes_back_in_the_end() -> None:
    async with cluster() as made:
        await brought_up(made)
        gate = {"name": "p99", "family": "slo", "query": 'p99{node=~"$nodes"}', "maxRatio": 1.2}
        made.start_change(gates=[gate], dataTimeout="3s")
        await made.until(lambda: made.phase() == "Held", "there is no data")
        assert "no Prometheus is configured" in made.message()
        await made.until(lambda: made.phase() == "RolledBack", "no data never passes")
        await made.until(lambda: made.drivers() == [OLD] * 4 and made.are_open(), "as before")


@pytest.mark.asyncio
async def test_one_gpu_of_eight_is_reset_and_the_node_stays_open() -> None:
    async with cluster() as made:
        await brought_up(made)
        assert made.embedded.faults is not None
        made.embedded.faults.fail("gpu/h100-2:5", 48)

        def repair() -> dict[str, Any]:
            found = made.client.list(REPAIRS)
            return found[0].get("status", {}) if found else {}

        def node() -> dict[str, Any]:
            return made.client.get("nodes", "", "h100-2")

        await made.until(lambda: HELD_DEVICES_ANNOTATION in (node()["metadata"].get("annotations") or {}), "it is held")
        assert node()["status"]["allocatable"]["nvidia.com/gpu"] == "7"
        assert not node()["spec"].get("taints")
        await made.until(lambda: repair().get("phase") == "Returned", "it is healed")
        await made.until(lambda: node()["status"]["allocatable"]["nvidia.com/gpu"] == "8", "it is back")
        rungs = [(attempt["rung"], attempt["result"]) for attempt in repair()["attempts"]]
        assert rungs == [("reset", "Done"), ("validate", "Done")]


@pytest.mark.asyncio
async def test_people_steer_it_with_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cluster() as made:
        await brought_up(made)
        kubeconfig = tmp_path / "kubeconfig"
        made.embedded.write_kubeconfig(kubeconfig)

        async def windlass(*arguments: str, code: int = 0) -> str:
            command = [*arguments, "--kubeconfig", str(kubeconfig)]
            found = await asyncio.to_thread(run_command, cli, command, "windlass")
            shown = capsys.readouterr()
            assert found == code, shown.err
            return shown.out + shown.err

        file = tmp_path / "change.yaml"
        long = CHANGE | {"waves": [{"nodes": 1, "bake": "1h"}, {"nodes": "100%", "bake": "1s"}]}
        tree = {
            "apiVersion": "windlass.dev/v1alpha1",
            "kind": "FleetChange",
            "metadata": {"name": "r590"},
            "spec": long,
        }
        file.write_text(yaml.safe_dump(tree))
        assert "4/4" in await windlass("stack", "status")
        assert "driver    Done     windlass" in await windlass("stack", "explain", "h100-0")
        assert "h100-0" in await windlass("change", "plan", "-f", str(file))
        await windlass("change", "start", "-f", str(file))
        await made.until(lambda: made.phase() == "Baking", "the canary bakes")
        tree["metadata"] = {"name": "second"}
        file.write_text(yaml.safe_dump(tree))
        assert "change r590 of stack h100 is unfinished" in await windlass("change", "start", "-f", str(file), code=1)
        made.client.create(CHANGES, "", {"metadata": {"name": "second"}, "spec": CHANGE})
        await made.until(lambda: made.phase("second") == "Refused", "a second change is refused by the operator too")
        assert "wave 1 of 2 is watched for 1h" in await windlass("change", "status", "r590", code=1)
        assert "retry is for Refused" in await windlass("change", "retry", "r590", code=1)
        await windlass("change", "pause", "r590")
        await windlass("change", "promote", "r590", "--reason", "seen enough")
        await made.until(lambda: "paused" in made.message(), "it takes no further node")
        assert made.drivers() == [OLD] * 3 + [NEW]
        await windlass("change", "resume", "r590")
        await made.until(lambda: made.phase() == "Succeeded", "all nodes have it")
        await windlass("change", "rollback", "r590", "--reason", "slow loads")
        await made.until(lambda: made.phase() == "RolledBack", "all nodes are back")
        await made.until(lambda: made.drivers() == [OLD] * 4 and made.are_open(), "as before")

        said = await windlass("quarantine", "h100-1:2", "--reason", "wrong results")
        name = said.split("repair ")[1].split()[0]
        await made.until(
            lambda: made.client.get(REPAIRS, "", name).get("status", {}).get("phase") == "Held", "it is out of service"
        )
        assert made.client.get("nodes", "", "h100-1")["status"]["allocatable"]["nvidia.com/gpu"] == "7"
        assert name in await windlass("repair", "list")
        assert "wrong results" in await windlass("repair", "show", name)
        await windlass("repair", "return", name)
        await made.until(
            lambda: made.client.get("nodes", "", "h100-1")["status"]["allocatable"]["nvidia.com/gpu"] == "8",
            "it is back",
        )
        refused = await windlass("quarantine", "h100-1:33", "--reason", "x", code=2)
        assert "node h100-1 has no GPU 33" in refused
        assert "its GPUs are 0, 1, 2, 3, 4, 5, 6, 7" in refused
        assert "no GPUStack looks after node 'nowhere'" in await windlass(
            "quarantine", "nowhere", "--reason", "x", code=2
        )


@pytest.mark.asyncio
async def test_the_shadow_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "windlass.operator")
    async with cluster() as made:
        before = [node["metadata"]["resourceVersion"] for node in made.nodes()]
        made.start_operator(shadow=True)
        await made.until(lambda: "shadow: would write" in caplog.text, "it says what it would do")
        assert [node["metadata"]["resourceVersion"] for node in made.nodes()] == before
        assert made.client.list("gpunodes.windlass.dev") == []


def _revision(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"].get("windlass.dev/driver-revision", ""))
