"""Meaning of NVIDIA's Xid codes: how severe each is, and what to do.

`health` looks codes up. Severity follows NVIDIA's public Xid catalogue: an application error, or something that the
driver has already handled, does not make the device unhealthy; what needs a reset, a reboot or NVIDIA's support
does. Unknown codes count as serious.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Action(Enum):
    """The catalogue's recommended action."""

    IGNORE = "nothing to do"
    WATCH = "nothing by itself; the driver's recovery action says more"
    RESTART_APP = "restart the application"
    CHECK_LINKS = "check NVLink and the fabric manager"
    RESET_GPU = "drain the GPU and reset it"
    RESTART_VM = "restart the virtual machine"
    RESTART_NODE = "drain the node and reboot it"
    CONTACT_SUPPORT = "have the GPU looked at; contact NVIDIA support"


class Xid(msgspec.Struct, frozen=True):
    code: int
    action: Action
    description: str

    @property
    def is_fatal(self) -> bool:
        """Whether the device is unhealthy until it has recovered."""
        return self.action not in (Action.IGNORE, Action.WATCH, Action.RESTART_APP)


def _codes(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


_ACTIONS = {
    Action.RESET_GPU: _codes("46 48 62 64 95 109 110 119 120 136 140 143 155 156 158"),
    Action.RESTART_NODE: _codes("79"),
    Action.RESTART_VM: _codes("151"),
    Action.IGNORE: _codes("14 37 38 43 44 45 63 66 67 92 93 106-108 121 137 141 152 153 157 160 161"),
    Action.RESTART_APP: _codes("8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139"),
    Action.CHECK_LINKS: _codes("74"),
    # 144-150: most of what the catalogue decodes them to is to be ignored, and NVML gives only the number.
    # 162-172: informational. Where one of them needs an action, the recovery action, which is read anyway, asks for it.
    Action.WATCH: _codes("144-150 162-172"),
}
_DESCRIPTIONS = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "corrupted push buffer",
    43: "GPU stopped processing a channel",
    45: "preemptive cleanup of a channel",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping or page retirement recorded",
    64: "row remapping or page retirement failed",
    68: "NVDEC exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link corrected error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    **dict.fromkeys(range(144, 151), "NVLink event"),
    154: "GPU recovery action changed",
    171: "memory error in DRAM, reported with Xid 48",
    172: "memory error in SRAM, reported with Xid 48",
}
_BY_CODE = {code: action for action, codes in _ACTIONS.items() for code in codes}
RECOVERY_CHANGED = 154
"""Has no severity of its own: the recovery action, which is read anyway, says what to do."""


def lookup_xid(code: int) -> Xid:
    if code == RECOVERY_CHANGED:
        return Xid(code, Action.IGNORE, _DESCRIPTIONS[code])
    action = _BY_CODE.get(code, Action.CONTACT_SUPPORT)
    return Xid(code, action, _DESCRIPTIONS.get(code, f"Xid {code}"))
