"""Plans the steps from a GPU's present MIG instances to a wanted layout, with the fewest changes.

Called by `windlass plan mig` and by the node's MIG manager; returns steps, or the reason why the layout can't be
reached. Every set of instances that could stay is tried, largest first, so that a layout is found if it can be
reached, and with the fewest changes. An instance in use is never destroyed: if it is in the way, the refusal names
it.
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
    """The steps for one GPU, in order; none if it has the layout already."""

    uuid: str
    index: int
    wanted: tuple[str, ...]
    """Profiles, sorted by name; empty with MIG off."""
    enabled: bool
    steps: tuple[Step, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    """Profile and start of the instances that stay."""
    refusal: str = ""
    """Why the layout can't be reached; then there are no steps."""

    @property
    def changes(self) -> int:
        return sum(not isinstance(step, SetMode) for step in self.steps)


def plan_gpu(gpu: Gpu, wanted: Mapping[str, int], *, enabled: bool, in_use: frozenset[str] = frozenset()) -> GpuPlan:
    """Steps towards `wanted` (profile → count). `in_use` holds UUIDs, of MIG devices or of the GPU itself."""
    profiles = tuple(sorted(Counter(wanted).elements()))
    refusal = _refusal(gpu, profiles, enabled, in_use)
    if refusal:
        return _refused(gpu, profiles, enabled, refusal)
    if not enabled:
        return _disable_mig(gpu)
    if not gpu.mig_capable:
        return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=(), enabled=False)
    geometry = gpu.geometry
    assert geometry is not None, "_refusal checks it"
    # Instances with further compute instances were made by hand: no layout asks for them, so they are destroyed.
    found = _search(geometry, gpu.instances, Counter(profiles), in_use)
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
        kept=tuple((instance.profile, instance.start) for instance in sorted(kept, key=lambda kept: kept.start)),
    )


def _refusal(gpu: Gpu, profiles: Sequence[str], enabled: bool, in_use: frozenset[str]) -> str:
    """Why the layout is impossible, as far as that is known without a search; empty if it may be possible."""
    if gpu.is_lost:
        return "the driver has lost this GPU; reset it or reboot the node"
    if enabled != gpu.mig_enabled and gpu.uuid in in_use:
        return "a process or pod uses the whole GPU; drain it first"
    if not enabled:
        held = _named([instance for instance in gpu.instances if instance.uuid in in_use])
        return f"MIG can't be turned off while instances are in use: {held}; drain them first" if held else ""
    if not gpu.mig_capable:
        return f"{gpu.name} has no MIG" if profiles else ""
    geometry = gpu.geometry
    if geometry is None:
        return f"the MIG profiles of {gpu.name} are not known"
    unknown = sorted({name for name in profiles if geometry.profile(name) is None})
    if unknown:
        known = ", ".join(profile.name for profile in geometry.profiles)
        return f"{gpu.name} has no profile {', '.join(unknown)}; it has {known}"
    return ""


def _disable_mig(gpu: Gpu) -> GpuPlan:
    steps: list[Step] = [Destroy(gi, profile, start) for gi, profile, start in sorted(_gpu_instances(gpu.instances))]
    if gpu.mig_enabled or gpu.mig_pending:
        steps.append(SetMode(False))
    return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=(), enabled=False, steps=tuple(steps))


def _search(
    geometry: MigGeometry, instances: Sequence[MigInstance], wanted: Counter[str], in_use: frozenset[str]
) -> tuple[list[MigInstance], list[tuple[str, int]]] | None:
    """`(kept, created)` with the most instances kept; None if there is no way."""
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
    """Starts for the wanted profiles around the kept instances, in order of start; None if they don't fit."""
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
            # Equal instances are interchangeable: trying them in ascending order avoids permutations.
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
    layout = ", ".join(f"{count}× {name}" for name, count in sorted(Counter(profiles).items()))
    if held:
        return f"{layout} does not fit beside the instances in use: {held}; drain them first"
    return f"{layout} does not fit on one {gpu.name}"


def _named(instances: Sequence[MigInstance]) -> str:
    return ", ".join(f"{instance.profile} at slice {instance.start} ({instance.uuid})" for instance in instances)


def _refused(gpu: Gpu, profiles: tuple[str, ...], enabled: bool, refusal: str) -> GpuPlan:
    return GpuPlan(uuid=gpu.uuid, index=gpu.index, wanted=profiles, enabled=enabled, refusal=refusal)
