"""GPUs of this machine that fall ill: the simulated back end plays the driver of `--gpus real`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.embedded.runtime.host import PATIENCE, Host

from windlass.embedded.embedded_cluster import gpu_count
from windlass.model.fleet_spec import FleetPool
from windlass.model.unstructured import Unstructured
from windlass.node.backend.protocol import DeviceError
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.health_rules import HealthRules
from windlass.node.health_watch import Timing
from windlass.sharing.inventory import Inventory

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.18gb"
CUT = [{"model": "H200", "count": 1, "mig": ["1g.18gb"] * 7}]
SLEEP = ("sleep", "1000")
RULES = HealthRules(quiet_seconds=0.2, throttled_seconds=0.2)
TIMING = Timing(round_seconds=0.05, reading_seconds=0.05, validation_retry_seconds=0.1)


class Watched(Host):
    """A machine, and the driver behind it."""

    def __init__(self, folder: Path, gpus: list[Unstructured]) -> None:
        self.driver = SimulatedBackend(msgspec.convert({"name": "n", "gpus": gpus}, FleetPool))
        super().__init__(folder, lambda: self.driver, rules=RULES, timing=TIMING)

    @property
    def node(self) -> Unstructured:
        return self.verbs.get("nodes", "", self.name)

    def allocatable(self, resource: str = GPU) -> int:
        return int(self.node["status"]["allocatable"][resource])

    def ill(self) -> str:
        return str(self.node["metadata"]["annotations"].get("windlass.dev/unhealthy-devices", ""))

    def told(self, reason: str) -> list[str]:
        return [
            str(event["message"])
            for event in self.verbs.list("events")
            if event["reason"] == reason and event["involvedObject"]["kind"] == "Node"
        ]


async def _watched(folder: Path, gpus: list[Unstructured]) -> AsyncIterator[Watched]:
    host = Watched(folder, gpus)
    try:
        yield host
    finally:
        await host.close()


@pytest_asyncio.fixture
async def host(tmp_path: Path) -> AsyncIterator[Watched]:
    async for watched in _watched(tmp_path, [{"model": "H200", "count": 2}]):
        yield watched


@pytest_asyncio.fixture
async def cut(tmp_path: Path) -> AsyncIterator[Watched]:
    async for watched in _watched(tmp_path, CUT):
        yield watched


async def two_pods(host: Watched) -> tuple[str, str]:
    """Running pods, one on each GPU: the one on GPU 0 first."""
    for name in ("one", "two"):
        host.start(name, *SLEEP, limits={GPU: "1"})
        await host.until_phase(name, "Running")
    machine = host.nodes.this_machine.device_manager
    (first,), (second,) = machine.pods_using(0), machine.pods_using(1)
    return first.partition("/")[2], second.partition("/")[2]


@pytest.mark.asyncio
class TestFaults:
    async def test_a_gpu_off_the_bus_is_gone_and_so_is_its_pod(self, host: Watched) -> None:
        hit, beside = await two_pods(host)
        host.driver.inject(0, 79, is_lost=True)
        pod = await host.until_phase(hit, "Failed")
        assert pod["status"]["reason"] == "GPUUnhealthy"
        assert "GPU 0 (GPU-" in pod["status"]["message"], "which may be hit by the loss, or by the Xid, first"
        conditions = {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}
        assert conditions["DisruptionTarget"] == "True"
        assert (host.allocatable(), host.ill(), gpu_count(host.node)) == (1, "0", 2)
        gone = "Xid 79: GPU has fallen off the bus; drain the node and reboot it"
        await host.until(lambda: any(gone in said for said in host.told("GPUUnhealthy")))
        assert host.pod(beside)["status"]["phase"] == "Running"

    async def test_its_process_is_killed_and_its_log_ends(self, host: Watched) -> None:
        host.start("p", "sh", "-c", "echo begun; exec sleep 1000", limits={GPU: "2"})
        await host.until_logged("p", "begun")
        host.driver.inject(1, 48)
        await host.until_phase("p", "Failed")
        async with asyncio.timeout(PATIENCE):
            assert await host.logs("p", follow=True) == "begun\n"

    async def test_a_double_bit_error_without_an_xid(self, host: Watched) -> None:
        hit, _ = await two_pods(host)
        host.driver.inject(0, double_bit_errors=1)
        pod = await host.until_phase(hit, "Failed")
        assert "double-bit ECC error" in pod["status"]["message"]

    async def test_the_application_s_own_mistake_is_told_and_no_more(self, host: Watched) -> None:
        await two_pods(host)
        host.driver.inject(0, 31)
        await host.until(lambda: host.told("GPUXid"))
        assert "Xid 31: GPU memory page fault; restart the application" in host.told("GPUXid")[0]
        assert (host.allocatable(), host.ill()) == (2, "")
        assert {host.pod(name)["status"]["phase"] for name in ("one", "two")} == {"Running"}

    async def test_heat_keeps_new_pods_away_and_leaves_running_ones_alone(self, host: Watched) -> None:
        hit, _ = await two_pods(host)
        host.driver.inject(0, throttle=0x40)
        await host.until(lambda: host.allocatable() == 1)
        assert host.pod(hit)["status"]["phase"] == "Running"
        host.driver.recover(0)
        await host.until(lambda: host.allocatable() == 2)
        assert host.pod(hit)["status"]["phase"] == "Running"

    async def test_it_is_given_away_again_once_it_computes_right(self, host: Watched) -> None:
        host.driver.inject(0, 48, refuses=["compute"])
        await host.until(lambda: any("numbers are wrong" in said for said in host.told("GPUUnhealthy")))
        assert host.ill() == "0"
        host.start("early", *SLEEP, limits={GPU: "2"})
        assert (await host.until_phase("early", "Failed"))["status"]["reason"] == "UnexpectedAdmissionError"
        host.driver.inject(0, refuses=[])
        await host.until(lambda: (host.allocatable(), host.ill()) == (2, ""))
        host.start("late", *SLEEP, limits={GPU: "2"})
        await host.until_phase("late", "Running")
        assert host.told("GPUHealthy")

    async def test_only_the_instance_that_was_hit(self, cut: Watched) -> None:
        for name in ("one", "two"):
            cut.start(name, *SLEEP, limits={SLICE: "1"})
            await cut.until_phase(name, "Running")
        machine = cut.nodes.this_machine.device_manager
        (unit,) = machine.allocated_to("default/one")
        (instance,) = (
            instance
            for gpu in cut.driver.inventory().gpus
            for instance in gpu.instances
            if instance.uuid == machine.uuid_of(unit)
        )
        cut.driver.inject(0, 48, gpu_instance=instance.gpu_instance)
        pod = await cut.until_phase("one", "Failed")
        assert instance.uuid in pod["status"]["message"]
        assert (cut.allocatable(SLICE), cut.ill()) == (6, "")
        assert cut.pod("two")["status"]["phase"] == "Running"


@pytest.mark.asyncio
async def test_a_driver_in_trouble_is_waited_for(host: Watched) -> None:
    """Faults that come after the driver has refused to answer are not lost."""
    honest, refused = host.driver.inventory, []

    def refuse() -> Inventory:
        refused.append(1)
        raise DeviceError("GPU 0: Unknown Error")

    host.driver.inventory = refuse  # type: ignore[method-assign]
    await host.until(lambda: len(refused) > 2)
    host.driver.inject(0, 95)
    host.driver.inventory = honest  # type: ignore[method-assign]
    await host.until(lambda: host.allocatable() == 1)


@pytest.mark.asyncio
async def test_what_a_person_is_told_at_the_start(host: Watched) -> None:
    assert any("Xids, ECC errors and counters of these GPUs are watched" in line for line in host.nodes.notes)
