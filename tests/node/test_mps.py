"""MPS: the daemon's folders, limits and life, with a program that stands in for NVIDIA's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.node.fake_mps import FakeMps
from tests.node.machines import machine

from windlass.node.backend.protocol import DeviceError
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.mps import MpsDaemon
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.plugin_config import PluginConfig, resolve_config


class Scene(FakeMps):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.backend = machine("H200", 2)
        self.root = folder / "mps"
        self.log: list[str] = []
        self.now = 0.0
        self.setup = self.new_agent()

    def new_agent(self, **settings: Any) -> SharingSetup:
        return SharingSetup(self.backend, self.log.append, clock=lambda: self.now, **settings)

    @property
    def exclusive(self) -> list[bool]:
        return [gpu.is_exclusive for gpu in self.backend.store.read().gpus]

    def config(self, replicas: int = 4) -> PluginConfig:
        entry = {"name": "nvidia.com/gpu", "replicas": replicas}
        return resolve_config({"flags": {"mpsRoot": str(self.root)}, "sharing": {"mps": {"resources": [entry]}}})

    def follow(self, config: PluginConfig | None = None, cordoned: frozenset[str] = frozenset()) -> dict[str, str]:
        chosen = config or self.config()
        inventory = self.backend.inventory()
        return self.setup.sync(inventory, chosen, advertised_resources(inventory, chosen), cordoned)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_folders_and_equal_limits(scene: Scene) -> None:
    gpus = scene.backend.inventory().gpus
    daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", gpus, 4)
    daemon.start()
    for name in ("nvidia.com/gpu/pipe", "nvidia.com/gpu/log", "nvidia.com/gpu/.started", "shm"):
        assert (scene.root / name).exists()
    assert scene.told == [
        f"start {gpus[0].uuid},{gpus[1].uuid}",
        "set_default_device_pinned_mem_limit 0 35942M",
        "set_default_device_pinned_mem_limit 1 35942M",
        "set_default_active_thread_percentage 25",
    ]
    assert daemon.is_alive()
    daemon.stop()
    assert not daemon.is_alive()
    assert not (scene.root / "nvidia.com/gpu/.started").exists()


def test_the_agent_starts_it_once_and_again_when_it_dies(scene: Scene) -> None:
    assert scene.follow() == {}
    assert scene.follow() == {}
    assert sum(line.startswith("start") for line in scene.told) == 1
    (scene.root / "nvidia.com/gpu/pipe/control").unlink()
    scene.now += 10
    assert scene.follow() == {}
    assert sum(line.startswith("start") for line in scene.told) == 2
    assert any("does not answer" in line for line in scene.log)


def test_without_a_daemon_nobody_gets_the_device(scene: Scene) -> None:
    (scene.folder / "broken").touch()
    ills = scene.follow()
    assert set(ills) == {gpu.uuid for gpu in scene.backend.inventory().gpus}
    assert all("no daemon today" in why for why in ills.values())
    (scene.folder / "broken").unlink()
    scene.now += 10
    assert scene.follow() == {}


def test_other_limits_are_given_to_the_running_one_and_another_way_stops_it(scene: Scene) -> None:
    scene.follow()
    scene.follow(scene.config(2))
    assert "quit" not in scene.told
    assert scene.told[-1] == "set_default_active_thread_percentage 50"
    scene.follow(resolve_config())
    assert scene.told[-1] == "quit"
    assert scene.exclusive == [False, False]


class TestLifeOfItsOwn:
    def test_a_new_agent_adopts_the_daemon_with_its_clients(self, scene: Scene) -> None:
        scene.follow()
        scene.set_clients(4711)
        scene.setup.stop()
        assert "quit" not in scene.told
        assert scene.exclusive == [True, True], "clients that come need it"
        scene.setup = scene.new_agent()
        assert scene.follow() == {}
        assert sum(line.startswith("start") for line in scene.told) == 1
        assert "quit" not in scene.told
        assert any("adopted" in line for line in scene.log)

    def test_a_killed_agents_daemon_is_adopted_too(self, scene: Scene) -> None:
        scene.follow()
        scene.setup = scene.new_agent()
        assert scene.follow() == {}
        assert sum(line.startswith("start") for line in scene.told) == 1

    def test_an_agent_that_ends_leaves_nothing_behind_that_nobody_uses(self, scene: Scene) -> None:
        scene.follow()
        scene.setup.stop()
        assert scene.told[-1] == "quit"
        assert scene.exclusive == [False, False]

    def test_is_not_told_to_quit_under_its_clients(self, scene: Scene) -> None:
        scene.follow()
        scene.set_clients(4711)
        held = scene.follow(resolve_config())
        assert set(held) == {gpu.uuid for gpu in scene.backend.inventory().gpus}
        assert all("process 4711" in reason for reason in held.values())
        assert "quit" not in scene.told
        scene.set_clients()
        scene.now += 10
        assert scene.follow(resolve_config()) == {}
        assert scene.told[-1] == "quit"
        assert scene.exclusive == [False, False]

    def test_is_not_told_to_quit_while_it_does_not_say_who_its_clients_are(self, scene: Scene) -> None:
        scene.follow()
        (scene.folder / "mute").touch()
        held = scene.follow(resolve_config())
        assert all("doesn't say" in reason for reason in held.values())
        assert len(held) == 2
        scene.setup.stop()
        assert "quit" not in scene.told
        assert scene.exclusive == [True, True]
        (scene.folder / "mute").unlink()
        scene.setup = scene.new_agent()
        assert scene.follow(resolve_config({"flags": {"mpsRoot": str(scene.root)}})) == {}
        assert scene.told[-1] == "quit"
        assert scene.exclusive == [False, False]

    def test_a_gpu_that_was_not_restored_is_restored_by_the_next_agent(self, scene: Scene) -> None:
        scene.follow()
        scene.backend.inject(0, refuses=["exclusive"])
        scene.setup.stop()
        assert scene.exclusive == [True, False]
        scene.backend.inject(0, refuses=[])
        scene.setup = scene.new_agent()
        scene.follow(resolve_config({"flags": {"mpsRoot": str(scene.root)}}))
        assert scene.exclusive == [False, False]

    def test_an_agent_that_ends_leaves_it_to_pods_that_have_no_process_yet(self, scene: Scene) -> None:
        """A notebook starts its first client at any time, and needs the daemon's limits then."""
        first = scene.backend.inventory().gpus[0]
        held = {first.uuid: [DeviceHolder("notebook", "default", "main")]}
        scene.setup = scene.new_agent(holders=lambda: held)
        scene.follow()
        scene.setup.stop()
        assert "quit" not in scene.told
        assert scene.exclusive == [True, True]
        assert any("default/notebook" in line for line in scene.log)
        held.clear()
        scene.setup = scene.new_agent(holders=lambda: held)
        scene.follow()
        scene.setup.stop()
        assert scene.told[-1] == "quit"

    def test_an_agent_that_ends_leaves_it_where_the_kubelet_does_not_say_who_has_a_gpu(self, scene: Scene) -> None:
        def holders() -> dict[str, list[DeviceHolder]]:
            raise DeviceError("the kubelet is busy")

        scene.setup = scene.new_agent(holders=holders)
        scene.follow()
        scene.setup.stop()
        assert "quit" not in scene.told
        assert any("the kubelet is busy" in line for line in scene.log)

    def test_one_that_was_left_is_stopped_later_or_taken_up_again(self, scene: Scene) -> None:
        scene.follow()
        scene.set_clients(4711)
        assert not scene.setup.stop()
        assert scene.follow() == {}, "with its clients"
        assert not scene.setup.stop()
        scene.set_clients()
        assert not scene.setup.stop(), "it was asked a moment ago"
        scene.now += 10
        assert scene.setup.stop()
        assert scene.told[-1] == "quit"
        assert sum(line.startswith("start") for line in scene.told) == 1

    def test_an_unused_one_makes_way_for_a_change_of_mig(self, scene: Scene) -> None:
        scene.follow()
        gpu = scene.backend.inventory().gpus[0]
        scene.set_clients(4711)
        assert "process 4711" in scene.follow(cordoned=frozenset([gpu.uuid]))[gpu.uuid]
        scene.set_clients()
        scene.now += 10
        assert scene.follow(cordoned=frozenset([gpu.uuid])) == {}
        assert scene.told[-1] == "quit"
        assert scene.exclusive == [False, False]
        scene.now += 10
        assert scene.follow() == {}
        assert sum(line.startswith("start") for line in scene.told) == 2, "and is there again afterwards"

    def test_one_that_an_earlier_configuration_left_is_stopped(self, scene: Scene) -> None:
        scene.follow()
        scene.setup = scene.new_agent()
        other = resolve_config({"flags": {"mpsRoot": str(scene.root)}})
        assert scene.follow(other) == {}
        assert scene.told[-1] == "quit"
        assert scene.exclusive == [False, False]

    def test_every_gpu_is_restored_even_if_one_refuses(self, scene: Scene) -> None:
        scene.follow()
        scene.backend.inject(0, refuses=["exclusive"])
        scene.setup.stop()
        assert scene.exclusive == [True, False]

    def test_limits_count_the_gpus_that_the_daemon_sees(self, scene: Scene) -> None:
        second = scene.backend.inventory().gpus[1]
        daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", [second], 2)
        assert daemon.limits()[0] == "set_default_device_pinned_mem_limit 0 71885M"

    def test_it_leaves_the_agents_cgroup_and_has_its_clients_shared_memory(self, scene: Scene) -> None:
        """A runtime ends what is in a container's cgroup. A plain folder stands for the cgroup file system."""
        cgroups = scene.folder / "cgroup"
        cgroups.mkdir()
        (cgroups / "cgroup.controllers").touch()
        gpus = scene.backend.inventory().gpus
        MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", gpus, 2, cgroups).start()
        assert (cgroups / "windlass-mps/cgroup.procs").read_text() == "0"
        assert (scene.root / "shm/of-the-daemon").exists()
        assert not Path("/dev/shm/of-the-daemon").exists()

    def test_the_hosts_program_runs_in_the_hosts_root(self, scene: Scene) -> None:
        """Some hosts have a loader of their own for the driver's programs, which the agent's image hasn't."""
        host = scene.folder / "host"
        program = host / "usr/local/nvidia/bin/nvidia-cuda-mps-control"
        program.parent.mkdir(parents=True)
        program.write_text(
            '#!/loader/sh\necho "$LD_LIBRARY_PATH $*" >> /told\nread line && echo "$line" >> /told\necho 25.0\n'
        )
        program.chmod(0o755)
        (host / "loader").mkdir()
        shutil.copy(shutil.which("busybox") or "busybox", host / "loader/sh")
        daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", scene.backend.inventory().gpus, 2, host=host)
        assert daemon.start(), "it answers there"
        told = (host / "told").read_text()
        assert "set_default_active_thread_percentage 50" in told
        assert "/usr/local/nvidia/lib64" in told
        assert not scene.told, "and not here"

    def test_it_starts_where_there_is_no_such_file_system(self, scene: Scene) -> None:
        gpus = scene.backend.inventory().gpus
        daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", gpus, 2, scene.folder / "nothing")
        daemon.start()
        assert daemon.is_alive()


def test_a_gpu_that_refuses_exclusive_mode_is_said(scene: Scene) -> None:
    scene.backend.inject(0, refuses=["exclusive"])
    daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", scene.backend.inventory().gpus, 2)
    with pytest.raises(DeviceError, match="compute mode"):
        daemon.start()


def test_time_slices_are_set_once(scene: Scene) -> None:
    setup = SharingSetup(scene.backend, scene.log.append, interval="long")
    entry = {"name": "nvidia.com/gpu", "replicas": 2}
    config = resolve_config({"sharing": {"timeSlicing": {"resources": [entry]}}})
    inventory = scene.backend.inventory()
    for _ in range(2):
        assert setup.sync(inventory, config, advertised_resources(inventory, config)) == {}
    assert sum("time slice long" in line for line in scene.log) == 2
