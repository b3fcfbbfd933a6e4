"""The partition planner: from the instances that a GPU has to the layout that it is to have, with the fewest changes.

Asked by `windlass plan mig` and by the node's MIG manager; answers with steps, or with the reason why there is no way.
Placements are computed from the geometry. Every set of instances that could stay is tried, largest set first, so a
layout that can be reached at all is found, and none with fewer changes exists. An instance in use is never touched:
if the layout has no place for it, the answer is who is in the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from windlass.model.mig import MigGeometry
from windlass.sharing.inventory import Gpu, MigInstance


class Destroy(msgspec.Struct, frozen=True, tag="destroy", tag_field="step"):
    gpu_instance: int
    profile: str
    start: int


class Create(msgspec.Struct, frozen=True, tag="create", tag_field="step"):
    profile: str
    start: int


class SetMode(msgspec.Struct, frozen=True, tag="mode", tag_field="step"):
    enabled: bool


Step = Destroy | Create | SetMode


class GpuPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one GPU, in order; nothing where it already is as wanted."""

    uuid: str
    index: int
    wanted: tuple[str, ...]
    """Profiles, sorted by name; empty with MIG off."""
    enabled: bool
    steps: tuple[Step, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    """Profile and start of the instances that stay."""
    refusal: str = ""
    """Why the layout can't be reached; there are no steps then."""

    @property
    def changes(self) -> int:
        return sum(not isinstance(step, SetMode) for step in self.steps)


def plan_gpu(
    gpu: Gpu, wanted: Mapping[str, int], *, enabled: bool, in_use: frozenset[str] = frozenset()
) -> GpuPlan:
    """Steps towards `wanted` (profile → count). `in_use` holds UUIDs, of MIG devices or of the GPU itself."""
    profiles = tuple(sorted(Counter(wanted).elements()))
    refusal = _refusal(gpu, profiles, enabled, in_use)
    if refusal:
        return _refused(gpu, profiles, enabled, refusal)
    if not enabled:
        return _off(gpu)
    if not gpu.mig_capable:
        return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=(), enabled=False)
    geometry = gpu.geometry
    assert geometry is not None, "a refusal otherwise"
    # Instances whose compute is cut further are somebody's own work: they go, they are never what a layout means.
    found = _best(geometry, gpu.instances, Counter(profiles), in_use)
    if found is None:
        return _refused(gpu, profiles, enabled, _no_room(gpu, profiles, in_use))
    kept, placed = found
    destroyed = [instance for instance in gpu.instances if instance not in kept]
    steps: list[Step] = [] if gpu.mig_enabled else [SetMode(True)]
    steps += [Destroy(gi, profile, start) for gi, profile, start in sorted(_gpu_instances(destroyed))]
    steps += [Create(profile, start) for profile, start in placed]
    return GpuPlan(
        uuid=gpu.uuid,
        index=gpu.index,
        wanted=profiles,
        enabled=True,
        steps=tuple(steps),
        kept=tuple(
            sorted(((instance.profile, instance.start) for instance in kept), key=lambda item: item[1])
        ),
    )


def _refusal(gpu: Gpu, profiles: Sequence[str], enabled: bool, in_use: frozenset[str]) -> str:
    """What stands against it before any search."""
    if gpu.is_lost:
        return "the driver has lost this GPU"
    if enabled != gpu.mig_enabled and gpu.uuid in in_use:
        return "a process or pod uses the whole GPU; drain it first"
    if not enabled:
        held = _named([instance for instance in gpu.instances if instance.uuid in in_use])
        return f"in use: {held}; drain them first" if held else ""
    if not gpu.mig_capable:
        return "this GPU has no MIG" if profiles else ""
    geometry = gpu.geometry
    if geometry is None:
        return f"the MIG geometry of {gpu.name} is not known"
    unknown = sorted({name for name in profiles if geometry.profile(name) is None})
    if unknown:
        known = ", ".join(profile.name for profile in geometry.profiles)
        return f"{gpu.name} has no profile {', '.join(unknown)}; it has {known}"
    return ""


def _off(gpu: Gpu) -> GpuPlan:
    steps: list[Step] = [
        Destroy(gi, profile, start) for gi, profile, start in sorted(_gpu_instances(gpu.instances))
    ]
    if gpu.mig_enabled or gpu.mig_pending:
        steps.append(SetMode(False))
    return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=(), enabled=False, steps=tuple(steps))


def _best(
    geometry: MigGeometry, instances: Sequence[MigInstance], wanted: Counter[str], in_use: frozenset[str]
) -> tuple[list[MigInstance], list[tuple[str, int]]] | None:
    """`(stay, create)` with the most instances that stay; None where nothing works."""
    fixed = [instance for instance in instances if instance.uuid in in_use]
    free = [
        instance
        for instance in instances
        if instance.uuid not in in_use and instance.has_all_compute_slices and wanted[instance.profile]
    ]
    for size in range(len(free), -1, -1):
        for chosen in combinations(free, size):
            kept = [*fixed, *chosen]
            left = Counter(wanted)
            left.subtract(instance.profile for instance in kept)
            if any(count < 0 for count in left.values()):
                continue
            placed = place_around(geometry, kept, left)
            if placed is not None:
                return kept, placed
    return None


def place_around(
    geometry: MigGeometry, kept: Sequence[MigInstance], wanted: Mapping[str, int]
) -> list[tuple[str, int]] | None:
    """Starts for the wanted profiles beside what stays, or None; in order of start."""
    used = 0
    for instance in kept:
        profile = geometry.profile(instance.profile)
        if profile is None:
            return None
        used |= geometry.mask(profile, instance.start)
    profiles = [found for name in Counter(wanted).elements() if (found := geometry.profile(name))]
    profiles.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name))

    def place(at: int, used: int, last: int) -> list[tuple[str, int]] | None:
        if at == len(profiles):
            return []
        profile = profiles[at]
        same = at > 0 and profiles[at - 1] is profile
        for start in profile.starts:
            # Equal instances are interchangeable: they go in order.
            if (same and start <= last) or used & geometry.mask(profile, start):
                continue
            rest = place(at + 1, used | geometry.mask(profile, start), start)
            if rest is not None:
                return [(profile.name, start), *rest]
        return None

    placed = place(0, used, -1)
    return sorted(placed, key=lambda item: (item[1], item[0])) if placed is not None else None


def _gpu_instances(instances: Sequence[MigInstance]) -> Iterator[tuple[int, str, int]]:
    """Each GPU instance once, however many compute instances it holds."""
    seen = set()
    for instance in instances:
        if instance.gpu_instance not in seen:
            seen.add(instance.gpu_instance)
            yield instance.gpu_instance, instance.profile, instance.start


def _no_room(gpu: Gpu, profiles: Sequence[str], in_use: frozenset[str]) -> str:
    held = _named([instance for instance in gpu.instances if instance.uuid in in_use])
    words = ", ".join(f"{count}× {name}" for name, count in sorted(Counter(profiles).items()))
    if held:
        return f"{words} has no room beside what is in use: {held}; drain them first"
    return f"{words} can't be cut from one {gpu.name}"


def _named(instances: Sequence[MigInstance]) -> str:
    return ", ".join(
        f"{instance.profile} at slice {instance.start} ({instance.uuid})" for instance in instances
    )


def _refused(gpu: Gpu, profiles: tuple[str, ...], enabled: bool, refusal: str) -> GpuPlan:
    return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=profiles, enabled=enabled, refusal=refusal)
