"""Every setting of NVIDIA's device plugin: where it stands in the file, which variable and flag set it, its default.

Read by `plugin_config`, which resolves a file, the environment and flags to one configuration, and by `windlass node
run`, which offers the flags. The table is the interface that a user's manifests already rely on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.others import CDI_ANNOTATION_PREFIX

Parse = Callable[[Any, str], Any]
INFINITE = -1.0
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


class PluginField(msgspec.Struct, frozen=True):
    """One setting."""

    path: str
    """In the file: `flags.plugin.deviceListStrategy`."""
    flag: str
    variables: tuple[str, ...]
    """Of the environment; the first that is set counts."""
    default: Any
    parse: Parse


def parse_bool(raw: Any, path: str) -> bool:
    """true or false, also as the words that Go's parser takes."""
    if isinstance(raw, bool):
        return raw
    word = str(raw).lower()
    if isinstance(raw, str) and word in (*_TRUE, *_FALSE):
        return word in _TRUE
    raise InputError(f"{str(raw)[:64]!r} is neither true nor false", path=path, remedy="write true or false")


def parse_text(raw: Any, path: str) -> str:
    if isinstance(raw, str):
        return raw
    raise InputError("must be text", path=path, remedy="put it between quotation marks")


def one_of(*choices: str) -> Parse:
    def parse(raw: Any, path: str) -> str:
        if raw not in choices:
            raise InputError(f"unknown value {str(raw)[:64]!r}", path=path, remedy=f"use one of {', '.join(choices)}")
        return str(raw)

    return parse


def list_of(*choices: str) -> Parse:
    """One word, a list, or words with commas between them."""

    def parse(raw: Any, path: str) -> tuple[str, ...]:
        words = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(words, list | tuple) or not words:
            raise InputError("must be a word or a list", path=path, remedy=f"use {', '.join(choices)}")
        for at, word in enumerate(words):
            if word not in choices:
                where = f"{path}[{at}]" if len(words) > 1 else path
                raise InputError(f"unknown value {str(word)[:64]!r}", path=where, remedy=f"use {', '.join(choices)}")
        return tuple(dict.fromkeys(words))

    return parse


def parse_go_duration(raw: Any, path: str) -> float:
    """Seconds; `INFINITE` for the word."""
    if raw == "infinite":
        return INFINITE
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1e19:
        return raw / 1e9  # as Go: a bare number counts nanoseconds
    words = str(raw) if len(str(raw)) <= 64 else ""
    parts = _DURATION.findall(words)
    if not isinstance(raw, str) or not parts or "".join(parts) != words:
        raise InputError(f"{str(raw)[:64]!r} is not a duration", path=path, remedy="write 60s, 5m or infinite")
    return sum(_seconds(part) for part in parts)


def _seconds(part: str) -> float:
    unit = next(unit for unit in ("ns", "us", "µs", "ms", "s", "m", "h") if part.endswith(unit))
    return float(part.removesuffix(unit)) * _UNITS[unit]


def parse_imex_channels(raw: Any, path: str) -> tuple[int, ...]:
    if isinstance(raw, str):
        raw = [int(word) if word.isascii() and word.isdigit() else word for word in raw.split(",") if word]
    if raw in ([], (), [0], (0,)) and not any(isinstance(item, bool) for item in raw):
        return tuple(raw)
    raise InputError("only channel 0 can be injected", path=path, remedy="write [] or [0]")


STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


_LABELS_TOO = ("flags.migStrategy", "flags.failOnInitError", "flags.useNodeFeatureAPI")
"""Settings that GPU Feature Discovery also takes under a name of its own."""
_NEWER_VARIABLES = {
    "NVIDIA_CTK_PATH": "NVIDIA_CDI_HOOK_PATH",
    "CONTAINER_DRIVER_ROOT": "DRIVER_ROOT_CTR_PATH",
}


def _field(path: str, flag_name: str, default: Any, parse: Parse) -> PluginField:
    variable = flag_name.removeprefix("--").replace("-", "_").upper()
    if path.startswith("flags.gfd."):
        return PluginField(path, flag_name, (f"GFD_{variable}",), default, parse)
    newer = [_NEWER_VARIABLES[variable]] if variable in _NEWER_VARIABLES else []
    other = [f"GFD_{variable}"] if path in _LABELS_TOO else []
    return PluginField(path, flag_name, (*newer, variable, *other), default, parse)


PLUGIN_FIELDS: Sequence[PluginField] = (
    _field("flags.migStrategy", "--mig-strategy", "none", one_of("none", "single", "mixed")),
    _field("flags.failOnInitError", "--fail-on-init-error", True, parse_bool),
    _field("flags.mpsRoot", "--mps-root", "", parse_text),
    _field("flags.nvidiaDriverRoot", "--nvidia-driver-root", "/", parse_text),
    _field("flags.nvidiaDevRoot", "--nvidia-dev-root", "", parse_text),
    _field("flags.gdrcopyEnabled", "--gdrcopy-enabled", False, parse_bool),
    _field("flags.gdsEnabled", "--gds-enabled", False, parse_bool),
    _field("flags.mofedEnabled", "--mofed-enabled", False, parse_bool),
    _field("flags.useNodeFeatureAPI", "--use-node-feature-api", True, parse_bool),
    _field(
        "flags.deviceDiscoveryStrategy",
        "--device-discovery-strategy",
        "auto",
        one_of("auto", "nvml", "tegra"),
    ),
    _field("flags.plugin.passDeviceSpecs", "--pass-device-specs", False, parse_bool),
    _field("flags.plugin.deviceListStrategy", "--device-list-strategy", ("envvar",), list_of(*STRATEGIES)),
    _field("flags.plugin.deviceIDStrategy", "--device-id-strategy", "uuid", one_of("uuid", "index")),
    _field("flags.plugin.cdiAnnotationPrefix", "--cdi-annotation-prefix", CDI_ANNOTATION_PREFIX, parse_text),
    _field("flags.plugin.nvidiaCTKPath", "--nvidia-ctk-path", "/usr/bin/nvidia-ctk", parse_text),
    _field("flags.plugin.containerDriverRoot", "--container-driver-root", "/driver-root", parse_text),
    _field(
        "flags.plugin.sharedDevicesAllocationPolicy",
        "--shared-devices-allocation-policy",
        "distributed",
        one_of("distributed", "packed"),
    ),
    _field("flags.gfd.oneshot", "--oneshot", False, parse_bool),
    _field("flags.gfd.noTimestamp", "--no-timestamp", False, parse_bool),
    _field("flags.gfd.sleepInterval", "--sleep-interval", 60.0, parse_go_duration),
    _field(
        "flags.gfd.outputFile",
        "--output-file",
        "/etc/kubernetes/node-feature-discovery/features.d/gfd",
        parse_text,
    ),
    _field("flags.gfd.machineTypeFile", "--machine-type-file", "/sys/class/dmi/id/product_name", parse_text),
    _field("imex.channelIDs", "--imex-channel-ids", (), parse_imex_channels),
    _field("imex.required", "--imex-required", False, parse_bool),
)
ALIASES = {
    "--driver-root": "--nvidia-driver-root",
    "--dev-root": "--nvidia-dev-root",
    "--nvidia-cdi-hook-path": "--nvidia-ctk-path",
    "--driver-root-ctr-path": "--container-driver-root",
    "--output": "--output-file",
}
"""Other names of flags that the original takes too."""
