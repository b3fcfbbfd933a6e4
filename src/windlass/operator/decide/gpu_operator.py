"""How NVIDIA's operator is understood: its labels, the NVIDIADriver of a version, and whether it would obey.

`decide.nvidia_drivers` writes by it, `decide.driver_step` and `decide.components` read.
"""

from __future__ import annotations

import hashlib
import re

from windlass.operator.observed import NvidiaDriver, Observed

NVIDIA_OWNER_LABEL = "nvidia.com/gpu-operator.driver.owner"
"""The NVIDIADriver that a node belongs to, as NVIDIA's operator has decided."""
UPGRADE_STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
"""How far NVIDIA's own upgrade of a node's driver is."""
UPGRADE_IS_OVER = ("", "upgrade-done")
_NOT_OBEYED = ("disabled", "ignored")


def nvidia_driver_name(version: str) -> str:
    """It becomes the value of a label, and versions may hold characters that names may not."""
    readable = re.sub(r"[^a-z0-9]+", "-", version.lower())[:32].strip("-")
    return f"windlass-{readable}-{hashlib.sha256(version.encode()).hexdigest()[:8]}"


def default_driver(observed: Observed) -> NvidiaDriver | None:
    return next((driver for driver in observed.nvidia_drivers.values() if driver.is_default), None)


def why_not_driven(observed: Observed) -> str:
    """Why NVIDIA's operator would not obey; empty if it would."""
    default = default_driver(observed)
    if default is None:
        named = ", ".join(sorted(observed.nvidia_drivers)) or "none"
        return (
            f"a driver of gpu-operator is changed beside an NVIDIADriver with `default: true` (gpu-operator 26.7, "
            f"ClusterPolicy driver.useNvidiaDriverCRD); there are: {named}"
        )
    if default.state in _NOT_OBEYED:
        return f"NVIDIADriver {default.name} is {default.state}: set driver.useNvidiaDriverCRD in the ClusterPolicy"
    return ""
