"""Which way of sharing a GPU suits a workload: whole, MIG, MPS or time-slicing, with the reason.

Asked by `windlass node advise`. Isolation comes first, what the hardware can do second, the load pattern third. The
prediction is a small model with the reason in it: under time-slicing whoever is busy takes turns; under MPS tenants
add up until multiprocessors or memory bandwidth run out; under MIG a tenant has its slice and no more. How far it can
be trusted is measured on work that it was not fitted to (docs/guide/node.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.mig import MigGeometry, MigProfile
from windlass.sharing.mig import place_layout
from windlass.sharing.mig_sizes import multiprocessor_share

WHOLE, MIG, MPS, TIME_SLICING = "whole", "mig", "mps", "time-slicing"
ISOLATION = ("none", "memory", "faults", "strict")
"""What neighbours must not touch: nothing, memory limits, each other's crashes, or anything (other people's code)."""
MAX_SLOWDOWN = 1.5
"""Up to here a latency-sensitive tenant is content."""


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant does when it has the GPU to itself."""

    busy: float = 1.0
    """Part of the time that it has work on the GPU."""
    multiprocessors: float = 1.0
    """Part of the multiprocessors that it fills while busy."""
    bandwidth: float = 0.0
    """Part of the memory bandwidth that it uses while busy."""
    request_us: float = 1000.0
    """How long one request takes with the GPU alone; short ones suffer most from taking turns."""


class SharingWorkload(msgspec.Struct, frozen=True, kw_only=True):
    tenants: int
    """How many would share."""
    memory_mib: int = 0
    """Of each."""
    isolation: str = "none"
    latency_sensitive: bool = False
    load: TenantLoad = TenantLoad()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU in question."""

    name: str
    memory_mib: int
    compute: tuple[int, int]
    geometry: MigGeometry | None = None


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way, and what speaks for or against it."""

    way: str
    possible: bool
    reason: str
    profile: str = ""
    slow_down: float = 0.0
    """Predicted latency compared with having the GPU alone."""


class Advice(msgspec.Struct, frozen=True):
    way: str
    reason: str
    options: tuple[Option, ...]


def advise(workload: SharingWorkload, card: Card) -> Advice:
    """The way to take, and every other with the reason why not."""
    options = (_mig(workload, card), _mps(workload, card), _time_slicing(workload, card), _whole(workload))
    possible = [option for option in options if option.possible]
    shared = [option for option in possible if option.way != WHOLE]
    if workload.tenants <= 1 or not shared:
        why = "there is nobody to share with" if workload.tenants <= 1 else "no way of sharing can serve this"
        return Advice(WHOLE, why, options)
    best = min(shared, key=lambda option: (round(option.slow_down, 2), _ORDER.index(option.way)))
    if workload.latency_sensitive and best.slow_down > MAX_SLOWDOWN:
        why = f"even {best.way} would make requests {best.slow_down:.1f} times slower"
        return Advice(WHOLE, why, options)
    return Advice(best.way, best.reason, options)


_ORDER = (MIG, MPS, TIME_SLICING)
"""Among equally fast ways, the one that isolates more."""

TIME_SLICE_SWITCH_US = 140.0
"""Fitted on an H200: what a change of turns costs. The other two ways needed no constant."""


def predict_time_slicing(load: TenantLoad, tenants: int) -> float:
    """Whoever is busy takes turns, whatever little of the GPU it fills, and every turn costs a change."""
    turn = 1 + TIME_SLICE_SWITCH_US / load.request_us if tenants > 1 else 1.0
    return _at_once(load, tenants) * turn


def predict_mps(load: TenantLoad, tenants: int, *, limited: bool = True) -> float:
    """Tenants run together until something runs out; limits on threads hold also while neighbours are idle."""
    together = _at_once(load, tenants)
    share = tenants if limited else together
    return max(1.0, share * load.multiprocessors, together * load.bandwidth)


def predict_mig(load: TenantLoad, geometry: MigGeometry, profile: MigProfile) -> float:
    """A slice of multiprocessors and a slice of memory, and no neighbours."""
    compute, memory = multiprocessor_share(geometry, profile), profile.memory_slices / geometry.memory_slices
    return max(1.0, load.multiprocessors / compute, load.bandwidth / memory)


def _at_once(load: TenantLoad, tenants: int) -> float:
    """How many tenants want the GPU at a moment when one does."""
    return 1 + (tenants - 1) * load.busy


def fitting_profiles(
    geometry: MigGeometry, tenants: int, memory_mib: int, total_mib: int
) -> Sequence[MigProfile]:
    """Profiles of which one GPU holds so many, with enough memory; the largest last."""
    return [
        profile
        for profile in geometry.profiles
        if not profile.media
        and profile.memory_slices * total_mib // geometry.memory_slices >= memory_mib
        and place_layout(geometry, (profile.name,) * tenants) is not None
    ]


def _mig(workload: SharingWorkload, card: Card) -> Option:
    if card.geometry is None:
        return Option(way=MIG, possible=False, reason=f"{card.name} has no MIG")
    fits = fitting_profiles(card.geometry, workload.tenants, workload.memory_mib, card.memory_mib)
    if not fits:
        reason = f"no profile holds {workload.memory_mib} MiB {workload.tenants} times on one {card.name}"
        return Option(way=MIG, possible=False, reason=reason)
    slow, _, best = min(
        (
            (predict_mig(workload.load, card.geometry, profile), -profile.memory_slices, profile)
            for profile in fits
        ),
        key=lambda found: found[:2],
    )
    reason = f"{workload.tenants}× {best.name}: memory, faults and bandwidth are kept apart by the hardware"
    return Option(way=MIG, possible=True, reason=reason, profile=best.name, slow_down=slow)


def _mps(workload: SharingWorkload, card: Card) -> Option:
    if workload.isolation in ("faults", "strict"):
        reason = "a fault of one MPS client ends the others, and they share a server"
        return Option(way=MPS, possible=False, reason=reason)
    clients = 48 if card.compute >= (7, 5) else 16
    if workload.tenants > clients:
        return Option(way=MPS, possible=False, reason=f"{card.name} serves at most {clients} clients")
    if workload.tenants * workload.memory_mib > card.memory_mib:
        return Option(way=MPS, possible=False, reason="their memory together is more than the GPU has")
    slow = predict_mps(workload.load, workload.tenants)
    reason = "tenants run at the same time and add up; memory and threads can be limited for each"
    return Option(way=MPS, possible=True, reason=reason, slow_down=slow)


def _time_slicing(workload: SharingWorkload, card: Card) -> Option:
    if workload.isolation in ("memory", "strict"):
        reason = "time-slicing limits nobody's memory: one tenant can take all of it"
        return Option(way=TIME_SLICING, possible=False, reason=reason)
    if workload.tenants * workload.memory_mib > card.memory_mib:
        return Option(
            way=TIME_SLICING, possible=False, reason="their memory together is more than the GPU has"
        )
    slow = predict_time_slicing(workload.load, workload.tenants)
    reason = "tenants take turns; nothing has to be set up, and a crash stays with its owner"
    return Option(way=TIME_SLICING, possible=True, reason=reason, slow_down=slow)


def _whole(workload: SharingWorkload) -> Option:
    return Option(way=WHOLE, possible=True, reason="nobody else is on it", slow_down=1.0)
