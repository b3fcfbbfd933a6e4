"""CDI specs for the node's GPUs: built from the inventory, checked against the format and the node, then written.

`cdi_writer` calls this in the plugin process, before devices are advertised by CDI name and whenever MIG, the
driver or device numbers change. Names, mounts and hooks follow NVIDIA's generator; the driver's files come from
`driver_files`. A missing path or a device node with another number would fail each container later, and a container
without libcuda would compute nothing; `check_spec` reports it before the spec is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from windlass.model.errors import InputError
from windlass.node.atomic_file import write_atomically
from windlass.node.cdi_hooks import HookProgram, hooks_for
from windlass.node.driver_files import DriverFiles
from windlass.node.host_root import DeviceNode, HostRoot
from windlass.sharing.inventory import Gpu, Inventory, MigInstance

COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The format allows no unknown fields."""


class CdiNode(_Strict, frozen=True):
    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int = 0
    permissions: str = ""
    uid: int = 0
    gid: int = 0


class CdiMount(_Strict, frozen=True):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class CdiHook(_Strict, frozen=True):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class CdiEdits(_Strict, frozen=True):
    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiNode, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    additional_gids: tuple[int, ...] = ()


class CdiDevice(_Strict, frozen=True):
    name: str
    container_edits: CdiEdits


class CdiSpec(_Strict, frozen=True):
    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: CdiEdits = CdiEdits()


def make_spec(
    inventory: Inventory,
    root: HostRoot,
    kind: str,
    driver: DriverFiles,
    *,
    hook: HookProgram | None = None,
    without_hooks: frozenset[str] = frozenset(),
) -> CdiSpec:
    """The spec of all devices; without a `hook` program, links are mounts and the image's loader is on its own."""
    devices: list[CdiDevice] = []
    for gpu in inventory.gpus:
        if gpu.is_lost:
            continue
        edits = edits_for(_gpu_paths(gpu, root), root)
        devices += [CdiDevice(name=name, container_edits=edits) for name in (str(gpu.index), gpu.uuid)]
        for instance in gpu.instances:
            edits = edits_for(_instance_paths(gpu, instance, root), root)
            names = (f"{gpu.index}:{instance.index}", instance.uuid)
            devices += [CdiDevice(name=name, container_edits=edits) for name in names]
    devices.append(CdiDevice(name="all", container_edits=edits_for(_all_paths(inventory, root), root)))
    common = _common(root, driver)
    if hook is None:
        common = msgspec.structs.replace(common, mounts=(*common.mounts, *_links_as_mounts(driver)))
    else:
        common = msgspec.structs.replace(common, hooks=_hooks(driver, inventory.driver.version, hook, without_hooks))
    return CdiSpec(cdi_version=_version(devices, common), kind=kind, devices=tuple(devices), container_edits=common)


def check_spec(spec: CdiSpec, root: HostRoot, driver: DriverFiles | None = None) -> None:
    """Raises an `InputError` for the first error, in the format or on this node; `driver` says where its files are."""
    if not _KIND.fullmatch(spec.kind):
        raise InputError(f"{spec.kind!r} is not vendor/class", path="kind")
    if not spec.devices:
        raise InputError("this machine has no such devices", path="devices")
    seen = set()
    for index, device in enumerate(spec.devices):
        if not _NAME.fullmatch(device.name) or device.name in seen:
            raise InputError(
                f"{device.name!r} is not a valid device name, or is used twice", path=f"devices[{index}].name"
            )
        seen.add(device.name)
        _check_edits(device.container_edits, root, f"devices[{index}].containerEdits")
    files = (*driver.libraries, *driver.others) if driver is not None else ()
    _check_edits(spec.container_edits, root, "containerEdits", {file.host: Path(file.local) for file in files})
    inside = [PurePosixPath(mount.container_path).name for mount in spec.container_edits.mounts]
    if spec.kind.endswith("/gpu") and not any(name.startswith("libcuda.so.") for name in inside):
        raise InputError("no mount has libcuda: containers could not use CUDA", path="containerEdits.mounts")


def write_spec(spec: CdiSpec, folder: Path) -> Path:
    """Replaces `<vendor>-<class>.json` in one step."""
    path = folder / f"{spec.kind.replace('/', '-')}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(spec), indent=2))
    return path


def read_spec(data: bytes) -> CdiSpec:
    """Decodes a spec strictly, as the container runtime does."""
    try:
        return msgspec.json.decode(data, type=CdiSpec)
    except msgspec.MsgspecError as error:
        raise InputError(f"is not a CDI spec: {error}") from None


def _gpu_paths(gpu: Gpu, root: HostRoot) -> list[str]:
    paths = [f"/dev/nvidia{gpu.minor}"]
    drm = root.path(f"/sys/bus/pci/devices/{gpu.bus_id}/drm")
    names = sorted(path.name for path in drm.iterdir()) if drm.is_dir() else []
    return paths + [f"/dev/dri/{name}" for name in names if root.exists(f"/dev/dri/{name}")]


def _instance_paths(gpu: Gpu, instance: MigInstance, root: HostRoot) -> list[str]:
    caps = [
        root.capability_minor(gpu.minor, instance.gpu_instance),
        root.capability_minor(gpu.minor, instance.gpu_instance, instance.compute_instance),
    ]
    return [f"/dev/nvidia{gpu.minor}", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps)]


def _all_paths(inventory: Inventory, root: HostRoot) -> list[str]:
    paths: dict[str, None] = {}
    for gpu in inventory.gpus:
        if not gpu.is_lost:
            paths.update(dict.fromkeys(_gpu_paths(gpu, root)))
            for instance in gpu.instances:
                paths.update(dict.fromkeys(_instance_paths(gpu, instance, root)))
    return list(paths)


def edits_for(paths: list[str], root: HostRoot) -> CdiEdits:
    nodes, mounts = [], []
    for path in paths:
        device_node = root.device_node(path)
        host_path = str(root.path(path))
        if device_node is not None and device_node.is_stand_in:
            # A simulated device is a plain file; mount that file.
            mounts.append(CdiMount(host_path=host_path, container_path=path, options=("bind", "ro")))
        else:
            nodes.append(_node(path, host_path if host_path != path else "", device_node))
    gids = tuple(sorted({node.gid for node in nodes if node.gid}))
    return CdiEdits(device_nodes=tuple(nodes), mounts=tuple(mounts), additional_gids=gids)


def _node(path: str, host_path: str, found: DeviceNode | None) -> CdiNode:
    """With the host's mode and owner: a runtime that is given numbers only makes up a mode of its own."""
    if found is None:
        return CdiNode(path=path, host_path=host_path, type="c", permissions="rw")
    return CdiNode(
        path=path,
        host_path=host_path,
        type="c",
        major=found.major,
        minor=found.minor,
        file_mode=found.mode,
        permissions="rw",
        uid=found.uid,
        gid=found.gid,
    )


def _common(root: HostRoot, driver: DriverFiles) -> CdiEdits:
    edits = edits_for([path for path in COMMON_NODES if root.exists(path)], root)
    mounts = tuple(
        CdiMount(host_path=file.host, container_path=file.inside, options=_READ_ONLY)
        for file in (*driver.libraries, *driver.others)
    )
    return msgspec.structs.replace(edits, env=("NVIDIA_VISIBLE_DEVICES=void",), mounts=(*edits.mounts, *mounts))


def _hooks(driver: DriverFiles, version: str, program: HookProgram, without: frozenset[str]) -> tuple[CdiHook, ...]:
    """A hook without an environment of its own would get the container's: the image's LD_PRELOAD, as root."""
    return tuple(
        CdiHook(
            hook_name="createContainer",
            path=program.path,
            args=(*program.command, hook.name, *hook.arguments),
            env=("NVIDIA_CTK_DEBUG=false",),
        )
        for hook in hooks_for(driver, version, program.hooks, without)
    )


def _links_as_mounts(driver: DriverFiles) -> list[CdiMount]:
    """The same file under its other names, for hosts that have nothing to run a hook with."""
    hosts = {library.inside: library.host for library in driver.libraries}
    mounts = []
    for _ in range(2):  # libcuda.so names libcuda.so.1, which names the file
        for link in driver.links:
            target = str(PurePosixPath(link.path).parent / link.target)
            if target in hosts and link.path not in hosts:
                hosts[link.path] = hosts[target]
                mounts.append(CdiMount(host_path=hosts[target], container_path=link.path, options=_READ_ONLY))
    return mounts


def _version(devices: list[CdiDevice], common: CdiEdits) -> str:
    """The lowest CDI version with everything that is used: old runtimes refuse newer specs."""
    edits = [*(device.container_edits for device in devices), common]
    if any(edit.additional_gids for edit in edits):
        return "0.7.0"
    needs_host_path = any(node.host_path for edit in edits for node in edit.device_nodes)
    begins_with_digit = any(device.name[0].isdigit() for device in devices)
    return "0.5.0" if needs_host_path or begins_with_digit else "0.3.0"


def _check_edits(edits: CdiEdits, root: HostRoot, path: str, local: Mapping[str, Path] | None = None) -> None:
    """`local` says how this process opens some of the host's paths."""
    for index, node in enumerate(edits.device_nodes):
        found = root.device_node(node.path)
        where = f"{path}.deviceNodes[{index}]"
        if found is None:
            raise InputError(f"there is no device node {node.path}", path=where)
        if (found.major, found.minor) != (node.major, node.minor):
            raise InputError(
                f"{node.path} is {found.major}:{found.minor} and not {node.major}:{node.minor}", path=where
            )
    for index, mount in enumerate(edits.mounts):
        if not (local or {}).get(mount.host_path, root.local(mount.host_path)).exists():
            raise InputError(f"there is no {mount.host_path}", path=f"{path}.mounts[{index}].hostPath")
        if not mount.container_path.startswith("/"):
            raise InputError("must be absolute", path=f"{path}.mounts[{index}].containerPath")
    for index, hook in enumerate(edits.hooks):
        if not root.host_file(hook.path).exists():
            raise InputError(f"there is no {hook.path}", path=f"{path}.hooks[{index}].path")
