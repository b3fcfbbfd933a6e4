"""What a container is given, for every strategy: environment, mounts, device nodes, annotations, CDI names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine

from windlass.node.host_root import HostRoot
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.rpc import FailedCall
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.advertised_resources import PluginResource, advertised_resources
from windlass.sharing.plugin_config import resolve_config

MIG = "nvidia.com/mig-1g.10gb"


class Scene:
    def __init__(self, folder: Path, file: Any, mig: tuple[str, ...] = (), *, bare: bool = False) -> None:
        self.backend = machine(count=2, mig=mig, folder=folder)
        for path in () if bare else ("nvidia-fs0", "infiniband/uverbs0", "gdrdrv"):
            (folder / "dev" / path).parent.mkdir(exist_ok=True)
            (folder / "dev" / path).write_text("char 240:0")
        self.inventory = self.backend.inventory()
        self.config = resolve_config(file)
        self.root = HostRoot(folder)
        self.resources = {resource.name: resource for resource in advertised_resources(self.inventory, self.config)}

    def give(self, name: str = "nvidia.com/gpu", *which: int) -> dp.ContainerAllocateResponse:
        resource: PluginResource = self.resources[name]
        chosen = [resource.devices[at].id for at in which or (0,)]
        return Allocator(resource, self.config, self.root, lambda: "one").allocate_container(chosen)


def plugin(**fields: Any) -> dict[str, Any]:
    return {"flags": {"plugin": fields}}


class TestStrategies:
    def test_envvar(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, None)
        answer = scene.give("nvidia.com/gpu", 0, 1)
        uuids = ",".join(gpu.uuid for gpu in scene.inventory.gpus)
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": uuids}
        assert not answer.mounts
        assert not answer.cdi_devices

    def test_ids_may_be_indices(self, tmp_path: Path) -> None:
        answer = Scene(tmp_path, plugin(deviceIDStrategy="index")).give("nvidia.com/gpu", 0, 1)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "0,1"

    def test_volume_mounts(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, plugin(deviceListStrategy="volume-mounts"))
        answer = scene.give()
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
        (mount,) = answer.mounts
        assert mount.host_path == "/dev/null"
        assert mount.container_path == f"/var/run/nvidia-container-devices/{scene.inventory.gpus[0].uuid}"

    def test_cdi_by_field_names_devices_in_no_other_way(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, {"flags": {"plugin": {"deviceListStrategy": "cdi-cri"}, "gdsEnabled": True}})
        answer = scene.give()
        assert [device.name for device in answer.cdi_devices] == [
            f"k8s.device-plugin.nvidia.com/gpu={scene.inventory.gpus[0].uuid}",
            "k8s.device-plugin.nvidia.com/gds=all",
        ]
        assert dict(answer.envs) == {"NVIDIA_GDS": "enabled"}
        assert not answer.devices
        assert not answer.mounts

    def test_a_name_without_a_spec_is_not_given(self, tmp_path: Path) -> None:
        """The runtime would refuse the container: unresolvable CDI devices."""
        switches = {"gdsEnabled": True, "mofedEnabled": True, "gdrcopyEnabled": True}
        scene = Scene(tmp_path, {"flags": {"plugin": {"deviceListStrategy": "cdi-cri"}, **switches}}, bare=True)
        (only,) = scene.give().cdi_devices
        assert only.name.startswith("k8s.device-plugin.nvidia.com/gpu=")

    def test_cdi_by_annotation(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, plugin(deviceListStrategy="cdi-annotations"))
        assert dict(scene.give().annotations) == {
            "cdi.k8s.io/nvidia-device-plugin_one": f"k8s.device-plugin.nvidia.com/gpu={scene.inventory.gpus[0].uuid}"
        }

    def test_strategies_add_up(self, tmp_path: Path) -> None:
        answer = Scene(tmp_path, plugin(deviceListStrategy=["envvar", "cdi-cri"])).give()
        assert answer.envs
        assert answer.cdi_devices

    def test_imex_and_switches(self, tmp_path: Path) -> None:
        file = {"flags": {"gdrcopyEnabled": True, "mofedEnabled": True}, "imex": {"channelIDs": [0]}}
        scene = Scene(tmp_path, file)
        assert "NVIDIA_IMEX_CHANNELS" not in scene.give().envs, "a channel that isn't there is passed over"
        channel = tmp_path / "dev/nvidia-caps-imex-channels/channel0"
        channel.parent.mkdir(parents=True)
        channel.write_text("char 240:0")
        answer = scene.give()
        assert answer.envs["NVIDIA_IMEX_CHANNELS"] == "0"
        assert answer.envs["NVIDIA_GDRCOPY"] == answer.envs["NVIDIA_MOFED"] == "enabled"
        assert "NVIDIA_GDS" not in answer.envs


class TestDeviceNodes:
    def test_whole_gpus(self, tmp_path: Path) -> None:
        answer = Scene(tmp_path, plugin(passDeviceSpecs=True)).give("nvidia.com/gpu", 1)
        assert [(spec.container_path, spec.host_path, spec.permissions) for spec in answer.devices] == [
            (path, path, "rw")
            for path in (
                "/dev/nvidiactl",
                "/dev/nvidia-uvm",
                "/dev/nvidia-uvm-tools",
                "/dev/nvidia-modeset",
                "/dev/nvidia1",
            )
        ]

    def test_instances_bring_their_capabilities(self, tmp_path: Path) -> None:
        file = {"flags": {"migStrategy": "mixed", "plugin": {"passDeviceSpecs": True}}}
        scene = Scene(tmp_path, file, mig=("1g.10gb",) * 2)
        paths = [spec.container_path for spec in scene.give(MIG, 0).devices]
        assert "/dev/nvidia0" in paths
        caps = [path for path in paths if path.startswith("/dev/nvidia-caps/")]
        assert len(caps) == 2
        assert all(scene.root.exists(path) for path in caps)

    def test_another_dev_root_is_where_the_host_has_them(self, tmp_path: Path) -> None:
        file = {"flags": {"nvidiaDevRoot": "/run/driver", "plugin": {"passDeviceSpecs": True}}}
        answer = Scene(tmp_path, file).give()
        assert answer.devices[0].host_path == "/run/driver/dev/nvidiactl"


class TestShared:
    MPS = {
        "flags": {"mpsRoot": "/run/mps"},
        "sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 2}]}},
    }

    def test_a_gpu_comes_once_however_many_replicas(self, tmp_path: Path) -> None:
        file = {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}}
        scene = Scene(tmp_path, file)
        answer = scene.give("nvidia.com/gpu", 0, 1)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == scene.inventory.gpus[0].uuid

    def test_mps_brings_its_pipe_and_shared_memory(self, tmp_path: Path) -> None:
        answer = Scene(tmp_path, self.MPS).give()
        assert answer.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
        assert mounts == {
            "/mps/nvidia.com/gpu/pipe": "/run/mps/nvidia.com/gpu/pipe",
            "/dev/shm": "/run/mps/shm",
        }

    @pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations", "volume-mounts"])
    def test_mps_brings_them_under_every_strategy(self, tmp_path: Path, strategy: str) -> None:
        flags = {**self.MPS["flags"], "plugin": {"deviceListStrategy": strategy}}
        answer = Scene(tmp_path, {**self.MPS, "flags": flags}).give()
        assert answer.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        assert {"/mps/nvidia.com/gpu/pipe", "/dev/shm"} <= {mount.container_path for mount in answer.mounts}

    def test_mps_refuses_two_shares(self, tmp_path: Path) -> None:
        with pytest.raises(FailedCall, match="maximum request size for shared resources is 1"):
            Scene(tmp_path, self.MPS).give("nvidia.com/gpu", 0, 1)


class TestRequests:
    """Which requests are answered at all."""

    @staticmethod
    def shared(way: str, **fields: Any) -> dict[str, Any]:
        section = {"resources": [{"name": "gpu", "replicas": 2}], **fields}
        return {"flags": {"mpsRoot": "/run/mps"}, "sharing": {way: section}}

    def test_a_device_that_is_not_there_is_refused_by_name(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, None)
        resource = scene.resources["nvidia.com/gpu"]
        allocator = Allocator(resource, scene.config, scene.root, lambda: "one")
        with pytest.raises(FailedCall, match="unknown device: GPU-nowhere"):
            allocator.allocate_container([resource.devices[1].id, "GPU-nowhere"])

    def test_a_whole_gpu_is_no_replica_of_itself(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, self.shared("timeSlicing"))
        resource = scene.resources["nvidia.com/gpu"]
        with pytest.raises(FailedCall, match="unknown device"):
            Allocator(resource, scene.config, scene.root, lambda: "one").allocate_container([resource.devices[0].uuid])

    @pytest.mark.parametrize("way", ["timeSlicing", "mps"])
    def test_two_shares_of_two_gpus_where_nothing_forbids_them(self, tmp_path: Path, way: str) -> None:
        scene = Scene(tmp_path, self.shared(way, failRequestsGreaterThanOne=False))
        both = ",".join(gpu.uuid for gpu in scene.inventory.gpus)
        assert scene.give("nvidia.com/gpu", 1, 2).envs["NVIDIA_VISIBLE_DEVICES"] == both

    @pytest.mark.parametrize("way", ["timeSlicing", "mps"])
    def test_two_shares_where_they_are_forbidden(self, tmp_path: Path, way: str) -> None:
        scene = Scene(tmp_path, self.shared(way, failRequestsGreaterThanOne=True))
        assert scene.give("nvidia.com/gpu", 1).envs
        words = (
            'invalid allocation request for "nvidia.com/gpu": invalid request: '
            "maximum request size for shared resources is 1; found 2"
        )
        with pytest.raises(FailedCall, match=re.escape(words)):
            scene.give("nvidia.com/gpu", 1, 2)


class TestWhatTheOriginalsTestsExpect:
    """The cases of `internal/plugin/server_test.go`, in our own words."""

    @pytest.mark.parametrize(
        ("count", "switches", "names"),
        [
            (0, {}, []),
            (1, {}, ["gpu=0"]),
            (2, {}, ["gpu=0", "gpu=1"]),
            (0, {"mofedEnabled": True}, ["mofed=all"]),
            (0, {"gdsEnabled": True}, ["gds=all"]),
            (1, {"gdsEnabled": True, "mofedEnabled": True}, ["gpu=0", "gds=all", "mofed=all"]),
        ],
    )
    def test_annotations(self, tmp_path: Path, count: int, switches: dict[str, bool], names: list[str]) -> None:
        strategy = {"deviceListStrategy": "cdi-annotations", "deviceIDStrategy": "index"}
        scene = Scene(tmp_path, {"flags": {**switches, "plugin": strategy}})
        resource = scene.resources["nvidia.com/gpu"]
        ids = [device.id for device in resource.devices[:count]]
        answer = Allocator(resource, scene.config, scene.root, lambda: "uuid").allocate_container(ids)
        expected = ",".join(f"k8s.device-plugin.nvidia.com/{name}" for name in names)
        key = "cdi.k8s.io/nvidia-device-plugin_uuid"
        assert dict(answer.annotations) == ({key: expected} if names else {})
        assert dict(answer.envs) == {f"NVIDIA_{name.removesuffix('Enabled').upper()}": "enabled" for name in switches}
