"""What simulated GPUs are made of: memory, multiprocessors and engines of every MIG profile, and facts of the boards.

Read by `simulated`. A100 and A30 are as go-nvml's tables have them, H100 as public transcripts of nvidia-smi, H200 read
off one; the rest of the family follows H100.
"""

from __future__ import annotations

import msgspec

from windlass.model.mig import MigGeometry, MigProfile
from windlass.sharing.inventory import Engines

_HOPPER = (16, 16, 26, 32, 60, 64, 132)
_AMPERE = (14, 14, 14, 28, 42, 56, 98)
_MULTIPROCESSORS = {
    "A30": (14, 14, 28, 28, 56),
    "A100-40": _AMPERE,
    "A100-80": _AMPERE,
    "B200": (18, 18, 18, 36, 54, 72, 126),
}
_MEMORY = {
    "A30": (5836, 5836, 11672, 11672, 23344),
    "A100-40": (4864, 4864, 9856, 9856, 19968, 19968, 40192),
    "A100-80": (9856, 9856, 19968, 19968, 40192, 40192, 80384),
    "H100-80": (9984, 9984, 20096, 20096, 40448, 40448, 81152),
    "H200": (16384, 16384, 33280, 33280, 71424, 71424, 143360),
}


class Board(msgspec.Struct, frozen=True):
    """Facts of a model that the catalogue doesn't need."""

    device_id: str = "2335"
    multiprocessors: int = 132
    links: int = 0
    sm_clock: int = 1980
    memory_clock: int = 2619
    watts: int = 700
    resets_for_mig: bool = False
    """Whether a change of MIG mode waits for a reset (Ampere)."""
    has_gpm: bool = False


_BOARDS = {
    "A100-40": Board("20B0", 108, 12, 1410, 1215, 400, True),
    "A100-80": Board("20B2", 108, 12, 1410, 1593, 400, True),
    "A30": Board("20B7", 56, 4, 1440, 1215, 165, True),
    "H100-80": Board("2330", 132, 18, 1980, 2619, 700, has_gpm=True),
    "H100-94": Board("2321", 132, 18, 1980, 2619, 400, has_gpm=True),
    "H100-96": Board("2342", 132, 18, 1980, 2619, 700, has_gpm=True),
    "H200": Board("2335", 132, 18, 1980, 3201, 700, has_gpm=True),
    "B200": Board("2901", 148, 18, 1965, 3996, 1000, has_gpm=True),
}
_UNCUT_BOARDS = {
    "NVIDIA-L40S": Board("26B9", 142, 0, 2520, 9001, 350),
    "NVIDIA-L4": Board("27B8", 58, 0, 2040, 6251, 72),
    "Tesla-T4": Board("1EB8", 40, 0, 1590, 5001, 70),
}


def board_of(product: str, geometry: MigGeometry | None) -> Board:
    if geometry is not None:
        return _BOARDS[geometry.name]
    return _UNCUT_BOARDS.get(product, Board("2236", 72, 0, 1695, 6251, 150))


def instance_memory_mib(geometry: MigGeometry, profile: MigProfile, total_mib: int) -> int:
    table = _MEMORY.get(geometry.name)
    if table is not None:
        return table[geometry.profiles.index(profile)]
    return profile.size * total_mib // geometry.slices


def instance_multiprocessors(geometry: MigGeometry, profile: MigProfile) -> int:
    return _MULTIPROCESSORS.get(geometry.name, _HOPPER)[geometry.profiles.index(profile)]


def instance_engines(profile: MigProfile) -> Engines:
    media = int(profile.media or profile.compute >= 7)
    copy = 8 if profile.compute == 7 else profile.compute
    return Engines(copy=copy, decoder=profile.compute, jpeg=profile.compute, ofa=media)
