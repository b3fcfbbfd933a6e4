"""mig-parted's config file, strictly: named layouts, each a list of which GPUs get which instances.

Called by the node's MIG manager and by `windlass plan mig` with the decoded YAML; returns what each GPU of an
inventory is to become. As in mig-parted, an unknown field, a missing version or a missing `devices` is an error,
later entries override earlier ones, and a GPU that no entry names is left alone. Without a file, the layouts that
NVIDIA ships (`all-disabled`, `all-1g.10gb`, `all-balanced`, …) are made from the GPUs themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.mig import MigGeometry, place_layout
from windlass.sharing.inventory import Gpu

ALL = -1
MAX_INSTANCES = 64
_PROFILE = re.compile(r"(?:[1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(?:\+me\.all|\+me|\+gfx|-me)?")
_FILTER = re.compile(r"0x[0-9A-Fa-f]{8}(?::0x[0-9A-Fa-f]{8})?")
_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")


class MigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a layout: these GPUs, this mode, these instances."""

    filters: tuple[str, ...] = ()
    """PCI IDs, upper case without the `0X`, with those of the board behind a colon where given; empty for any."""
    devices: tuple[int, ...] | None = None
    """GPU indices; None for all."""
    enabled: bool
    wanted: dict[str, int] = {}

    def matches(self, gpu: Gpu) -> bool:
        chip = gpu.pci_id[2:].upper()
        board = f"{chip}:{gpu.subsystem_id[2:].upper()}"
        if self.filters and chip not in self.filters and board not in self.filters:
            return False
        return self.devices is None or gpu.index in self.devices


MigConfigs = dict[str, tuple[MigEntry, ...]]


def read_mig_configs(raw: Any, file: str = "") -> MigConfigs:
    """The named layouts of a decoded file; an `InputError` with the field's path for anything that is not right."""
    try:
        return _read(raw)
    except InputError as error:
        raise error.with_context(file=file) from None


def entry_for_gpu(gpu: Gpu, entries: Sequence[MigEntry]) -> MigEntry | None:
    """What the layout says of a GPU: the last entry that names it; None where none does."""
    found = None
    for entry in entries:
        if entry.matches(gpu):
            found = entry
    return found


def select_config(configs: Mapping[str, tuple[MigEntry, ...]], name: str) -> tuple[MigEntry, ...]:
    if name not in configs:
        known = ", ".join(sorted(configs)) or "none"
        raise InputError(f"there is no MIG config {name[:64]!r}", path="mig-configs", remedy=f"there are: {known}")
    return configs[name]


def generated_configs(gpus: Sequence[Gpu]) -> MigConfigs:
    """The layouts that NVIDIA ships, made for the GPUs at hand. Their names are label values: no plus sign."""
    configs: dict[str, list[MigEntry]] = {
        "all-disabled": [MigEntry(enabled=False)],
        "all-enabled": [MigEntry(enabled=True)],
    }
    seen: set[tuple[str, str]] = set()
    for gpu in gpus:
        geometry = gpu.geometry
        if geometry is None or not gpu.mig_capable or (gpu.pci_id, geometry.name) in seen:
            continue
        seen.add((gpu.pci_id, geometry.name))
        filters = (gpu.pci_id[2:].upper(),) if gpu.pci_id else ()
        for profile in geometry.profiles:
            wanted = {profile.name: _most(geometry, profile.name)}
            entry = MigEntry(filters=filters, enabled=True, wanted=wanted)
            configs.setdefault(f"all-{profile.name.replace('+', '.')}", []).append(entry)
        balanced = MigEntry(filters=filters, enabled=True, wanted=_balanced(geometry))
        configs.setdefault("all-balanced", []).append(balanced)
    return {name: tuple(entries) for name, entries in configs.items()}


def _most(geometry: MigGeometry, profile: str) -> int:
    count = 1
    while place_layout(geometry, (profile,) * (count + 1)) is not None:
        count += 1
    return count


def _balanced(geometry: MigGeometry) -> dict[str, int]:
    """Seven slices: two of 1g, one of 2g, one of 3g; four slices: two of 1g, one of 2g."""
    wanted = {}
    for compute, count in ((1, 2), (2, 1), (3, 1)) if geometry.compute_slices == 7 else ((1, 2), (2, 1)):
        plain = [profile for profile in geometry.profiles if profile.compute_slices == compute and not profile.media]
        wanted[min(plain, key=lambda profile: profile.memory_slices).name] = count
    return wanted


def _read(raw: Any) -> MigConfigs:
    if raw is None:
        return {}  # an empty file is a file without layouts
    top = _mapping(raw, "", ("version", "mig-configs"))
    if top.get("version") != "v1":
        message = "unknown version" if "version" in top else "no version"
        raise InputError(message, path="version", remedy="write version: v1")
    if "mig-configs" not in top:
        return {}
    configs = top["mig-configs"]
    if not isinstance(configs, Mapping) or not configs:
        raise InputError("must be a map of layouts", path="mig-configs", remedy="name at least one layout")
    return {str(name): _layout(value, f"mig-configs.{name}") for name, value in configs.items()}


def _layout(raw: Any, path: str) -> tuple[MigEntry, ...]:
    if not isinstance(raw, list) or not raw:
        raise InputError("must be a list of entries", path=path, remedy="begin each entry with a dash")
    return tuple(_entry(item, f"{path}[{at}]") for at, item in enumerate(raw))


def _entry(raw: Any, path: str) -> MigEntry:
    entry = _mapping(raw, path, _FIELDS)
    for required in ("devices", "mig-enabled"):
        if required not in entry:
            raise InputError("is required", path=f"{path}.{required}", remedy=f"add {required}")
    if not isinstance(entry["mig-enabled"], bool):
        raise InputError("must be true or false", path=f"{path}.mig-enabled")
    if entry["mig-enabled"] and entry.get("mig-devices") is None:
        remedy = "list the instances, or write {} for none"
        raise InputError("is required while MIG is on", path=f"{path}.mig-devices", remedy=remedy)
    wanted = _wanted(entry.get("mig-devices"), f"{path}.mig-devices")
    if wanted and not entry["mig-enabled"]:
        remedy = "set mig-enabled: true, or remove the instances"
        raise InputError("instances are listed while MIG is off", path=f"{path}.mig-devices", remedy=remedy)
    return MigEntry(
        filters=_filters(entry.get("device-filter"), f"{path}.device-filter"),
        devices=_devices(entry["devices"], f"{path}.devices"),
        enabled=entry["mig-enabled"],
        wanted=wanted,
    )


def _filters(raw: Any, path: str) -> tuple[str, ...]:
    if raw is None or raw == "":
        return ()
    words = [raw] if isinstance(raw, str) else raw
    if not isinstance(words, list) or not all(isinstance(word, str) and _FILTER.fullmatch(word) for word in words):
        remedy = 'write "0x233510DE" (device, then vendor; the board behind a colon where it matters)'
        raise InputError("must be a PCI ID or a list of them", path=path, remedy=remedy)
    return tuple(word.upper().replace("0X", "") for word in words)


def _devices(raw: Any, path: str) -> tuple[int, ...] | None:
    if raw == "all":
        return None
    if isinstance(raw, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in raw
    ):
        return tuple(raw)
    raise InputError("must be all or a list of GPU indices", path=path, remedy="write devices: all, or [0, 1]")


def _wanted(raw: Any, path: str) -> dict[str, int]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InputError("must be a map from profile to count", path=path, remedy='write {"1g.10gb": 7}')
    wanted: Counter[str] = Counter()
    for name, count in raw.items():
        if not isinstance(name, str) or not _PROFILE.fullmatch(name):
            remedy = "profiles are called like 1g.10gb or 1g.10gb+me"
            raise InputError(f"{str(name)[:64]!r} is not a MIG profile", path=path, remedy=remedy)
        if "c." in name:
            message = f"{name} is a compute instance, and those have no resource name"
            raise InputError(message, path=f"{path}.{name}", remedy=f"use {name.partition('c.')[2]}")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_INSTANCES:
            raise InputError("must be a count", path=f"{path}.{name}", remedy="write a number of instances")
        if count:
            wanted[name] += count
    if raw and not wanted:
        raise InputError("all counts are 0", path=path, remedy="write {} for no instances")
    return dict(wanted)


def _mapping(raw: Any, path: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path=path, remedy=f"it has the fields {', '.join(known)}")
    for name in raw:
        if name not in known:
            remedy = f"the fields are {', '.join(known)}"
            raise InputError("unknown field", path=f"{path}.{name}".lstrip("."), remedy=remedy)
    return raw
