"""Maps health problems to DCGM's health watches, severities and error codes.

`derived_metrics` uses it for `DCGM_EXP_GPU_HEALTH_STATUS`. The kinds are those of `node.health`. A kind that is no
finding about the hardware (not validated yet) is no incident.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

PASS, WARN, FAIL = 0, 10, 20
OK = "DCGM_FR_OK"
WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")


class Incident(msgspec.Struct, frozen=True):
    """The result of one health watch."""

    watch: str
    value: int = PASS
    error: str = OK


_KINDS = {
    "lost": Incident("ALL", FAIL, "DCGM_FR_FALLEN_OFF_BUS"),
    "pcie": Incident("PCIE", FAIL, "DCGM_FR_PCI_REPLAY_RATE"),
    "links": Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_DOWN"),
    "lost-links": Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_DOWN"),
    "link-errors": Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
    "ecc": Incident("MEM", FAIL, "DCGM_FR_VOLATILE_DBE_DETECTED"),
    "remap-failure": Incident("MEM", FAIL, "DCGM_FR_ROW_REMAP_FAILURE"),
    "remap-pending": Incident("MEM", FAIL, "DCGM_FR_PENDING_ROW_REMAP"),
    "heat": Incident("THERMAL", WARN, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
    "power": Incident("POWER", WARN, "DCGM_FR_CLOCK_THROTTLE_POWER"),
    "recovery-1": Incident("ALL", FAIL, "DCGM_FR_GPU_RECOVERY_RESET"),
    "recovery-2": Incident("ALL", FAIL, "DCGM_FR_GPU_RECOVERY_REBOOT"),
    "recovery-3": Incident("ALL", FAIL, "DCGM_FR_GPU_RECOVERY_DRAIN_P2P"),
    "recovery-4": Incident("ALL", FAIL, "DCGM_FR_GPU_RECOVERY_DRAIN_RESET"),
    "recovery-5": Incident("ALL", FAIL, "DCGM_FR_IMEX_UNHEALTHY"),
    "xid-48": Incident("MEM", FAIL, "DCGM_FR_VOLATILE_DBE_DETECTED"),
    "xid-64": Incident("MEM", FAIL, "DCGM_FR_ROW_REMAP_FAILURE"),
    "xid-74": Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_ERROR_CRITICAL"),
    "xid-79": Incident("ALL", FAIL, "DCGM_FR_FALLEN_OFF_BUS"),
    "xid-95": Incident("ALL", FAIL, "DCGM_FR_UNCONTAINED_ERROR"),
}
_NO_FINDING = ("gate",)
_ANY_XID = Incident("ALL", FAIL, "DCGM_FR_XID_ERROR")
_ANYTHING = Incident("ALL", FAIL, "DCGM_FR_UNKNOWN")


def incidents(kinds: Iterable[str]) -> list[Incident]:
    """Every watch with its worst result, in DCGM's order."""
    worst = {watch: Incident(watch) for watch in WATCHES}
    for kind in sorted(kinds):
        if kind not in _NO_FINDING:
            found = incident(kind)
            worst[found.watch] = max(worst[found.watch], found, key=lambda result: result.value)
    return list(worst.values())


def incident(kind: str) -> Incident:
    return _KINDS.get(kind) or (_ANY_XID if kind.startswith("xid-") else _ANYTHING)
