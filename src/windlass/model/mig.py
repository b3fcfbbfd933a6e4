"""MIG profiles by name, and where they may start on each GPU model.

The nouns behind `sharing.mig`, which plans with them, and behind `model.fleet`, which refuses a layout that no GPU can
have. A GPU is cut along memory slices (8 of them, 4 on an A30); a profile takes `size` slices from one of its allowed
starts. Compute needs no counting of its own: the starts are chosen by NVIDIA so that memory runs out first. At most
one instance of a GPU can hold the media engines (`+me`), which is one more bit in the mask of what is taken.

Sources: NVIDIA's MIG user guide, go-nvml's A100 and A30 tables, transcripts of H100 and H200 hardware; for the
Blackwells and Grace boards the profiles and their numbers that nvidia-smi and mig-parted's own file list, which are
H100's in other sizes, so they are expected to begin where H100's do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX

_PROFILE = re.compile(r"([1-9])g\.([1-9][0-9]{0,3})gb(\+me\.all|\+me|\+gfx|-me)?")
_RESOURCE_SUFFIX = re.compile(r"\.(me\.all|me|gfx)$")


class MigProfile(msgspec.Struct, frozen=True):
    """One way to cut an instance out of a GPU of a given geometry."""

    name: str
    """As nvidia-smi prints it: `1g.10gb`, `1g.10gb+me`."""
    compute_slices: int
    """Compute slices (the `g` of the name)."""
    memory_slices: int
    """Memory slices."""
    starts: tuple[int, ...]
    """Memory slices at which an instance may begin."""
    media: bool = False


class MigGeometry(msgspec.Struct, frozen=True):
    """How GPUs of one size and generation can be cut."""

    name: str
    number: int
    """Position in `GEOMETRIES`, for arrays."""
    memory_slices: int
    """Memory slices of the whole GPU."""
    compute_slices: int
    """Compute slices of the whole GPU."""
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile | None:
        return next((profile for profile in self.profiles if profile.name == name), None)

    def mask(self, profile: MigProfile, start: int) -> int:
        """The bits that an instance takes: its memory slices, and the media engines one above the last slice."""
        media = 1 << self.memory_slices if profile.media else 0
        return ((1 << profile.memory_slices) - 1) << start | media


def _eight_slices(one: int, double: int, three: int, whole: int) -> tuple[MigProfile, ...]:
    """The family of A100, H100, H200, B200 and B300; the arguments are the gigabytes in the profiles' names."""
    return (
        MigProfile(f"1g.{one}gb", 1, 1, tuple(range(7))),
        MigProfile(f"1g.{one}gb+me", 1, 1, tuple(range(7)), media=True),
        MigProfile(f"1g.{double}gb", 1, 2, (0, 2, 4, 6)),
        MigProfile(f"2g.{double}gb", 2, 2, (0, 2, 4)),
        MigProfile(f"3g.{three}gb", 3, 4, (0, 4)),
        MigProfile(f"4g.{three}gb", 4, 4, (0,)),
        MigProfile(f"7g.{whole}gb", 7, 8, (0,)),
    )


_A30 = (
    MigProfile("1g.6gb", 1, 1, (0, 1, 2, 3)),
    MigProfile("1g.6gb+me", 1, 1, (0, 1, 2, 3), media=True),
    MigProfile("2g.12gb", 2, 2, (0, 2)),
    MigProfile("2g.12gb+me", 2, 2, (0, 2), media=True),
    MigProfile("4g.24gb", 4, 4, (0,)),
)

GEOMETRIES = (
    MigGeometry("A30", 0, 4, 4, _A30),
    MigGeometry("A100-40", 1, 8, 7, _eight_slices(5, 10, 20, 40)),
    MigGeometry("A100-80", 2, 8, 7, _eight_slices(10, 20, 40, 80)),
    MigGeometry("H100-80", 3, 8, 7, _eight_slices(10, 20, 40, 80)),
    MigGeometry("H100-94", 4, 8, 7, _eight_slices(12, 24, 47, 94)),
    MigGeometry("H100-96", 5, 8, 7, _eight_slices(12, 24, 48, 96)),
    MigGeometry("H200", 6, 8, 7, _eight_slices(18, 35, 71, 141)),
    MigGeometry("B200", 7, 8, 7, _eight_slices(23, 45, 90, 180)),
    MigGeometry("GH200-144", 8, 8, 7, _eight_slices(18, 36, 72, 144)),
    MigGeometry("GB200", 9, 8, 7, _eight_slices(23, 47, 93, 186)),
    MigGeometry("GB200-189", 10, 8, 7, _eight_slices(24, 47, 95, 189)),
    MigGeometry("B300", 11, 8, 7, _eight_slices(34, 67, 135, 269)),
    MigGeometry("GB300", 12, 8, 7, _eight_slices(35, 70, 139, 278)),
)


def find_profile(geometry: int, name: str) -> MigProfile | None:
    """A profile by the number of its geometry; None where that geometry has none of the name."""
    return GEOMETRIES[geometry].profile(name) if 0 <= geometry < len(GEOMETRIES) else None


def profile_of_resource(resource: str) -> str:
    """`nvidia.com/mig-1g.10gb.me` → `1g.10gb+me`; an `InputError` for what no profile is called."""
    text = resource.removeprefix(MIG_RESOURCE_PREFIX)
    profile = _RESOURCE_SUFFIX.sub(r"+\1", text)
    if text == resource or not _PROFILE.fullmatch(profile):
        raise InputError(
            f"{resource!r} is not the resource of a MIG profile",
            remedy=f"resources are called like {MIG_RESOURCE_PREFIX}1g.10gb or {MIG_RESOURCE_PREFIX}1g.10gb.me",
            code="RESOURCE_NAME_MISMATCH",
        )
    return profile


def mig_resource_name(profile: str) -> str:
    """`1g.10gb+me` → `nvidia.com/mig-1g.10gb.me`, as the device plugin names it."""
    return MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def place_layout(geometry: MigGeometry, profiles: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
    """`(profile, start)` of each instance of a layout, in order of start; None if they can't be cut from one GPU."""
    wanted = []
    for name in profiles:
        profile = geometry.profile(name)
        if profile is None:
            return None
        wanted.append(profile)
    # Largest first: they have the fewest places to go, so the search hardly ever turns back.
    wanted.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name))
    starts = _place(geometry, tuple(wanted), 0)
    if starts is None:
        return None
    placed = [(profile.name, start) for profile, start in zip(wanted, starts, strict=True)]
    return tuple(sorted(placed, key=lambda item: item[1]))


@lru_cache(maxsize=4096)
def _place(geometry: MigGeometry, wanted: tuple[MigProfile, ...], used: int) -> tuple[int, ...] | None:
    if not wanted:
        return ()
    for start in wanted[0].starts:
        mask = geometry.mask(wanted[0], start)
        if not used & mask:
            rest = _place(geometry, wanted[1:], used | mask)
            if rest is not None:
                return (start, *rest)
    return None
