"""What is in a MIG instance: memory, multiprocessors and engines of every profile.

Read by the simulated back end and by `advise`. A100 and A30 are as go-nvml's tables have them, H100 as public
transcripts of nvidia-smi, H200 read off one (its 1g.35gb is listed with 26 multiprocessors and made with 16); the rest
of the family follows H100.
"""

from __future__ import annotations

from windlass.model.mig import MigGeometry, MigProfile
from windlass.sharing.inventory import Engines

_HOPPER = (16, 16, 16, 32, 60, 64, 132)
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


def multiprocessor_share(geometry: MigGeometry, profile: MigProfile) -> float:
    """Of the whole GPU's multiprocessors, which are more than its instances have together."""
    whole = {"A30": 56, "A100-40": 108, "A100-80": 108, "B200": 148}.get(geometry.name, 132)
    return instance_multiprocessors(geometry, profile) / whole
