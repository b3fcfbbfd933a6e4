"""`nvidia-smi` in a simulated container: shows only the GPUs, shares or MIG devices that the pod holds.

Called by `simulated_shell`. The table's layout resembles the tool's; `-L` and `--query-gpu … --format=csv` are for
scripts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

VERSION, CUDA = "580.159.04", "13.0"
_WIDTH = 79


class VisibleDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device as the container sees it."""

    index: int
    name: str
    uuid: str
    memory_mib: int
    used_mib: int = 0
    utilization: int = 0
    profile: str = ""
    """MIG profile; empty for a GPU."""
    parent: str = ""
    """UUID of the GPU that a MIG instance is on."""
    share: str = ""
    """How it is shared, as text; empty if it is not."""
    fault: str = ""


def nvidia_smi(arguments: Sequence[str], devices: Sequence[VisibleDevice]) -> tuple[str, int]:
    """`(output, exit code)`."""
    if not devices:
        return "No devices were found\n", 6
    query = next((argument for argument in arguments if argument.startswith("--query-gpu=")), "")
    if query:
        return _query(query.partition("=")[2].split(","), arguments, devices)
    if "-L" in arguments or "--list-gpus" in arguments:
        return _list(devices), 0
    if "--version" in arguments:
        return f"NVIDIA-SMI version  : {VERSION}\nCUDA Version        : {CUDA}\n(simulated)\n", 0
    unknown = [argument for argument in arguments if argument not in ("-i", "0")]
    if unknown:
        return f"Invalid or unsimulated option: {unknown[0]}\n", 2
    return _table(devices), 0


def _list(devices: Sequence[VisibleDevice]) -> str:
    lines: list[str] = []
    for device in devices:
        if not device.profile:
            lines.append(f"GPU {device.index}: {device.name} (UUID: {device.uuid})")
            continue
        gpu_line = f"GPU {device.index}: {device.name} (UUID: {device.parent})"
        if gpu_line not in lines:
            lines.append(gpu_line)
        lines.append(f"  MIG {device.profile}     Device  0: (UUID: {device.uuid})")
    return "\n".join(lines) + "\n"


def _table(devices: Sequence[VisibleDevice]) -> str:
    rule = "+" + "-" * (_WIDTH - 2) + "+"
    lines = [rule, _row(f"NVIDIA-SMI {VERSION} (simulated)", f"CUDA Version: {CUDA}"), rule]
    lines.append(_row("GPU  Name", "Memory-Usage   GPU-Util"))
    lines.append(rule)
    for device in devices:
        name = f"{device.name} MIG {device.profile}" if device.profile else device.name
        used = f"{device.used_mib:>6}MiB / {device.memory_mib:>6}MiB   {device.utilization:>3}%"
        lines.append(_row(f"{device.index:>3}  {name}", used))
        if device.share:
            lines.append(_row(f"     {device.share}", ""))
        if device.fault:
            lines.append(_row(f"     ERR! {device.fault}", ""))
    return "\n".join([*lines, rule]) + "\n"


def _row(left: str, right: str) -> str:
    width = _WIDTH - 4 - len(right)
    return f"| {left[:width]:<{width}}{right} |"


def _query(fields: list[str], arguments: Sequence[str], devices: Sequence[VisibleDevice]) -> tuple[str, int]:
    style = next((word.partition("=")[2] for word in arguments if word.startswith("--format=")), "")
    options = style.split(",")
    if options[0] != "csv":
        return '"--format=" switch is missing. Use --format=csv\n', 2
    bare = "nounits" in options
    rows = []
    for device in devices:
        values = _values(device, bare)
        unknown = next((field for field in fields if field.strip() not in values), None)
        if unknown is not None:
            return f'Field "{unknown.strip()}" is not a valid field to query.\n', 2
        rows.append(", ".join(values[field.strip()] for field in fields))
    header = [] if "noheader" in options else [", ".join(_heading(field.strip(), bare) for field in fields)]
    return "\n".join([*header, *rows]) + "\n", 0


_UNITS = {"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "utilization.gpu": "%"}


def _heading(field: str, no_units: bool) -> str:
    unit = _UNITS.get(field)
    return field if unit is None or no_units else f"{field} [{unit}]"


def _values(device: VisibleDevice, no_units: bool) -> dict[str, str]:
    def with_unit(number: int, unit: str) -> str:
        return str(number) if no_units else f"{number} {unit}"

    return {
        "index": str(device.index),
        "name": device.name,
        "gpu_name": device.name,
        "uuid": device.parent or device.uuid,
        "gpu_uuid": device.parent or device.uuid,
        "driver_version": VERSION,
        "memory.total": with_unit(device.memory_mib, "MiB"),
        "memory.used": with_unit(device.used_mib, "MiB"),
        "memory.free": with_unit(device.memory_mib - device.used_mib, "MiB"),
        "utilization.gpu": with_unit(device.utilization, "%"),
        "mig.mode.current": "Enabled" if device.profile else "Disabled",
        "count": "1",
    }
