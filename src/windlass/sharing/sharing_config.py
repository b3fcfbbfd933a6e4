"""How a resource is shared: the entries under `sharing.timeSlicing` and `sharing.mps` of the device plugin's config.

Read from decoded YAML by `plugin_config`. An entry names a resource, how many pods may share each of its devices,
and, if renames are honoured, a new name and the devices that it applies to. NVIDIA's plugin reads the last two and
ignores them with a warning; here `honor_renames` enables them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.sharing.inventory import Gpu, MigInstance

SHARED_SUFFIX = ".shared"
MAX_NAME_LENGTH = 63
MAX_REPLICAS = 10_000
MANY_REPLICAS = 64
"""Above this, a warning: no GPU has memory for so many pods."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_INDEX = re.compile(r"\d{1,4}")
_MIG_INDEX = re.compile(r"\d{1,4}:\d{1,4}")
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU_UUID = re.compile(rf"GPU-{_UUID}")
_MIG_UUID = re.compile(rf"MIG-(?:{_UUID}|GPU-{_UUID}/\d+/\d+)")


class SharedResource(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: this resource, each device so many times."""

    name: str
    """With its prefix: `nvidia.com/gpu`."""
    replicas: int
    rename: str = ""
    devices: int | tuple[str, ...] | None = None
    """None for all, a number for that many, or the devices by index or UUID."""

    @property
    def shared_name(self) -> str:
        return self.rename or self.name

    def covers(self, gpu: Gpu, instance: MigInstance | None, position: int) -> bool:
        """Whether the entry is about this device, the `position`-th of its resource."""
        if self.devices is None:
            return True
        if isinstance(self.devices, int):
            return position < self.devices
        if instance is None:
            return str(gpu.index) in self.devices or gpu.uuid in self.devices
        short = f"{gpu.index}:{instance.index}"
        long = f"MIG-{gpu.uuid}/{instance.gpu_instance}/{instance.compute_instance}"
        return any(name in self.devices for name in (short, instance.uuid, long))


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """`timeSlicing` or `mps`."""

    strategy: str
    """`time-slicing` or `mps`."""
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    resources: tuple[SharedResource, ...] = ()

    def entry_for(self, resource: str, gpu: Gpu, instance: MigInstance | None, position: int) -> SharedResource | None:
        """The entry that says how a device is shared; None where it isn't."""
        for entry in self.resources:
            if entry.name == resource and entry.covers(gpu, instance, position):
                return entry
        return None


def read_sharing(raw: Any, strategy: str, path: str, honor_renames: bool) -> tuple[Sharing, list[str]]:
    """The section, and warnings about settings without effect."""
    fields = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
    section = require_mapping(raw, path, fields)
    rename = _flag(section.get("renameByDefault"), f"{path}.renameByDefault", False)
    fail = _flag(section.get("failRequestsGreaterThanOne"), f"{path}.failRequestsGreaterThanOne", strategy == "mps")
    listed = section.get("resources")
    if not isinstance(listed, list) or not listed:
        remedy = "list at least one resource with its replicas"
        raise InputError("no resources specified", path=f"{path}.resources", remedy=remedy)
    warnings: list[str] = []
    entries = []
    for at, item in enumerate(listed):
        entry = _entry(item, f"{path}.resources[{at}]")
        if not honor_renames and (entry.rename or entry.devices is not None):
            given = {"rename": entry.rename, "devices": entry.devices is not None}
            warnings += [
                f"{path}.resources[{at}].{what} is ignored, as the original does; --honor-renames keeps it"
                for what, is_given in given.items()
                if is_given
            ]
            entry = msgspec.structs.replace(entry, rename="", devices=None)
        if rename and not entry.rename:
            entry = msgspec.structs.replace(entry, rename=entry.name + SHARED_SUFFIX)
        _check_name(entry.shared_name, f"{path}.resources[{at}].rename")
        if entry.replicas > MANY_REPLICAS:
            warnings.append(f"{path}.resources[{at}].replicas: {entry.replicas} pods would share the memory of one GPU")
        entries.append(entry)
    warnings += _unknown(section, path, fields)
    for at, item in enumerate(listed):
        warnings += _unknown(item, f"{path}.resources[{at}]", ("name", "rename", "devices", "replicas"))
    sharing = Sharing(
        strategy=strategy,
        rename_by_default=rename,
        fail_requests_greater_than_one=fail,
        resources=tuple(entries),
    )
    return sharing, warnings


def parse_resource_name(raw: Any, path: str) -> str:
    """A resource with NVIDIA's prefix, added where it was left out."""
    if not isinstance(raw, str) or not raw:
        raise InputError("must name a resource", path=path, remedy="write nvidia.com/gpu")
    name = raw if raw.startswith(NVIDIA_PREFIX) else NVIDIA_PREFIX + raw
    _check_name(name, path)
    return name


def _check_name(name: str, path: str) -> None:
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name.removeprefix(NVIDIA_PREFIX)):
        remedy = f"use up to {MAX_NAME_LENGTH} lower-case letters, digits, dashes and dots"
        raise InputError(f"{name[:80]!r} can't be the name of a resource", path=path, remedy=remedy)


def _entry(raw: Any, path: str) -> SharedResource:
    entry = require_mapping(raw, path, ("name", "rename", "devices", "replicas"))
    for required in ("name", "replicas"):
        if entry.get(required) is None:
            raise InputError("is required", path=f"{path}.{required}", remedy=f"add {required}")
    replicas = entry["replicas"]
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 2:
        raise InputError("number of replicas must be >= 2", path=f"{path}.replicas", remedy="write 2 or more")
    if replicas > MAX_REPLICAS:
        raise InputError("is too large", path=f"{path}.replicas", remedy=f"use at most {MAX_REPLICAS}")
    rename = entry.get("rename")
    return SharedResource(
        name=parse_resource_name(entry["name"], f"{path}.name"),
        replicas=replicas,
        rename=parse_resource_name(rename, f"{path}.rename") if rename not in (None, "") else "",
        devices=_devices(entry.get("devices"), f"{path}.devices"),
    )


def _devices(raw: Any, path: str) -> int | tuple[str, ...] | None:
    if raw is None or raw == "all":
        return None
    if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 10_000:
        return raw
    if isinstance(raw, list) and raw:
        return tuple(_device(item, f"{path}[{at}]") for at, item in enumerate(raw))
    raise InputError(
        "must be all, a count above 0, or a list of devices", path=path, remedy='write [0, "1:2", "GPU-…"]'
    )


def _device(raw: Any, path: str) -> str:
    word = str(raw) if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if any(pattern.fullmatch(word) for pattern in (_INDEX, _MIG_INDEX, _GPU_UUID, _MIG_UUID)):
        return word
    raise InputError(f"{str(raw)[:64]!r} is not a device", path=path, remedy="use an index, GPU:MIG index, or a UUID")


def require_mapping(raw: Any, path: str, fields: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path=path, remedy=f"it has the fields {', '.join(fields)}")
    return raw


def _unknown(raw: Any, path: str, fields: tuple[str, ...]) -> list[str]:
    return [f"{path}.{name} is not a field and is ignored" for name in raw if name not in fields]


def _flag(raw: Any, path: str, default: bool) -> bool:
    if raw is None:
        return default
    if isinstance(raw, bool):
        return raw
    raise InputError("must be true or false", path=path, remedy="write true or false")
