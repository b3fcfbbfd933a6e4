"""MIG geometry against brute force, and against what the hardware is known to do."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sharing.layouts import is_legal_layout, legal_layouts, profiles_of

from windlass.model.errors import InputError
from windlass.model.gpu_models import GPU_MODELS, GpuModel, find_gpu_model, mig_geometry_of_model
from windlass.model.mig import (
    GEOMETRIES,
    MigGeometry,
    find_profile,
    mig_resource_name,
    place_layout,
    profile_of_resource,
)
from windlass.sharing.mig import profile_memory_gb, profile_name

MODEL_OF = {"A30": "A30", "A100-40": "A100-40", "H100-80": "H100", "H200": "H200"}


def slices_of(model: str, profile: str, start: int) -> set[int | str]:
    """What an instance takes, as a set: its memory slices, and the media engines if it has them."""
    size = next(entry.memory_slices for entry in profiles_of(model) if entry.name == profile)
    return {*range(start, start + size), *(["media"] if profile.endswith("+me") else [])}


def every_placement(model: str) -> set[tuple[tuple[str, int], ...]]:
    """Every set of instances that don't overlap, by trying all of them."""
    spots = [(entry.name, start) for entry in profiles_of(model) for start in entry.starts]
    found: set[tuple[tuple[str, int], ...]] = {()}
    frontier: list[tuple[tuple[str, int], ...]] = [()]
    while frontier:
        longer = []
        for placed in frontier:
            taken = set().union(*(slices_of(model, name, start) for name, start in placed))
            for spot in spots:
                if not taken & slices_of(model, *spot):
                    grown = tuple(sorted((*placed, spot), key=lambda item: (item[1], item[0])))
                    if grown not in found:
                        found.add(grown)
                        longer.append(grown)
        frontier = longer
    return found


PLACEMENTS = {model: every_placement(model) for model in ("A30", "A100-40")}


@pytest.mark.parametrize("model", PLACEMENTS)
def test_legal_layouts_are_those_that_brute_force_finds(model: str) -> None:
    brute = {tuple(sorted(name for name, _ in placed)) for placed in PLACEMENTS[model]}
    ours = [tuple(sorted(layout)) for layout in legal_layouts(model)]
    assert len(ours) == len(set(ours))
    assert set(ours) == brute


@pytest.mark.parametrize("model", PLACEMENTS)
def test_memory_runs_out_before_compute(model: str) -> None:
    geometry = mig_geometry_of_model(model)
    assert geometry is not None
    compute = {entry.name: entry.compute_slices for entry in geometry.profiles}
    assert all(sum(compute[name] for name, _ in placed) <= geometry.compute_slices for placed in PLACEMENTS[model])


@pytest.mark.parametrize("model", PLACEMENTS)
def test_no_profile_exceeds_its_known_maximum(model: str) -> None:
    most: Counter[str] = Counter()
    for layout in legal_layouts(model):
        for name, count in Counter(layout).items():
            most[name] = max(most[name], count)
    known = {
        "A30": {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
        "A100-40": dict(
            zip((entry.name for entry in profiles_of("A100-40")), (7, 1, 4, 3, 2, 1, 1), strict=True),
        ),
    }
    assert most == known[model]


def test_known_layouts() -> None:
    assert is_legal_layout("A100-40", ["1g.5gb"] * 7)
    assert is_legal_layout("H100", ["3g.40gb", "4g.40gb"])
    assert is_legal_layout("H100", ["2g.20gb"] * 3 + ["1g.10gb"])
    assert not is_legal_layout("H100", ["2g.20gb"] * 4)
    assert not is_legal_layout("H100", ["4g.40gb", "4g.40gb"])
    assert not is_legal_layout("H100", ["1g.10gb"] * 8)
    assert not is_legal_layout("H100", ["1g.10gb+me"] * 2)
    assert not is_legal_layout("H100", ["1g.5gb"])
    assert not is_legal_layout("T4", [])


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.name)
def test_tables_are_sound(geometry: MigGeometry) -> None:
    assert GEOMETRIES[geometry.number] is geometry
    assert len({profile.name for profile in geometry.profiles}) == len(geometry.profiles)
    for profile in geometry.profiles:
        assert find_profile(geometry.number, profile.name) is profile
        assert profile.name.startswith(f"{profile.compute_slices}g.")
        assert profile.media is profile.name.endswith("+me")
        assert all(start + profile.memory_slices <= geometry.memory_slices for start in profile.starts)
        assert profile_of_resource(mig_resource_name(profile.name)) == profile.name
        assert place_layout(geometry, [profile.name]) is not None
    assert find_profile(geometry.number, "9g.9gb") is None
    assert find_profile(-1, geometry.profiles[0].name) is None


def test_a_layout_comes_with_its_starts() -> None:
    geometry = mig_geometry_of_model("H100")
    assert geometry is not None
    assert place_layout(geometry, ["3g.40gb", "4g.40gb"]) == (("4g.40gb", 0), ("3g.40gb", 4))
    assert place_layout(geometry, []) == ()


def test_resource_names() -> None:
    assert mig_resource_name("1g.10gb") == "nvidia.com/mig-1g.10gb"
    assert mig_resource_name("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
    assert profile_of_resource("nvidia.com/mig-1g.24gb.me.all") == "1g.24gb+me.all"
    assert profile_of_resource("nvidia.com/mig-1g.24gb-me") == "1g.24gb-me"
    assert profile_of_resource("nvidia.com/mig-1g.24gb.gfx") == "1g.24gb+gfx"


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "1g.10gb", "nvidia.com/mig-", "nvidia.com/mig-1g"])
def test_names_that_are_no_profile(name: str) -> None:
    with pytest.raises(InputError, match="not the resource of a MIG profile"):
        profile_of_resource(name)


@pytest.mark.parametrize("model", [model for model in GPU_MODELS if model.geometry], ids=lambda model: model.product)
def test_the_names_of_profiles_follow_from_the_memory(model: GpuModel) -> None:
    geometry = mig_geometry_of_model(model.product)
    assert geometry is not None
    for profile in geometry.profiles:
        memory = model.memory_mib * profile.memory_slices // geometry.memory_slices
        assert profile_name(profile.compute_slices, memory, model.memory_mib, media=profile.media) == profile.name


def test_halves_are_rounded_away_from_zero() -> None:
    assert profile_memory_gb(143771 // 2, 143771) == 71
    assert profile_memory_gb(184320 // 8, 184320) == 23
    with pytest.raises(ValueError, match="can't be cut"):
        profile_memory_gb(2, 1)


def test_models_outside_the_catalogue_are_known_by_generation_and_memory() -> None:
    named = {name: mig_geometry_of_model(name, memory) for name, memory in (("NVIDIA-A100-X", 40960), ("A100", 81920))}
    assert [geometry.name if geometry else "" for geometry in named.values()] == ["A100-40", "A100-80"]
    assert mig_geometry_of_model("A100", 12345) is None
    assert mig_geometry_of_model("NVIDIA-L40S", 81920) is None
    assert mig_geometry_of_model("Tesla-T4") is None


def test_catalogue_names_are_unambiguous() -> None:
    names = [name.upper() for model in GPU_MODELS for name in (model.product, *model.aliases)]
    assert len(names) == len(set(names))
    for name in ("h100", "H100", "NVIDIA-H100-80GB-HBM3-SHARED"):
        found = find_gpu_model(name)
        assert found is not None
        assert found.product == "NVIDIA-H100-80GB-HBM3"
