"""What a container gets with its devices: environment, mounts, device nodes, annotations, CDI names.

`resource_server` calls it for each container of an Allocate request. Names, values and orders are NVIDIA's, for
every `deviceListStrategy`; several strategies add up. With CDI strategies only, devices come by CDI alone, but the
environment for MPS, GDS, GDRCopy and MOFED is set all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.cdi_extras import present_extras, present_imex_channels
from windlass.node.cdi_writer import CDI_VENDOR
from windlass.node.host_root import HostRoot
from windlass.node.plugin.rpc import FailedCall
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.advertised_resources import PluginDevice, PluginResource
from windlass.sharing.plugin_config import PluginConfig

VISIBLE, IMEX_CHANNELS = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS"
MOUNTS = "/var/run/nvidia-container-devices"
CONTAINER_MPS = "/mps"
_COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


class Allocator:
    """Answers for one resource."""

    def __init__(
        self, resource: PluginResource, config: PluginConfig, root: HostRoot, new_id: Callable[[], str]
    ) -> None:
        self._resource, self._config, self._root, self._new_id = resource, config, root, new_id
        self._devices = {device.id: device for device in resource.devices}

    def allocate_container(self, ids: Sequence[str]) -> dp.ContainerAllocateResponse:
        devices = self._devices_by_id(ids)
        config = self._config
        strategies = config.device_list_strategy
        names = self._names(devices)
        channels = self._imex_channels()
        cdi_names = self._cdi_names(names, channels)
        response = dp.ContainerAllocateResponse()
        if "cdi-cri" in strategies:
            response.cdi_devices.extend(dp.CDIDevice(name=name) for name in cdi_names)
        if "cdi-annotations" in strategies and cdi_names:
            key = f"{config.cdi_annotation_prefix}nvidia-device-plugin_{self._new_id()}"
            response.annotations[key] = ",".join(cdi_names)
        self._add_driver_environment(response)
        if all(strategy.startswith("cdi-") for strategy in strategies):
            return response
        if "envvar" in strategies:
            response.envs[VISIBLE] = ",".join(names)
            if channels:
                response.envs[IMEX_CHANNELS] = ",".join(map(str, channels))
        if "volume-mounts" in strategies:
            self._add_volume_mounts(response, names, channels)
        if config.pass_device_specs:
            response.devices.extend(self._device_specs(devices))
        return response

    def _add_driver_environment(self, response: dp.ContainerAllocateResponse) -> None:
        config = self._config
        if config.sharing_strategy == "mps" and self._resource.is_shared:
            self._add_mps(response)
        for enabled, name in (
            (config.gdrcopy_enabled, "NVIDIA_GDRCOPY"),
            (config.gds_enabled, "NVIDIA_GDS"),
            (config.mofed_enabled, "NVIDIA_MOFED"),
        ):
            if enabled:
                response.envs[name] = "enabled"

    def _devices_by_id(self, ids: Sequence[str]) -> list[PluginDevice]:
        refusal = f'invalid allocation request for "{self._resource.name}": invalid request'
        unknown = [device_id for device_id in ids if device_id not in self._devices]
        if unknown:
            raise FailedCall(f"{refusal}: unknown device: {unknown[0]}")
        if self._resource.fail_above_one and len(ids) > 1:
            raise FailedCall(f"{refusal}: maximum request size for shared resources is 1; found {len(ids)}")
        return [self._devices[device_id] for device_id in ids]

    def _imex_channels(self) -> tuple[int, ...]:
        try:
            return present_imex_channels(self._config, self._root)
        except InputError as error:
            raise FailedCall(str(error)) from None

    def _names(self, devices: Sequence[PluginDevice]) -> list[str]:
        """Physical devices, each once, named by the ID strategy."""
        by_index = self._config.device_id_strategy == "index"
        return list(dict.fromkeys(device.index if by_index else device.uuid for device in devices))

    def _cdi_names(self, names: Sequence[str], channels: Sequence[int]) -> list[str]:
        found = [f"{CDI_VENDOR}/gpu={name}" for name in names]
        found += [f"{CDI_VENDOR}/imex-channel={channel}" for channel in channels]
        found += [f"{CDI_VENDOR}/{kind}=all" for kind in present_extras(self._config, self._root)]
        return found

    def _add_volume_mounts(
        self, response: dp.ContainerAllocateResponse, names: Sequence[str], channels: Sequence[int]
    ) -> None:
        response.envs[VISIBLE] = MOUNTS
        targets = [f"{MOUNTS}/{name}" for name in names]
        targets += [f"{MOUNTS}/imex/{channel}" for channel in channels]
        response.mounts.extend(dp.Mount(host_path="/dev/null", container_path=target) for target in targets)

    def _device_specs(self, devices: Sequence[PluginDevice]) -> list[dp.DeviceSpec]:
        paths = [path for path in _COMMON_NODES if self._root.exists(path)]
        for device in devices:
            paths.append(f"/dev/nvidia{device.gpu.minor}")
            if device.instance is not None:
                minor, instance = device.gpu.minor, device.instance
                for compute in (None, instance.compute_instance):
                    number = self._root.capability_minor(minor, instance.gpu_instance, compute)
                    paths.append(f"/dev/nvidia-caps/nvidia-cap{number}")
        host_root = self._config.nvidia_dev_root or self._config.nvidia_driver_root
        return [
            dp.DeviceSpec(container_path=path, host_path=str(Path(host_root) / path[1:]), permissions="rw")
            for path in dict.fromkeys(paths)
        ]

    def _add_mps(self, response: dp.ContainerAllocateResponse) -> None:
        pipe, root = f"{self._resource.name}/pipe", self._config.mps_root
        response.envs["CUDA_MPS_PIPE_DIRECTORY"] = f"{CONTAINER_MPS}/{pipe}"
        response.mounts.add(host_path=f"{root}/{pipe}", container_path=f"{CONTAINER_MPS}/{pipe}")
        response.mounts.add(host_path=f"{root}/shm", container_path="/dev/shm")
