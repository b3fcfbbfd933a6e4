"""Every layout that a GPU can have, by trying: what tests compare plans and placements with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from windlass.model.gpu_models import mig_geometry_of_model
from windlass.model.mig import MigGeometry, MigProfile, place_layout


def profiles_of(model: str) -> tuple[MigProfile, ...]:
    """The profiles of a GPU model, smallest first; empty where it has no MIG."""
    geometry = mig_geometry_of_model(model)
    return geometry.profiles if geometry else ()


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
