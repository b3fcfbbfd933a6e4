"""The device plugin against a kubelet that speaks real gRPC over Unix sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import msgspec
import pytest
from tests.node.fake_mps import FakeMps
from tests.node.machines import machine, until

from windlass.node.backend.protocol import DeviceError
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.backend.simulated_state import MigInstanceState
from windlass.node.cdi import read_spec
from windlass.node.cdi_writer import CdiWriter
from windlass.node.config_source import ConfigSource
from windlass.node.container_runtime import ContainerRuntime, RuntimeWatch
from windlass.node.device_cordon import release_elsewhere
from windlass.node.health import HealthTracker
from windlass.node.health_rules import HealthRules
from windlass.node.health_watch import Timing
from windlass.node.host_root import HostRoot
from windlass.node.mig_apply import apply_plans
from windlass.node.plugin.manager import ConflictingPlugin, PluginManager
from windlass.node.plugin.process import PluginProcess
from windlass.node.preferred_devices import PendingPod, PreferredDevicesFile, write_preferred_devices
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.inventory import Inventory
from windlass.sharing.mig_plan import plan_gpu
from windlass.sharing.plugin_config import resolve_config
from windlass_bench.fake_kubelet import FakeKubelet

GPU = "nvidia.com/gpu"


class CountedProcess(PluginProcess):
    rounds = 0

    def sync(self) -> None:
        super().sync()
        self.rounds += 1


class Node:
    """A simulated machine, a plugin process in a thread, and a kubelet."""

    def __init__(self, folder: Path, backend: SimulatedBackend, config: str = "", **flags: object) -> None:
        self.folder = folder
        self.backend = backend
        self.kubelet = FakeKubelet(folder / "plugins")
        self.log: list[str] = []
        self.config_file = folder / "config.yaml"
        self.config_file.write_text(config)
        self.flags = flags
        self.state = folder / "state"
        self.runtime: ContainerRuntime | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self.make()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.process.run, args=(self._stop,))
        self._thread.start()

    def make(self) -> None:
        root = HostRoot(self.backend.folder or "/nowhere")
        config = ConfigSource(self.config_file, {}, self.flags, log=self.log.append)
        preferred = PreferredDevicesFile(self.folder / "state/preferred-devices.json")
        self.process = CountedProcess(
            self.backend,
            root,
            config,
            PluginManager(self.folder / "plugins", root, self.log.append, preferred_devices=preferred),
            HealthTracker(HealthRules(quiet_seconds=0.3), time.monotonic),
            state=self.state,
            cdi=CdiWriter(self.folder / "cdi", root, self.log.append),
            log=self.log.append,
            timing=Timing(round_seconds=0.05, reading_seconds=0.1, validation_retry_seconds=0.2),
            runtime=RuntimeWatch(lambda: self.runtime, self.log.append),
        )

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self.process.wake()
            self._thread.join(10)

    def ids(self) -> list[str]:
        return [gpu.uuid for gpu in self.backend.inventory().gpus]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.stop()
        node.kubelet.stop()


def started(nodes: list[Node], node: Node) -> Node:
    nodes.append(node)
    node.kubelet.start()
    node.start()
    return node


def eight(nodes: list[Node], folder: Path, config: str = "", **flags: object) -> Node:
    node = started(nodes, Node(folder, machine(folder=folder / "machine"), config, **flags))
    until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="all GPUs are advertised and healthy")
    return node


class TestRegistration:
    def test_registers_with_its_options(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        (request,) = node.kubelet.registrations
        assert (request.version, request.endpoint, request.resource_name) == (
            "v1beta1",
            "nvidia-gpu.sock",
            GPU,
        )
        assert request.options.get_preferred_allocation_available
        assert not request.options.pre_start_required

    def test_every_device_says_its_numa_node(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        numa = [node.kubelet.devices(GPU)[name]["numa"] for name in node.ids()]
        assert numa == ["0"] * 4 + ["1"] * 4

    def test_registers_again_after_a_kubelet_restart(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        node.kubelet.stop()
        node.kubelet.start()
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="the new kubelet knows all GPUs")
        assert len(node.kubelet.registrations) == 2

    def test_waits_for_a_kubelet_that_comes_late(self, nodes: list[Node], tmp_path: Path) -> None:
        node = Node(tmp_path, machine(folder=tmp_path / "machine"))
        nodes.append(node)
        node.start()
        until(lambda: any("waiting for the kubelet" in line for line in node.log))
        node.kubelet.start()
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="the late kubelet knows all GPUs")

    def test_a_second_plugin_for_the_same_resource_refuses(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        second = PluginManager(tmp_path / "plugins", HostRoot(tmp_path / "machine"), lambda line: None)
        with pytest.raises(ConflictingPlugin, match=r"another device plugin serves nvidia\.com/gpu"):
            second.refuse_conflicting_plugin(node.backend.inventory(), resolve_config())

    def test_a_dead_plugins_socket_is_no_owner(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        node.stop()
        (tmp_path / "plugins/nvidia-gpu.sock").touch()
        node.start()
        until(lambda: len(node.kubelet.registrations) == 2)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="the new plugin is in charge")


class TestHealth:
    def test_nothing_is_healthy_before_the_validator_has_passed(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(folder=tmp_path / "machine")
        backend.inject(2, refuses=["compute"])
        node = started(nodes, Node(tmp_path, backend))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 7, what="seven have passed")
        assert backend.inventory().gpus[2].uuid not in node.kubelet.healthy_devices(GPU)
        assert any("numbers are wrong" in line for line in node.log)
        backend.inject(2, refuses=[])
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="the eighth passes later")

    def test_a_restart_on_the_same_boot_needs_no_new_pass(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        node.stop()
        for at in range(8):
            node.backend.inject(at, refuses=["compute"])
        node.start()
        until(lambda: len(node.kubelet.registrations) == 2)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="they are healthy at once")

    def test_a_fatal_xid_is_told_and_recovered_from(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        begun = time.monotonic()
        node.backend.inject(3, 48, recovery_action=1)
        until(lambda: node.ids()[3] not in node.kubelet.healthy_devices(GPU), what="the kubelet is told")
        assert time.monotonic() - begun < 2
        assert len(node.kubelet.healthy_devices(GPU)) == 7
        assert any("Xid 48" in line and "reset" in line for line in node.log)
        node.backend.recover(3)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="it is back")

    def test_an_applications_xid_is_said_and_changes_nothing(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        before = node.kubelet.updates[GPU]
        node.backend.inject(3, 31)
        until(lambda: any("Xid 31" in line for line in node.log))
        assert node.kubelet.updates[GPU] == before

    def test_a_lost_gpu_takes_no_other_with_it(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        node.backend.inject(0, is_lost=True)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 7, what="one is lost")
        chosen = node.kubelet.get_preferred_allocation(GPU, 2, node.ids(), [])
        assert len(chosen) == 2
        assert node.ids()[0] not in chosen

    def test_all_replicas_of_a_gpu_fall_ill_together(self, nodes: list[Node], tmp_path: Path) -> None:
        config = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
        node = started(nodes, Node(tmp_path, machine(folder=tmp_path / "machine"), config))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 32)
        node.backend.inject(5, 79, is_lost=True)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 28, what="all four replicas are told")

    def test_all_instances_of_a_gpu_fall_ill_together(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=2, mig=("1g.10gb",) * 7, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
        name = "nvidia.com/mig-1g.10gb"
        until(lambda: len(node.kubelet.healthy_devices(name)) == 14)
        backend.inject(0, 79, recovery_action=2)
        until(lambda: len(node.kubelet.healthy_devices(name)) == 7, what="the other GPU's are left")

    def test_an_instance_falls_ill_alone(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=1, mig=("1g.10gb",) * 7, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
        name = "nvidia.com/mig-1g.10gb"
        until(lambda: len(node.kubelet.healthy_devices(name)) == 7)
        ill = backend.inventory().gpus[0].instances[2]
        backend.inject(0, 95, gpu_instance=ill.gpu_instance)
        until(lambda: len(node.kubelet.healthy_devices(name)) == 6)
        assert ill.uuid not in node.kubelet.healthy_devices(name)


class TestLiveChanges:
    def test_a_new_mig_layout_is_advertised_without_a_restart(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=1, mig=("1g.10gb",) * 7, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
        until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-1g.10gb")) == 7)
        uuid = backend.inventory().gpus[0].uuid
        for instance in backend.inventory().gpus[0].instances[4:]:
            backend.destroy_instance(uuid, instance.gpu_instance)
        backend.create_instance(uuid, "3g.40gb", 4)
        until(
            lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-3g.40gb")) == 1,
            what="the new resource is there",
        )
        until(lambda: len(node.kubelet.devices("nvidia.com/mig-1g.10gb")) == 4)

    def test_a_changed_config_is_followed_and_a_wrong_one_is_not(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        node.config_file.write_text("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 16, what="the new config is in force")
        node.config_file.write_text("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}")
        until(lambda: any("last good configuration stays" in line and "replicas" in line for line in node.log))
        assert len(node.kubelet.healthy_devices(GPU)) == 16

    def test_the_cdi_spec_is_there_and_follows_mig(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=1, mig=("3g.40gb", "3g.40gb"), folder=tmp_path / "machine")
        config = "flags: {migStrategy: mixed, plugin: {deviceListStrategy: cdi-cri}}"
        node = started(nodes, Node(tmp_path, backend, config))
        until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-3g.40gb")) == 2)
        file = tmp_path / "cdi/k8s.device-plugin.nvidia.com-gpu.json"

        def names() -> set[str]:
            return {device.name for device in read_spec(file.read_bytes()).devices}

        first, second = (instance.uuid for instance in backend.inventory().gpus[0].instances)
        assert {"all", "0:0", first, second} <= names()
        gone = backend.inventory().gpus[0].instances[1].gpu_instance
        backend.destroy_instance(backend.inventory().gpus[0].uuid, gone)
        until(lambda: second not in names(), what="the spec follows")
        answer = node.kubelet.allocate("nvidia.com/mig-3g.40gb", first)
        assert [device.name for device in answer.cdi_devices] == [f"k8s.device-plugin.nvidia.com/gpu={first}"]


@pytest.mark.parametrize(("replicas", "advertised"), [(7_000, 56_000), (10_000, 0)])
def test_a_list_that_the_kubelet_would_not_take_is_refused(tmp_path: Path, replicas: int, advertised: int) -> None:
    """Its gRPC takes 4 MiB, and it would say so in its own log only."""
    backend = machine(count=8, folder=tmp_path / "machine")
    entry = {"name": GPU, "replicas": replicas}
    config = resolve_config({"sharing": {"timeSlicing": {"resources": [entry]}}})
    log: list[str] = []
    manager = PluginManager(tmp_path, HostRoot(tmp_path / "machine"), log.append)
    resources = manager.advertised_resources(backend.inventory(), config)
    assert sum(len(resource.devices) for resource in resources) == advertised
    assert advertised or "80000 nvidia.com/gpu is longer than the kubelet takes (4 MiB) (use fewer replicas)" in log[0]
    whole = dp.ListAndWatchResponse(
        devices=[
            dp.Device(ID=device.id, health="Unhealthy", topology=dp.TopologyInfo(nodes=[dp.NUMANode(ID=1)]))
            for resource in resources
            for device in resource.devices
        ]
    )
    assert len(whole.SerializeToString()) <= 4 << 20


class TestLayoutThatDoesNotFit:
    def test_devices_that_are_gone_are_unhealthy_at_once(self, nodes: list[Node], tmp_path: Path) -> None:
        """Seven alike under the strategy single, then two that differ, which it can't advertise."""
        backend = machine(count=1, mig=("1g.10gb",) * 7, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: single}"))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 7)
        card = backend.inventory().gpus[0]
        with backend.store.change() as state:  # in one step: nothing in between can be advertised
            other = MigInstanceState(gpu_instance=9, profile="3g.40gb", start=4, uuid="MIG-other")
            state.gpus[0].cuts = [state.gpus[0].cuts[0], other]
        until(lambda: any("last good resources" in line for line in node.log))
        until(lambda: node.kubelet.healthy_devices(GPU) == [card.instances[0].uuid], what="what exists is all")

    def test_a_gpu_that_was_partitioned_is_no_whole_gpu(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=2, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: single}"))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 2)
        first, second = node.ids()
        backend.set_mig_mode(first, True)
        backend.create_instance(first, "3g.40gb", 0)
        until(lambda: node.kubelet.healthy_devices(GPU) == [second], what="only the other is left")


class Remembering(SimulatedBackend):
    """As NVML on an H200: what another process makes is what was there before, until it is opened again.

    NVML goes by the instance's number, which is free again there and not here; the slice stands for it.
    """

    def inventory(self) -> Inventory:
        found = super().inventory()
        self.names: dict[int, str] = getattr(self, "names", {})
        gpus = []
        for gpu in found.gpus:
            named = [(each, self.names.setdefault(each.start, each.profile)) for each in gpu.instances]
            instances = tuple(msgspec.structs.replace(each, profile=name) for each, name in named)
            gpus.append(msgspec.structs.replace(gpu, instances=instances))
        return msgspec.structs.replace(found, gpus=tuple(gpus))

    def release(self) -> None:
        super().release()
        self.names = {}


def test_an_instance_is_not_taken_for_the_one_before_it(nodes: list[Node], tmp_path: Path) -> None:
    backend = machine(count=1, folder=tmp_path / "machine")
    backend.__class__ = Remembering
    node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
    until(lambda: len(node.kubelet.healthy_devices(GPU)) == 1)
    (uuid,) = node.ids()
    sidecar = machine(count=1, folder=tmp_path / "machine")
    sidecar.set_mig_mode(uuid, True)
    sidecar.create_instance(uuid, "1g.10gb", 0)
    until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-1g.10gb")) == 1)
    (before,) = sidecar.inventory().gpus[0].instances
    sidecar.destroy_instance(uuid, before.gpu_instance)
    sidecar.create_instance(uuid, "1g.10gb+me", 0)
    until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-1g.10gb.me")) == 1)


class TestDriverIsLetGo:
    """NVML holds the device files, and nothing can be reset or reloaded while anybody holds them."""

    def holders(self, node: Node) -> list[str]:
        return node.backend.store.read().holders

    def test_while_the_plugin_is_paused(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        assert len(self.holders(node)) == 1
        switch = tmp_path / "state/device-plugin.off"
        switch.touch()
        until(lambda: self.holders(node) == [], what="the driver is closed")
        switch.unlink()
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="it is open again")
        assert len(self.holders(node)) == 1

    def test_while_it_is_paused_an_mps_daemon_goes_with_its_last_client(
        self, nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its server holds the driver, and a paused plugin is what a new driver waits for."""
        mps = FakeMps(tmp_path, monkeypatch)
        monkeypatch.setattr("windlass.node.plugin.sharing_setup.CHECK_SECONDS", 0.05)
        config = f"flags: {{mpsRoot: {tmp_path}/mps}}\nsharing: {{mps: {{resources: [{{name: {GPU}, replicas: 2}}]}}}}"
        node = started(nodes, Node(tmp_path, machine("H200", 1, folder=tmp_path / "machine"), config))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 2)
        mps.set_clients(4711)
        (tmp_path / "state/device-plugin.off").touch()
        until(lambda: any("process 4711" in line for line in node.log), what="its client is named")
        assert "quit" not in mps.told
        mps.set_clients()
        until(lambda: mps.told[-1] == "quit", what="it is told to quit")
        until(lambda: not node.backend.store.read().gpus[0].is_exclusive, what="the compute mode is restored")
        until(lambda: self.holders(node) == [], what="the driver is closed")

    def test_while_a_gpu_is_reset_with_its_devices_still_advertised(self, nodes: list[Node], tmp_path: Path) -> None:
        """Ampere's MIG mode needs a reset; the agent's other process makes it."""
        backend = machine("A100-80GB", count=1, folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 1)
        sidecar = machine("A100-80GB", count=1, folder=tmp_path / "machine")
        sidecar.acquire()
        plan = [plan_gpu(sidecar.inventory().gpus[0], {"1g.10gb": 7}, enabled=True)]
        with pytest.raises(DeviceError, match="In use by another client"):
            apply_plans(sidecar, plan)
        sidecar.reset_guard = lambda: release_elsewhere(tmp_path / "state")
        apply_plans(sidecar, plan)
        until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-1g.10gb")) == 7)
        assert not any("can't" in line for line in node.log)


class TestContainerRuntime:
    def runtime(self, *, cdi: bool) -> ContainerRuntime:
        return ContainerRuntime(name="containerd", version="2.1.0", has_cdi=cdi, handlers=("runc",))

    def test_devices_come_by_cdi_where_the_runtime_has_it(self, nodes: list[Node], tmp_path: Path) -> None:
        node = Node(tmp_path, machine(count=1, folder=tmp_path / "machine"))
        node.runtime = self.runtime(cdi=True)
        started(nodes, node)
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 1)
        answer = node.kubelet.allocate(GPU, node.ids()[0])
        assert [device.name for device in answer.cdi_devices] == [f"k8s.device-plugin.nvidia.com/gpu={node.ids()[0]}"]
        assert (tmp_path / "cdi/k8s.device-plugin.nvidia.com-gpu.json").exists()

    def test_nobody_gets_a_gpu_whose_cdi_spec_can_t_be_written(self, nodes: list[Node], tmp_path: Path) -> None:
        """The runtime refuses every container with a name that no spec has."""
        backend = machine(count=1, folder=tmp_path / "machine")
        node = Node(tmp_path, backend, "flags: {nvidiaDriverRoot: /elsewhere}")
        node.runtime = self.runtime(cdi=True)
        started(nodes, node)
        until(lambda: len(node.kubelet.devices(GPU)) == 1)
        until(lambda: any("no CDI spec is written" in line for line in node.log))
        way = tmp_path / "state/container-gpus"
        until(way.exists)
        assert way.read_text().startswith(
            "nothing carries out deviceListStrategy cdi-cri: flags.nvidiaDriverRoot: libcuda"
        )
        until(
            lambda: any(line.endswith("not validated: the validator has not passed on this boot") for line in node.log)
        )
        seen = node.process.rounds
        until(lambda: node.process.rounds > seen + 3, what="the GPU itself is well by now")
        assert node.kubelet.healthy_devices(GPU) == []
        node.config_file.write_text("")
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 1, what="the driver is found")
        until(lambda: "devices come by CDI" in way.read_text())

    def test_a_strategy_that_nothing_carries_out_is_refused_with_the_reason(
        self, nodes: list[Node], tmp_path: Path
    ) -> None:
        config = "flags: {plugin: {deviceListStrategy: envvar}}"
        node = Node(tmp_path, machine(count=1, folder=tmp_path / "machine"), config)
        node.runtime = self.runtime(cdi=False)
        started(nodes, node)
        until(lambda: len(node.kubelet.devices(GPU)) == 1)
        until(lambda: any("has no NVIDIA runtime" in line for line in node.log))
        until(
            lambda: any(line.endswith("not validated: the validator has not passed on this boot") for line in node.log)
        )
        seen = node.process.rounds
        until(lambda: node.process.rounds > seen + 3, what="the GPU itself is well by now")
        assert node.kubelet.healthy_devices(GPU) == []


class TestSwitch:
    """The node's label nvidia.com/gpu.deploy.device-plugin, which the rest of the agent turns into a file."""

    def off(self, folder: Path) -> Path:
        file = folder / "state/device-plugin.off"
        file.parent.mkdir(exist_ok=True)
        file.touch()
        return file

    def test_off_the_kubelet_is_told_of_nothing_and_on_of_everything(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        for times in (2, 3):
            switch = self.off(tmp_path)
            until(
                lambda: node.kubelet.device_lists.get(GPU) == [],
                what="the list is empty, not merely unhealthy",
            )
            until(lambda: not (tmp_path / "plugins/nvidia-gpu.sock").exists(), what="the socket is gone")
            switch.unlink()
            until(lambda: len(node.kubelet.registrations) == times, what="it registers again")  # noqa: B023
            until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, what="all GPUs are back")
        assert node.kubelet.allocate(GPU, node.ids()[0]).envs, "and can be given"

    def test_off_a_new_kubelet_hears_nothing_and_mig_changes_unseen(self, nodes: list[Node], tmp_path: Path) -> None:
        backend = machine(count=1, mig=("3g.40gb", "3g.40gb"), folder=tmp_path / "machine")
        node = started(nodes, Node(tmp_path, backend, "flags: {migStrategy: mixed}"))
        until(lambda: len(node.kubelet.healthy_devices("nvidia.com/mig-3g.40gb")) == 2)
        switch = self.off(tmp_path)
        until(lambda: node.kubelet.device_lists.get("nvidia.com/mig-3g.40gb") == [])
        node.kubelet.stop()
        node.kubelet.start()
        card = backend.inventory().gpus[0]
        for instance in card.instances:
            backend.destroy_instance(card.uuid, instance.gpu_instance)
        backend.create_instance(card.uuid, "2g.20gb", 0)
        seen = node.process.rounds
        until(lambda: node.process.rounds > seen + 5, what="some rounds have passed")
        assert len(node.kubelet.registrations) == 1
        switch.unlink()
        until(lambda: node.kubelet.devices("nvidia.com/mig-2g.20gb"), what="what is there now is advertised")
        assert {registration.resource_name for registration in node.kubelet.registrations[1:]} == {
            "nvidia.com/mig-2g.20gb"
        }

    def test_off_from_the_start_another_plugin_may_serve(self, nodes: list[Node], tmp_path: Path) -> None:
        first = eight(nodes, tmp_path)
        second = Node(tmp_path, first.backend)
        second.state = tmp_path / "second"
        second.make()
        switch = second.state / "device-plugin.off"
        switch.parent.mkdir()
        switch.touch()
        for _ in range(3):
            second.process.sync()
        switch.unlink()
        with pytest.raises(ConflictingPlugin, match="another device plugin serves"):
            second.process.sync()
        assert len(first.kubelet.registrations) == 1
        assert len(first.kubelet.healthy_devices(GPU)) == 8

    def test_a_plugin_that_ends_leaves_its_capacity_to_the_next(self, nodes: list[Node], tmp_path: Path) -> None:
        """An upgrade is no withdrawal: the kubelet's own grace period bridges it."""
        node = eight(nodes, tmp_path)
        node.stop()
        assert len(node.kubelet.device_lists[GPU]) == 8


class TestReadiness:
    """A file for the readiness probe of the agent's pod."""

    def test_ready_is_what_the_kubelet_knows(self, nodes: list[Node], tmp_path: Path) -> None:
        ready = tmp_path / "state/device-plugin.ready"
        node = Node(tmp_path, machine(folder=tmp_path / "machine"))
        nodes.append(node)
        node.start()
        until(lambda: node.process.rounds > 3, what="it looks for a kubelet")
        assert not ready.exists(), "no kubelet has heard of it"
        node.kubelet.start()
        until(ready.exists, what="it has registered")
        assert node.kubelet.registrations
        node.stop()
        assert not ready.exists(), "the next agent begins without it"

    def test_a_plugin_that_a_label_disables_is_ready(self, nodes: list[Node], tmp_path: Path) -> None:
        node = Node(tmp_path, machine(folder=tmp_path / "machine"))
        node.state.mkdir()
        (node.state / "device-plugin.off").touch()
        started(nodes, node)
        until((node.state / "device-plugin.ready").exists, what="there is nothing to wait for")
        assert node.kubelet.registrations == []


class TestRequests:
    def test_an_unknown_device_fails_the_call_with_its_name(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        with pytest.raises(grpc.RpcError) as failed:
            node.kubelet.allocate(GPU, "GPU-nobody")
        assert "unknown device: GPU-nobody" in failed.value.details()

    def test_more_than_one_share_fails_where_the_config_says_so(self, nodes: list[Node], tmp_path: Path) -> None:
        config = (
            "sharing: {timeSlicing: {failRequestsGreaterThanOne: true,"
            " resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
        )
        node = started(nodes, Node(tmp_path, machine(folder=tmp_path / "machine"), config))
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 16)
        with pytest.raises(grpc.RpcError) as failed:
            node.kubelet.allocate(GPU, *node.kubelet.healthy_devices(GPU)[:2])
        assert "maximum request size for shared resources is 1" in failed.value.details()

    def test_the_engines_wish_steers_where_one_pod_matches(self, nodes: list[Node], tmp_path: Path) -> None:
        node = eight(nodes, tmp_path)
        path = tmp_path / "state/preferred-devices.json"
        write_preferred_devices(path, [PendingPod("a/p", GPU, 2, (5, 6)), PendingPod("a/q", GPU, 1, (7,))])
        assert node.kubelet.get_preferred_allocation(GPU, 2, node.ids(), []) == [node.ids()[5], node.ids()[6]]
        write_preferred_devices(path, [PendingPod("a/p", GPU, 2, (5, 6)), PendingPod("a/q", GPU, 2, (1, 2))])
        assert node.kubelet.get_preferred_allocation(GPU, 2, node.ids(), []) != [node.ids()[5], node.ids()[6]]

    def test_pre_start_is_answered(self, nodes: list[Node], tmp_path: Path) -> None:
        from windlass.node.protos import deviceplugin_pb2 as dp

        node = eight(nodes, tmp_path)
        node.kubelet.plugin(GPU).pre_start_container(dp.PreStartContainerRequest(devices_ids=node.ids()[:1]), timeout=5)
