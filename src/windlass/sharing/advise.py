"""Which way of sharing a GPU suits a workload: whole, MIG, MPS or time-slicing, with the reason.

Called by `windlass node advise`. Isolation is considered first, then the hardware, then the load. Slowdowns come from a
small model: with time-slicing, busy tenants take turns; with MPS, their loads add up until multiprocessors or memory
bandwidth run out; with MIG, a tenant has its slice only. Its error is measured on loads to which it was not fitted
(docs/guide/node.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.mig import MigGeometry, MigProfile, place_layout
from windlass.sharing.mig_sizes import multiprocessor_share

WHOLE, MIG, MPS, TIME_SLICING = "whole", "mig", "mps", "time-slicing"
ISOLATION = ("none", "memory", "faults", "strict")
"""Isolation between tenants: none, memory limits, faults (a crash stays local), or strict (untrusted code)."""
MAX_SLOWDOWN = 1.5
"""The limit for latency-sensitive tenants."""


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one tenant, measured with the GPU to itself."""

    busy: float = 1.0
    """Part of the time with work on the GPU."""
    multiprocessors: float = 1.0
    """Part of the multiprocessors that it fills while busy."""
    bandwidth: float = 0.0
    """Part of the memory bandwidth that it uses while busy."""
    request_us: float = 1000.0
    """Duration of one request without sharing; short requests suffer most from time-slicing."""


class SharingWorkload(msgspec.Struct, frozen=True, kw_only=True):
    tenants: int
    """Number of tenants that would share the GPU."""
    memory_mib: int = 0
    """Of each."""
    isolation: str = "none"
    latency_sensitive: bool = False
    load: TenantLoad = TenantLoad()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU to be shared."""

    name: str
    memory_mib: int
    compute: tuple[int, int]
    geometry: MigGeometry | None = None


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way of sharing, with the reason for or against it."""

    way: str
    possible: bool
    reason: str
    profile: str = ""
    slow_down: float = 0.0
    """Predicted latency relative to an unshared GPU."""


class Advice(msgspec.Struct, frozen=True):
    way: str
    reason: str
    options: tuple[Option, ...]


def advise(workload: SharingWorkload, card: Card) -> Advice:
    """The recommended way, and all options with their reasons."""
    options = (_mig(workload, card), _mps(workload, card), _time_slicing(workload, card), _whole(workload))
    possible = [option for option in options if option.possible]
    shared = [option for option in possible if option.way != WHOLE]
    if workload.tenants <= 1 or not shared:
        why = "there is only one tenant" if workload.tenants <= 1 else "no way of sharing meets the requirements"
        return Advice(WHOLE, why, options)
    best = min(shared, key=lambda option: (round(option.slow_down, 2), _ORDER.index(option.way)))
    if workload.latency_sensitive and best.slow_down > MAX_SLOWDOWN:
        why = (
            f"{best.way}, the best way of sharing, would make requests {best.slow_down:.1f} times slower; "
            f"{MAX_SLOWDOWN} is the limit for latency-sensitive tenants"
        )
        return Advice(WHOLE, why, options)
    return Advice(best.way, best.reason, options)


_ORDER = (MIG, MPS, TIME_SLICING)
"""Tie-break among equally fast ways: better isolation first."""

TIME_SLICE_SWITCH_US = 140.0
"""Cost of a context switch, fitted on an H200. The other two models need no constant."""


def predict_time_slicing(load: TenantLoad, tenants: int) -> float:
    """Busy tenants take turns, however little of the GPU they fill, and every turn costs a context switch."""
    turn = 1 + TIME_SLICE_SWITCH_US / load.request_us if tenants > 1 else 1.0
    return _busy_tenants(load, tenants) * turn


def predict_mps(load: TenantLoad, tenants: int, *, limited: bool = True) -> float:
    """Tenants run concurrently until a resource runs out; thread limits apply even while other tenants are idle."""
    busy_tenants = _busy_tenants(load, tenants)
    share = tenants if limited else busy_tenants
    return max(1.0, share * load.multiprocessors, busy_tenants * load.bandwidth)


def predict_mig(load: TenantLoad, geometry: MigGeometry, profile: MigProfile) -> float:
    """A slice of multiprocessors and a slice of memory, and no neighbours."""
    compute, memory = multiprocessor_share(geometry, profile), profile.memory_slices / geometry.memory_slices
    return max(1.0, load.multiprocessors / compute, load.bandwidth / memory)


def _busy_tenants(load: TenantLoad, tenants: int) -> float:
    """Expected number of busy tenants, given that one is busy."""
    return 1 + (tenants - 1) * load.busy


def fitting_profiles(geometry: MigGeometry, tenants: int, memory_mib: int, total_mib: int) -> Sequence[MigProfile]:
    """Profiles with enough memory of which one GPU has room for so many; largest last."""
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
        reason = f"no MIG profile with {workload.memory_mib} MiB fits {workload.tenants} times on one {card.name}"
        return Option(way=MIG, possible=False, reason=reason)
    slow, _, best = min(
        ((predict_mig(workload.load, card.geometry, profile), -profile.memory_slices, profile) for profile in fits),
        key=lambda found: found[:2],
    )
    reason = f"{workload.tenants}× {best.name}: the hardware isolates memory, bandwidth and faults"
    return Option(way=MIG, possible=True, reason=reason, profile=best.name, slow_down=slow)


def _mps(workload: SharingWorkload, card: Card) -> Option:
    if workload.isolation in ("faults", "strict"):
        reason = "a fault of one MPS client ends the others, since they share a server"
        return Option(way=MPS, possible=False, reason=reason)
    clients = 48 if card.compute >= (7, 5) else 16
    if workload.tenants > clients:
        reason = f"MPS serves at most {clients} clients on {card.name}, not {workload.tenants}"
        return Option(way=MPS, possible=False, reason=reason)
    if workload.tenants * workload.memory_mib > card.memory_mib:
        return Option(way=MPS, possible=False, reason=_too_much_memory(workload, card))
    slow = predict_mps(workload.load, workload.tenants)
    reason = "tenants run at the same time; memory and threads can be limited for each"
    return Option(way=MPS, possible=True, reason=reason, slow_down=slow)


def _too_much_memory(workload: SharingWorkload, card: Card) -> str:
    return (
        f"the tenants together need {workload.tenants * workload.memory_mib} MiB, and the GPU has {card.memory_mib} MiB"
    )


def _time_slicing(workload: SharingWorkload, card: Card) -> Option:
    if workload.isolation in ("memory", "strict"):
        reason = "time-slicing has no memory limits: one tenant can use all memory"
        return Option(way=TIME_SLICING, possible=False, reason=reason)
    if workload.tenants * workload.memory_mib > card.memory_mib:
        return Option(way=TIME_SLICING, possible=False, reason=_too_much_memory(workload, card))
    slow = predict_time_slicing(workload.load, workload.tenants)
    reason = "tenants take turns; no setup is needed, and a crash affects one tenant only"
    return Option(way=TIME_SLICING, possible=True, reason=reason, slow_down=slow)


def _whole(workload: SharingWorkload) -> Option:
    return Option(way=WHOLE, possible=True, reason="no other tenant uses the GPU", slow_down=1.0)
