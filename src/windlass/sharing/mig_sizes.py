"""What is in a MIG instance: memory, multiprocessors and engines of every profile.

Read by the simulated back end and by `advise`; columns stand in the order of the geometry's profiles. A100 and A30 are
as go-nvml's tables have them, H100 as public transcripts of nvidia-smi, H200 read off one. Multiprocessors are those of
the largest compute instance, which is what `nvidia-smi mig -cci` makes. Of the Blackwells, transcripts show the sizes
of one and two slices and that copying engines come in pairs, and the larger profiles are in proportion.
"""

from __future__ import annotations

from windlass.model.mig import MigGeometry, MigProfile
from windlass.sharing.inventory import Engines

_HOPPER = (16, 16, 26, 32, 60, 64, 132)
_AMPERE = (14, 14, 14, 28, 42, 56, 98)
_BLACKWELL = (18, 18, 18, 36, 54, 72, 148)
_GRACE_BLACKWELL = (18, 18, 18, 38, 54, 72, 152)
_BLACKWELLS = {
    "B200": _BLACKWELL,
    "B300": _BLACKWELL,
    "GB200": _GRACE_BLACKWELL,
    "GB200-189": _GRACE_BLACKWELL,
    "GB300": _GRACE_BLACKWELL,
}
_MULTIPROCESSORS = {"A30": (14, 14, 28, 28, 56), "A100-40": _AMPERE, "A100-80": _AMPERE, **_BLACKWELLS}
_WHOLE = {"A30": 56, "A100-40": 108, "A100-80": 108}
"""Where the largest profile has fewer multiprocessors than the GPU."""
_MEMORY = {
    "A30": (5836, 5836, 11672, 11672, 23344),
    "A100-40": (4864, 4864, 9856, 9856, 19968, 19968, 40192),
    "A100-80": (9856, 9856, 19968, 19968, 40192, 40192, 80384),
    "H100-80": (9984, 9984, 20096, 20096, 40448, 40448, 81152),
    "H200": (16384, 16384, 33280, 33280, 71424, 71424, 143360),
}
_DECODERS = {"A30": (0, 1, 2, 2, 4), "A100-40": (0, 1, 1, 1, 2, 2, 5), "A100-80": (1, 1, 1, 1, 2, 2, 5)}
"""Since Hopper there is one for every slice, and as many for JPEG."""


def instance_memory_mib(geometry: MigGeometry, profile: MigProfile, total_mib: int) -> int:
    table = _MEMORY.get(geometry.name)
    if table is not None:
        return table[geometry.profiles.index(profile)]
    return profile.memory_slices * total_mib // geometry.memory_slices


def instance_multiprocessors(geometry: MigGeometry, profile: MigProfile) -> int:
    return _MULTIPROCESSORS.get(geometry.name, _HOPPER)[geometry.profiles.index(profile)]


def instance_engines(geometry: MigGeometry, profile: MigProfile) -> Engines:
    is_whole = profile.memory_slices == geometry.memory_slices
    media = int(profile.media or is_whole)
    if geometry.name in _DECODERS:
        decoders = _DECODERS[geometry.name][geometry.profiles.index(profile)]
        return Engines(copy=profile.compute_slices, decoder=decoders, jpeg=media, ofa=media)
    copy = 8 if is_whole else profile.compute_slices
    pairs = 2 if geometry.name in _BLACKWELLS else 1
    return Engines(copy=pairs * copy, decoder=profile.compute_slices, jpeg=profile.compute_slices, ofa=media)


def multiprocessor_share(geometry: MigGeometry, profile: MigProfile) -> float:
    """Of the whole GPU's multiprocessors, which are more than its instances have together."""
    largest = instance_multiprocessors(geometry, geometry.profiles[-1])
    return instance_multiprocessors(geometry, profile) / _WHOLE.get(geometry.name, largest)
