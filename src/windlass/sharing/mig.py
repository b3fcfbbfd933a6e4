"""What the driver calls a MIG profile, from its size. `node.backend.nvml_mig` names instances with it."""

from __future__ import annotations

from windlass.model.gpu_models import mig_geometry_of_model as mig_geometry_of_model  # for `placement`


def profile_memory_gb(instance_mib: int, total_mib: int) -> int:
    """The gigabytes in a profile's name: eighths of the GPU's memory, rounded up, of its GiB, rounded up.

    Halves are rounded away from zero (an H200's 4/8 of 141 is 71), which Python's own `round` would not do.
    """
    if not 0 < instance_mib <= total_mib:
        raise ValueError(f"an instance of {instance_mib} MiB can't be cut from {total_mib} MiB")
    eighths = -(-8 * instance_mib // total_mib)
    gigabytes = -(-total_mib // 1024)
    return (2 * eighths * gigabytes + 8) // 16


def profile_name(compute: int, instance_mib: int, total_mib: int, *, media: bool = False) -> str:
    """What the driver calls an instance of so many compute slices and so much memory."""
    return f"{compute}g.{profile_memory_gb(instance_mib, total_mib)}gb{'+me' if media else ''}"
