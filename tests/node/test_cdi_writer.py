"""CDI specs of GPUs and what accompanies them: only valid ones are written, and errors are logged once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.cdi import CdiSpec, read_spec
from windlass.node.cdi_extras import present_imex_channels
from windlass.node.cdi_writer import CDI_VENDOR, CdiWriter
from windlass.node.host_root import HostRoot
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.manager import PluginManager
from windlass.node.plugin.rpc import FailedCall
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.plugin_config import PluginConfig, resolve_config

CHANNEL = "dev/nvidia-caps-imex-channels/channel0"


def config(**more: Any) -> PluginConfig:
    flags = {"plugin": {"deviceListStrategy": "cdi-cri"}, **more.pop("flags", {})}
    return resolve_config({"flags": flags, **more})


class Scene:
    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.backend = machine(count=2, folder=folder / "machine")
        self.root = HostRoot(folder / "machine")
        self.log: list[str] = []
        self.writer = CdiWriter(folder / "cdi", self.root, self.log.append, **more)

    def add(self, path: str, text: str = "char 240:0") -> Path:
        file = self.root.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def follow(self, settings: PluginConfig) -> None:
        self.writer.sync(self.backend.inventory(), settings)

    def spec(self, kind: str) -> CdiSpec:
        return read_spec((self.folder / f"cdi/{CDI_VENDOR}-{kind}.json").read_bytes())

    def written(self) -> set[str]:
        return {file.stem.rpartition("com-")[2] for file in (self.folder / "cdi").glob("*.json")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


class TestKinds:
    def test_gpus_alone_unless_more_is_switched_on(self, scene: Scene) -> None:
        scene.add("/dev/gdrdrv")
        scene.follow(config())
        assert scene.written() == {"gpu"}

    def test_nothing_without_a_cdi_strategy(self, scene: Scene) -> None:
        scene.follow(resolve_config({"flags": {"gdsEnabled": True}}))
        assert scene.written() == set()

    def test_each_switch_brings_its_devices(self, scene: Scene) -> None:
        for path in (
            "/dev/gdrdrv",
            "/dev/nvidia-fs0",
            "/dev/nvidia-fs11",
            "/dev/infiniband/uverbs0",
            CHANNEL,
        ):
            scene.add(f"/{path.lstrip('/')}")
        scene.add("/dev/infiniband/rdma_cm")
        scene.add("/etc/cufile.json", "{}")
        switches = {"gdrcopyEnabled": True, "gdsEnabled": True, "mofedEnabled": True}
        scene.follow(config(flags=switches, imex={"channelIDs": [0]}))
        assert scene.written() == {"gpu", "gdrcopy", "gds", "mofed", "imex-channel"}

        def mounted(kind: str, name: str = "all") -> set[str]:
            (device,) = (device for device in scene.spec(kind).devices if device.name == name)
            return {mount.container_path for mount in device.container_edits.mounts}

        assert mounted("gdrcopy") == {"/dev/gdrdrv"}
        assert mounted("gds") == {"/dev/nvidia-fs0", "/dev/nvidia-fs11", "/etc/cufile.json"}
        assert mounted("mofed") == {"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"}
        assert mounted("imex-channel", "0") == mounted("imex-channel") == {f"/{CHANNEL}"}

    def test_every_name_that_a_container_is_given_is_in_a_spec(self, scene: Scene) -> None:
        for path in ("/dev/gdrdrv", "/dev/nvidia-fs0", "/dev/infiniband/uverbs0", f"/{CHANNEL}"):
            scene.add(path)
        settings = config(
            flags={"gdrcopyEnabled": True, "gdsEnabled": True, "mofedEnabled": True},
            imex={"channelIDs": [0], "required": True},
        )
        scene.follow(settings)
        (resource,) = advertised_resources(scene.backend.inventory(), settings)
        answer = Allocator(resource, settings, scene.root, lambda: "x").allocate_container([resource.devices[1].id])
        known = {f"{spec.kind}={device.name}" for spec in map(scene.spec, scene.written()) for device in spec.devices}
        names = {device.name for device in answer.cdi_devices}
        assert len(names) == 5
        assert names <= known

    def test_what_the_machine_does_not_have_is_told_once_and_again_when_it_changes(self, scene: Scene) -> None:
        settings = config(flags={"gdrcopyEnabled": True})
        for _ in range(3):
            scene.follow(settings)
        assert [line for line in scene.log if "gdrcopy" in line] == [
            f"no CDI spec is written: {CDI_VENDOR}/gdrcopy: devices: this machine has no such devices"
        ]
        assert scene.written() == {"gpu"}
        device = scene.add("/dev/gdrdrv")
        scene.follow(settings)
        assert scene.written() == {"gpu", "gdrcopy"}
        device.unlink()
        scene.follow(settings)
        assert len([line for line in scene.log if "stays in force" in line]) == 1
        assert scene.written() == {"gpu", "gdrcopy"}, "the last good one is not taken away"


class TestChannels:
    def test_one_that_is_not_there_is_passed_over_unless_it_is_required(self, scene: Scene) -> None:
        wanted = config(imex={"channelIDs": [0]})
        assert present_imex_channels(wanted, scene.root) == ()
        scene.add(f"/{CHANNEL}", "no device node")
        assert present_imex_channels(wanted, scene.root) == ()
        with pytest.raises(InputError, match="channel0"):
            present_imex_channels(config(imex={"channelIDs": [0], "required": True}), scene.root)
        scene.add(f"/{CHANNEL}")
        assert present_imex_channels(wanted, scene.root) == (0,)

    def test_a_node_without_a_required_channel_offers_nothing_until_it_is_there(self, scene: Scene) -> None:
        settings = config(imex={"channelIDs": [0], "required": True})
        log: list[str] = []
        manager = PluginManager(scene.folder / "plugins", scene.root, log.append)
        found = scene.backend.inventory()
        assert manager.advertised_resources(found, settings) == manager.advertised_resources(found, settings) == ()
        assert len(log) == 1
        assert "imex.required" in log[0]
        channel = scene.add(f"/{CHANNEL}")
        (resource,) = manager.advertised_resources(found, settings)
        channel.unlink()
        with pytest.raises(FailedCall, match="channel0"):
            Allocator(resource, settings, scene.root, lambda: "x").allocate_container([resource.devices[0].id])


class TestHooks:
    def hooks(self, folder: Path, *without: str) -> list[str]:
        scene = Scene(folder, without_hooks=without)
        scene.add("/usr/bin/nvidia-ctk", "create-symlinks update-ldcache")
        scene.follow(config())
        return [hook.args[2] for hook in scene.spec("gpu").container_edits.hooks]

    @pytest.mark.parametrize(
        ("without", "left"),
        [
            ((), ["create-symlinks", "update-ldcache"]),
            (("update-ldcache",), ["create-symlinks"]),
            (("create-symlinks", "chmod"), ["update-ldcache"]),
            (("all",), []),
        ],
    )
    def test_can_be_left_out(self, tmp_path: Path, without: tuple[str, ...], left: list[str]) -> None:
        assert self.hooks(tmp_path, *without) == left


class TestDriver:
    def test_without_libcuda_nothing_is_written_and_the_folders_are_told_once(self, scene: Scene) -> None:
        inventory = scene.backend.inventory()
        for library in scene.root.path("/usr/lib/x86_64-linux-gnu").iterdir():
            library.unlink()
        for _ in range(3):
            scene.writer.sync(inventory, config())
        assert scene.written() == set()
        (line,) = scene.log
        assert line.startswith("no CDI spec is written: ")
        assert "libcuda.so" in line
        assert "/usr/lib/x86_64-linux-gnu" in line
        assert "libcuda.so" in scene.writer.problem

    def test_a_driver_that_goes_leaves_the_last_good_one(self, scene: Scene) -> None:
        inventory = scene.backend.inventory()
        scene.writer.sync(inventory, config())
        for library in scene.root.path("/usr/lib/x86_64-linux-gnu").iterdir():
            library.unlink()
        scene.writer.sync(inventory, config())
        assert scene.log[-1].startswith("the last good CDI spec stays in force: ")
        assert scene.writer.problem == ""

    def test_without_a_cdi_strategy_there_is_nothing_to_miss(self, scene: Scene) -> None:
        for library in scene.root.path("/usr/lib/x86_64-linux-gnu").iterdir():
            library.unlink()
        scene.writer.sync(scene.backend.inventory(), config())
        scene.writer.sync(
            scene.backend.inventory(), resolve_config({"flags": {"plugin": {"deviceListStrategy": "envvar"}}})
        )
        assert scene.writer.problem == ""

    def test_the_log_says_what_a_container_gets(self, scene: Scene) -> None:
        scene.follow(config())
        assert any("2 libraries" in line for line in scene.log)

    def test_a_driver_that_comes_later_is_written(self, scene: Scene) -> None:
        inventory = scene.backend.inventory()
        (library,) = scene.root.path("/usr/lib/x86_64-linux-gnu").glob("libcuda*")
        library.unlink()
        scene.writer.sync(inventory, config())
        scene.add(f"/usr/local/nvidia/lib64/{library.name}", "")
        scene.writer.sync(inventory, config())
        assert scene.written() == {"gpu"}
