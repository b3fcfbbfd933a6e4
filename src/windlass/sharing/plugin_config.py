"""NVIDIA's device plugin config, v1: file, environment and flags resolved to one configuration.

Called by `windlass node run` and `explain-config` with decoded YAML and plain maps; the result goes to
`advertised_resources` and to the agent. Precedence is NVIDIA's: flag, then environment, then file. Combinations that
can't work are refused with the field's path; what NVIDIA's plugin accepts and ignores is accepted too, with a
warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.others import CDI_ANNOTATION_PREFIX
from windlass.sharing.plugin_fields import ALIASES, PLUGIN_FIELDS, PluginField
from windlass.sharing.resource_names import ResourceNames, read_names
from windlass.sharing.sharing_config import Sharing, read_sharing

_SECTIONS = ("version", "flags", "resources", "sharing", "imex")


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, resolved. Names follow the file's."""

    mig_strategy: str = "none"
    fail_on_init_error: bool = True
    mps_root: str = ""
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str = ""
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    use_node_feature_api: bool = True
    device_discovery_strategy: str = "auto"
    pass_device_specs: bool = False
    device_list_strategy: tuple[str, ...] = ("envvar",)
    strategy_is_given: bool = False
    """Whether the user chose it; otherwise the agent takes what the container runtime has."""
    device_id_strategy: str = "uuid"
    cdi_annotation_prefix: str = CDI_ANNOTATION_PREFIX
    nvidia_ctk_path: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    shared_devices_allocation_policy: str = "distributed"
    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval: float = 60.0
    output_file: str = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    machine_type_file: str = "/sys/class/dmi/id/product_name"
    imex_channel_ids: tuple[int, ...] = ()
    imex_required: bool = False
    names: ResourceNames = ResourceNames()
    """Names by model and profile; empty unless renames are honoured."""
    sharing: Sharing | None = None
    """What is in force: MPS, where both are given."""
    warnings: tuple[str, ...] = ()

    @property
    def sharing_strategy(self) -> str:
        return self.sharing.strategy if self.sharing else "none"


def resolve_config(
    file: Any = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    honor_renames: bool = False,
) -> PluginConfig:
    """One configuration out of the three; an `InputError` that names the field for what can't be."""
    raw = _sections(file)
    warnings: list[str] = []
    values = {_name(field): _value(field, raw, environment or {}, flags or {}) for field in PLUGIN_FIELDS}
    warnings += _unknown_fields(raw)
    names = read_names(raw.get("resources"))
    if names != ResourceNames() and not honor_renames:
        warnings.append("resources: naming by pattern is ignored, as the original does; --honor-renames keeps it")
        names = ResourceNames()
    sharing = _sharing(raw.get("sharing"), honor_renames, warnings)
    is_given = _is_given("--device-list-strategy", raw, environment or {}, flags or {})
    values["strategy_is_given"] = is_given
    config = PluginConfig(**values, names=names, sharing=sharing, warnings=tuple(warnings))
    _check(config)
    return config


def _sections(file: Any) -> Mapping[str, Any]:
    if file is None:
        return {}
    if not isinstance(file, Mapping):
        raise InputError("must be a map", remedy=f"its sections are {', '.join(_SECTIONS)}")
    version = file.get("version") or "v1"
    if version != "v1":
        raise InputError(f"unknown version: {str(version)[:64]}", path="version", remedy="write version: v1")
    return file


def _name(field: PluginField) -> str:
    """`--mig-strategy` → `mig_strategy`."""
    return field.flag.removeprefix("--").replace("-", "_")


def _value(field: PluginField, raw: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]) -> Any:
    for flag in (field.flag, *(alias for alias, real in ALIASES.items() if real == field.flag)):
        if flags.get(flag) is not None:
            return field.parse(flags[flag], flag)
    for variable in field.variables:
        if environment.get(variable):
            return field.parse(environment[variable], variable)
    given = _at(raw, field.path)
    return field.default if given is None else field.parse(given, field.path)


def _is_given(flag: str, raw: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]) -> bool:
    field = next(field for field in PLUGIN_FIELDS if field.flag == flag)
    by_environment = any(environment.get(variable) for variable in field.variables)
    return flags.get(flag) is not None or by_environment or _at(raw, field.path) is not None


def _at(raw: Mapping[str, Any], path: str) -> Any:
    found: Any = raw
    so_far: list[str] = []
    for part in path.split("."):
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise InputError("must be a map", path=".".join(so_far), remedy=f"{part} is one of its fields")
        found = found.get(part)
        so_far.append(part)
    return found


def _unknown_fields(raw: Mapping[str, Any]) -> list[str]:
    """NVIDIA's plugin ignores unknown fields; so does Windlass, with a warning."""
    known = {part for field in PLUGIN_FIELDS for part in _prefixes(field.path)} | set(_SECTIONS)
    known |= {"sharing.timeSlicing", "sharing.mps"}
    found: list[str] = []

    def walk(value: Mapping[str, Any], path: str) -> None:
        for name, inner in value.items():
            where = f"{path}.{name}".lstrip(".")
            if where not in known:
                found.append(f"{where} is not a field and is ignored{_hint(where)}")
            elif isinstance(inner, Mapping) and where not in (
                "resources",
                "sharing.timeSlicing",
                "sharing.mps",
            ):
                walk(inner, where)

    walk(raw, "")
    return found


def _hint(path: str) -> str:
    last = path.rpartition(".")[2]
    if last in ("renameByDefault", "failRequestsGreaterThanOne"):
        return f" (it belongs to sharing.timeSlicing.{last} or sharing.mps.{last})"
    places = [field.path for field in PLUGIN_FIELDS if field.path.endswith(f".{last}")]
    return f" (did you mean {places[0]}?)" if places else ""


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def _sharing(raw: Any, honor_renames: bool, warnings: list[str]) -> Sharing | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path="sharing", remedy="it has timeSlicing and mps")
    found = {}
    for key, strategy in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        if raw.get(key) is not None:
            found[key], section_warnings = read_sharing(raw[key], strategy, f"sharing.{key}", honor_renames)
            warnings += section_warnings
    if len(found) == 2:
        warnings.append("sharing: timeSlicing and mps can't coexist; mps wins, and timeSlicing is ignored")
    return found.get("mps") or found.get("timeSlicing")


def _check(config: PluginConfig) -> None:
    """Refuses combinations that can't work on any node."""
    if config.device_discovery_strategy == "tegra":
        message = "Tegra boards are not supported"
        raise InputError(message, path="flags.deviceDiscoveryStrategy", remedy="use auto or nvml")
    if config.sharing is None or config.sharing.strategy != "mps":
        return
    if config.mig_strategy == "mixed":
        message = "using --mig-strategy=mixed is not supported with MPS"
        raise InputError(message, path="sharing.mps", remedy="use migStrategy none, or time-slicing")
    for at, entry in enumerate(config.sharing.resources):
        if "/mig-" in entry.name:
            message = "sharing using MPS is not supported for MIG devices"
            remedy = "share nvidia.com/gpu by MPS, or MIG devices by time-slicing"
            raise InputError(message, path=f"sharing.mps.resources[{at}].name", remedy=remedy)
    if not config.mps_root:
        remedy = "set it, or MPS_ROOT, to a path such as /run/nvidia/mps"
        raise InputError("MPS needs a folder for its pipes", path="flags.mpsRoot", remedy=remedy)
