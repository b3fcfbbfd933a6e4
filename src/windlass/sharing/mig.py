"""MIG geometry: where a profile can still start, which layouts a GPU can have, names of profiles.

Used by the partition planner and the node agent, which create instances; `placement` has the same arithmetic in its
kernels. The used part of a GPU is a mask: one bit per memory slice, and one for the media engines, of which a GPU has a
single set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from windlass.model.errors import InputError
from windlass.model.gpu_models import mig_geometry_of_model as mig_geometry_of_model  # for `placement`
from windlass.model.mig import MigGeometry, MigProfile, place_layout


def profiles_of(model: str) -> tuple[MigProfile, ...]:
    """The profiles of a GPU model, smallest first; empty where it has no MIG."""
    geometry = mig_geometry_of_model(model)
    return geometry.profiles if geometry else ()


def placement_mask(model: str, profile: str, start: int) -> int:
    """The bits that an instance of `profile` at `start` takes; an `InputError` where it may not start there."""
    geometry, found = _known(model, profile)
    if start not in found.starts:
        raise InputError(
            f"{profile} can't start at memory slice {start} of {model}",
            remedy=f"it may start at {', '.join(map(str, found.starts))}",
        )
    return geometry.mask(found, start)


def free_starts(model: str, used_mask: int, profile: str) -> tuple[int, ...]:
    """Free starts for an instance; empty if there is no room or no such profile."""
    geometry = mig_geometry_of_model(model)
    found = geometry.profile(profile) if geometry else None
    if geometry is None or found is None:
        return ()
    return tuple(start for start in found.starts if not used_mask & geometry.mask(found, start))


@lru_cache(maxsize=1 << 16)
def find_start(model: str, used_mask: int, profile: str) -> int | None:
    """The start that leaves the GPU most useful, or None where the geometry has no room for the profile.

    Most useful: the memory slices of all placements of all profiles that stay possible, summed, so that small
    instances go to the edge that large ones can't use. Among equals the highest start, since wide profiles may only
    begin at 0.

    On a GPU on which instances have only come this is always the highest start that is free, which is the rule of the
    placement kernels. Once some have ended and left holes it may be a lower one; that doesn't matter to what they
    decide, since which start an instance gets is the node's choice.
    """
    starts = free_starts(model, used_mask, profile)
    if not starts:
        return None
    geometry, found = _known(model, profile)
    return max(
        starts, key=lambda start: (_usefulness(geometry, used_mask | geometry.mask(found, start)), start)
    )


@lru_cache(maxsize=1 << 14)
def _usefulness(geometry: MigGeometry, used_mask: int) -> int:
    return sum(
        profile.memory_slices
        for profile in geometry.profiles
        for start in profile.starts
        if not used_mask & geometry.mask(profile, start)
    )


def is_legal_layout(model: str, profiles: Sequence[str]) -> bool:
    """Whether one GPU of the model can hold all these instances at once."""
    geometry = mig_geometry_of_model(model)
    return geometry is not None and place_layout(geometry, profiles) is not None


@lru_cache(maxsize=64)
def legal_layouts(model: str) -> tuple[tuple[str, ...], ...]:
    """Every multiset of profiles that one GPU can hold, each in the order of `profiles_of`; the empty one first."""
    geometry = mig_geometry_of_model(model)
    if geometry is None:
        return ()
    names = [profile.name for profile in geometry.profiles]
    return tuple(_grow((), names, geometry))


def _grow(layout: tuple[str, ...], names: Sequence[str], geometry: MigGeometry) -> list[tuple[str, ...]]:
    """`layout` and all legal ones that extend it by profiles of `names`; what is illegal stays so when extended."""
    found = [layout]
    for position, name in enumerate(names):
        longer = (*layout, name)
        if place_layout(geometry, longer) is not None:
            found.extend(_grow(longer, names[position:], geometry))
    return found


@lru_cache(maxsize=64)
def maximal_layouts(model: str) -> tuple[tuple[str, ...], ...]:
    """The legal layouts to which no further instance can be added, however they are arranged."""
    order = {profile.name: position for position, profile in enumerate(profiles_of(model))}
    legal = set(legal_layouts(model))

    def can_grow(layout: tuple[str, ...]) -> bool:
        return any(tuple(sorted((*layout, name), key=order.__getitem__)) in legal for name in order)

    return tuple(layout for layout in legal_layouts(model) if not can_grow(layout))


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


def _known(model: str, profile: str) -> tuple[MigGeometry, MigProfile]:
    geometry = mig_geometry_of_model(model)
    if geometry is None:
        raise InputError(
            f"the MIG geometry of GPU model {model!r} is not known",
            remedy="use a model that MIG can cut, such as H100",
        )
    found = geometry.profile(profile)
    if found is None:
        names = ", ".join(entry.name for entry in geometry.profiles)
        raise InputError(f"{model} has no MIG profile {profile!r}", remedy=f"it has {names}")
    return geometry, found
