"""CDI specs for the node's GPUs: built from the inventory, checked against the format and the node, then written.

`cdi_writer` calls this in the plugin process, before devices are advertised by CDI name and whenever MIG, the
driver or device numbers change. Names, mounts and hooks follow NVIDIA's generator. A missing path or a device node
with another number would fail each container later; `check_spec` reports it before the spec is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.node.atomic_file import write_atomically
from windlass.node.host_root import HostRoot
from windlass.sharing.inventory import Gpu, Inventory, MigInstance

COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
BINARIES = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control"),
    "nvidia-cuda-mps-server",
)
SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps")
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
    permissions: str = ""


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
    *,
    hook: str = "",
    without_hooks: frozenset[str] = frozenset(),
) -> CdiSpec:
    """The spec of all devices; `hook` is the path of nvidia-ctk or nvidia-cdi-hook, empty for no hooks."""
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
    common = _common(root, inventory.driver.version, hook, without_hooks)
    return CdiSpec(cdi_version=_version(devices, common), kind=kind, devices=tuple(devices), container_edits=common)


def check_spec(spec: CdiSpec, root: HostRoot) -> None:
    """Raises an `InputError` for the first error, in the format or on this node."""
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
    _check_edits(spec.container_edits, root, "containerEdits")


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
            nodes.append(
                CdiNode(
                    path=path,
                    host_path=host_path if host_path != path else "",
                    type="c",
                    major=device_node.major if device_node else 0,
                    minor=device_node.minor if device_node else 0,
                    permissions="rw",
                )
            )
    return CdiEdits(device_nodes=tuple(nodes), mounts=tuple(mounts))


def _common(root: HostRoot, version: str, hook: str, without_hooks: frozenset[str]) -> CdiEdits:
    edits = edits_for([path for path in COMMON_NODES if root.exists(path)], root)
    libraries = list(_libraries(root, version))
    files = [*libraries, *(f"/usr/bin/{name}" for name in BINARIES), *SOCKETS]
    mounts = tuple(
        CdiMount(host_path=str(root.path(path)), container_path=path, options=_READ_ONLY)
        for path in files
        if root.exists(path)
    )
    return CdiEdits(
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        device_nodes=edits.device_nodes,
        mounts=(*edits.mounts, *mounts),
        hooks=_hooks(hook, libraries, version, without_hooks) if libraries and hook else (),
    )


def _libraries(root: HostRoot, version: str) -> Iterator[str]:
    """The driver's libraries have its version in their names."""
    for folder in LIBRARY_FOLDERS:
        host_folder = root.path(folder)
        for library in sorted(host_folder.glob(f"*.so.{version}")) if host_folder.is_dir() else ():
            yield f"{folder}/{library.name}"


def _hooks(hook: str, libraries: list[str], version: str, without: frozenset[str]) -> tuple[CdiHook, ...]:
    program = Path(hook).name
    command = (program, "hook") if program == "nvidia-ctk" else (program,)
    links = []
    for path in libraries:
        name = Path(path).name.removesuffix(f".so.{version}")
        if name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-opencl"):
            links += ["--link", f"{name}.so.{version}::{Path(path).parent}/{name}.so.1"]
    folders = sorted({str(Path(path).parent) for path in libraries})
    folder_arguments = [part for folder in folders for part in ("--folder", folder)]
    arguments_by_hook = {"create-symlinks": links, "update-ldcache": folder_arguments}
    return tuple(
        CdiHook(hook_name="createContainer", path=hook, args=(*command, name, *arguments))
        for name, arguments in arguments_by_hook.items()
        if arguments and without.isdisjoint((name, "all"))
    )


def _version(devices: list[CdiDevice], common: CdiEdits) -> str:
    """The lowest CDI version with everything that is used: old runtimes refuse newer specs."""
    edits = [*(device.container_edits for device in devices), common]
    needs_host_path = any(node.host_path for edit in edits for node in edit.device_nodes)
    begins_with_digit = any(device.name[0].isdigit() for device in devices)
    return "0.5.0" if needs_host_path or begins_with_digit else "0.3.0"


def _check_edits(edits: CdiEdits, root: HostRoot, path: str) -> None:
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
        if not Path(mount.host_path).exists():
            raise InputError(f"there is no {mount.host_path}", path=f"{path}.mounts[{index}].hostPath")
        if not mount.container_path.startswith("/"):
            raise InputError("must be absolute", path=f"{path}.mounts[{index}].containerPath")
    for index, hook in enumerate(edits.hooks):
        if not root.exists(hook.path):
            raise InputError(f"there is no {hook.path}", path=f"{path}.hooks[{index}].path")
