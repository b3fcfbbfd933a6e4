"""Claim: sharing lifts a park of inference services from 13 % to over 80 %.

100 GPUs of 80 GB, 400 services (`services`), placed by the engine on whole GPUs, in MIG instances, as MPS shares, as
replicas of time-sliced GPUs, and by class; then every request of a few minutes is played through `latency`. Used
compute is work done, in seconds that it would take alone on a whole GPU; tools that count the time in which any kernel
runs show more on a shared GPU, and not more work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.decision import Bind
from windlass.model.fleet import Fleet, FleetGpus, FleetPool, FleetSharing, FleetSpec, expand_fleet
from windlass.model.meta import ObjectMeta
from windlass.model.names.kai import KAI_FRACTION, KAI_MEMORY
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.simulate.interference import (
    EXCLUSIVE,
    MEASURED_MODEL,
    MIG,
    MPS,
    TIME_SLICING,
    WIDE_KERNEL_MODEL,
    InterferenceModel,
)
from windlass.simulate.pod_templates import make_pod_spec
from windlass_bench.claims.claim import FAILS, PARTLY, Claim, OnProgress
from windlass_bench.claims.latency import (
    exclusive_completion_times,
    mig_completion_times,
    shared_completion_times,
)
from windlass_bench.claims.services import (
    BURST,
    GPU_GB,
    LATENCY,
    REQUEST_S,
    THROUGHPUT,
    TRYOUT,
    Floats,
    Service,
    draw_services,
    request_times,
    total_memory_gb,
)
from windlass_bench.section import Column, Row, Section, columns

GPUS_A_NODE = 4
REPLICAS = 4
"""Of a time-sliced GPU: as many of the largest services as its memory holds."""
POOL = "windlass.dev/pool"
STRATEGY_OF_CLASS = {LATENCY: MIG, THROUGHPUT: MPS, TRYOUT: TIME_SLICING}
CLAIM = "GPU sharing moves utilisation from about 13 % to over 80 %."
SLO = 10
"""Times its own time alone that a service's p99 may take, for the sake of a number."""

COLUMNS = (
    *columns(way="GPUs are given", services="services", gpus_in_use="GPUs in use"),
    *columns("{:.1f}", compute_pct="used compute, %", compute_in_use_pct="of those in use, %"),
    *columns("{:.1f}", memory_pct="used memory, %", p50_x="p50, × alone", p99_x="p99, × alone"),
    Column("p99_ms", "p99, ms", "{:,.0f}"),
    Column("over_slo", f"p99 over {SLO}×"),
)


class Scale(msgspec.Struct, frozen=True):
    gpus: int = 100
    services: int = 400
    seconds: int = 200
    more_services: tuple[int, ...] = (450, 500)
    """Numbers of services to look at beside."""


QUICK = Scale(gpus=20, services=80, seconds=100, more_services=(100,))


class ServicePlacement(msgspec.Struct, frozen=True):
    """Where a service runs, and how."""

    service: Service
    gpu: tuple[str, int]
    strategy: str
    slices: int = 0


class SharingSetup(msgspec.Struct, frozen=True):
    """A way of giving out the GPUs: the park as it is set up, and what each service asks for."""

    name: str
    nodes: Callable[[int], Sequence[Node]]
    pod: Callable[[Service], Pod]
    strategy_of: Callable[[Service], str]


def check_sharing(scale: Scale, seed: int, on_progress: OnProgress) -> Claim:
    cases = [(setup, scale.services) for setup in SHARING_SETUPS] + [
        (_arrangement(name), count) for count in scale.more_services for name in DENSE_SETUPS
    ]
    rows = []
    for done, (arrangement, count) in enumerate(cases):
        on_progress(done / (len(cases) + 1))
        rows.append(measure(arrangement, draw_services(count, seed), scale, seed, MEASURED_MODEL))
    first, more = rows[: len(SHARING_SETUPS)], rows[len(SHARING_SETUPS) :]
    wide = [
        measure(_arrangement(name), draw_services(scale.services, seed), scale, seed, WIDE_KERNEL_MODEL)
        for name in WIDE_KERNEL_SETUPS
    ]
    asked = (Column("asked", "asked for"), *COLUMNS)
    return Claim(
        "sharing",
        CLAIM,
        _found(first),
        _verdict(first),
        _conditions(draw_services(scale.services, seed), scale, [*first, *more]),
        (
            Section(
                "sharing",
                f"{scale.services} inference services on {scale.gpus} GPUs of {GPU_GB} GB",
                COLUMNS,
                first,
                note=f"One request takes {REQUEST_S * 1000:.0f} ms alone. Used compute is work done, in such "
                "time. p99 over 10×: services whose own p99 is more than ten times that. "
                "By class: latency in MIG, throughput under MPS, try-outs time-sliced, each in its own pool.",
            ),
            Section("sharing-more", "More services on the same GPUs", asked, more),
            Section(
                "sharing-wide",
                "The same with kernels that fill a whole GPU",
                COLUMNS,
                wide,
                note="Nothing overlaps for free then: 1g takes seven times as long, and MPS is as slow as turns.",
            ),
        ),
    )


def measure(
    arrangement: SharingSetup, services: Sequence[Service], scale: Scale, seed: int, model: InterferenceModel
) -> Row:
    nodes = arrangement.nodes(scale.gpus // GPUS_A_NODE)
    seats = _seats(arrangement, services, nodes)
    by_gpu: dict[tuple[str, int], list[ServicePlacement]] = {}
    for seat in seats:
        by_gpu.setdefault(seat.gpu, []).append(seat)
    done_in_time = 0
    times: list[Floats] = []
    for tenants in by_gpu.values():
        for took, in_time in _played(tenants, scale.seconds, seed, model):
            times.append(took)
            done_in_time += in_time
    every = np.concatenate(times) if times else np.zeros(1)
    used = done_in_time * REQUEST_S / scale.seconds
    p50, p99 = (float(np.percentile(every, q)) for q in (50, 99))
    return {
        "way": arrangement.name,
        "asked": len(services),
        "services": len(seats),
        "gpus_in_use": len(by_gpu),
        "compute_pct": 100 * used / scale.gpus,
        "compute_in_use_pct": 100 * used / max(1, len(by_gpu)),
        "memory_pct": 100 * total_memory_gb([seat.service for seat in seats]) / (GPU_GB * scale.gpus),
        "p50_x": p50 / REQUEST_S,
        "p99_x": p99 / REQUEST_S,
        "p99_ms": 1000 * p99,
        "over_slo": sum(float(np.percentile(service_times, 99)) > SLO * REQUEST_S for service_times in times),
    }


def _played(
    tenants: Sequence[ServicePlacement], seconds: int, seed: int, model: InterferenceModel
) -> Iterable[tuple[Floats, int]]:
    """Of each tenant of a GPU: how long its requests took, and how many were done before the end."""
    arrivals = [request_times(seat.service, seconds, seed) for seat in tenants]
    way = tenants[0].strategy
    if way == EXCLUSIVE:
        done = [exclusive_completion_times(requests) for requests in arrivals]
    elif way == MIG:
        done = [
            mig_completion_times(requests, seat.slices, model) for requests, seat in zip(arrivals, tenants, strict=True)
        ]
    else:
        done = shared_completion_times(way, arrivals, model)
    for came, went in zip(arrivals, done, strict=True):
        yield went - came, int((went <= seconds).sum())


# Placing: the engine's work


def _seats(arrangement: SharingSetup, services: Sequence[Service], nodes: Sequence[Node]) -> list[ServicePlacement]:
    by_key = {f"default/{service.name}": service for service in services}
    store = Store()
    store.apply(map(Put, nodes))
    store.apply(Put(arrangement.pod(service)) for service in services)
    plan = decide(store.snapshot(), EngineConfig(), 0)
    return [_seat(arrangement, by_key[bind.pod], bind) for bind in plan.binds]


def _seat(arrangement: SharingSetup, service: Service, bind: Bind) -> ServicePlacement:
    grant = bind.devices[0]
    slices = int(grant.profile.partition("g")[0]) if grant.profile else 0
    return ServicePlacement(service, (bind.node, grant.index), arrangement.strategy_of(service), slices)


def _pool(name: str, count: int, mig: str = "", sharing: FleetSharing | None = None) -> FleetPool:
    return FleetPool(
        name=name,
        count=count,
        gpus=(FleetGpus(model="A100-80", count=GPUS_A_NODE, mig=mig),),
        sharing=sharing,
        labels={POOL: name},
    )


def _park(*pools: FleetPool) -> list[Node]:
    return expand_fleet(Fleet(spec=FleetSpec(pools=pools)))


def _plain(count: int) -> list[Node]:
    return _park(_pool("plain", count))


def _mig(count: int) -> list[Node]:
    return _park(_pool("mig", count, mig="dynamic"))


def _sliced(count: int) -> list[Node]:
    return _park(_pool("sliced", count, sharing=FleetSharing(strategy=TIME_SLICING, replicas=REPLICAS)))


def _by_class(count: int) -> list[Node]:
    """Two fifths in MIG mode, a quarter time-sliced, the rest for MPS: about what each class needs."""
    mig, sliced = round(0.4 * count), round(0.24 * count)
    return [*_mig(mig), *_plain(count - mig - sliced), *_sliced(sliced)]


def _made(service: Service, limits: dict[str, str], annotations: dict[str, str], pool: str = "") -> Pod:
    spec = make_pod_spec({}, dict(limits))
    if pool:
        spec = msgspec.structs.replace(spec, node_selector={POOL: pool})
    return Pod(metadata=ObjectMeta(name=service.name, annotations=annotations), spec=spec)


def _whole_pod(service: Service, pool: str = "") -> Pod:
    return _made(service, {GPU_RESOURCE: "1"}, {}, pool)


def _mig_pod(service: Service, pool: str = "") -> Pod:
    """The smallest instance with its memory in which even a burst leaves some time over."""
    fits_one = MEASURED_MODEL.slowdown(MIG, 1, 1) * BURST * service.share_milli / 1000 < 1
    profile = "1g.10gb" if service.memory_gb <= 10 and fits_one else "2g.20gb"
    return _made(service, {f"nvidia.com/mig-{profile}": "1"}, {}, pool)


def _share_pod(service: Service, pool: str = "") -> Pod:
    """Its part of the memory or of the compute, whichever is more."""
    milli = max(1000 * service.memory_gb // GPU_GB, service.share_milli)
    return _made(service, {}, {KAI_FRACTION: f"{milli / 1000:.3f}"}, pool)


def _memory_pod(service: Service) -> Pod:
    """Its memory only, whatever it computes."""
    return _made(service, {}, {KAI_MEMORY: str(81_920 * service.memory_gb // GPU_GB)})


def _class_pod(service: Service) -> Pod:
    if service.kind == LATENCY:
        return _mig_pod(service, "mig")
    return _share_pod(service, "plain") if service.kind == THROUGHPUT else _whole_pod(service, "sliced")


SHARING_SETUPS = (
    SharingSetup("whole, one a service", _plain, _whole_pod, lambda service: EXCLUSIVE),
    SharingSetup("MIG", _mig, _mig_pod, lambda service: MIG),
    SharingSetup("MPS, by share", _plain, _share_pod, lambda service: MPS),
    SharingSetup("time-slicing, 4 replicas", _sliced, _whole_pod, lambda service: TIME_SLICING),
    SharingSetup("by class", _by_class, _class_pod, lambda service: STRATEGY_OF_CLASS[service.kind]),
    SharingSetup("MPS, by memory alone", _plain, _memory_pod, lambda service: MPS),
    SharingSetup("time-slicing, by memory alone", _plain, _memory_pod, lambda service: TIME_SLICING),
)


DENSE_SETUPS = ("MIG", "MPS, by share", "MPS, by memory alone")
WIDE_KERNEL_SETUPS = ("MIG", "MPS, by share", "time-slicing, 4 replicas")


def _arrangement(name: str) -> SharingSetup:
    return next(setup for setup in SHARING_SETUPS if setup.name == name)


# What it comes to


def _found(rows: Sequence[Row]) -> str:
    whole, shared = rows[0], rows[1:]
    best = max(shared, key=lambda row: float(row["compute_pct"]))
    dense = max(shared, key=lambda row: float(row["compute_in_use_pct"]))
    return (
        f"{whole['compute_pct']:.0f} % with whole GPUs ({whole['services']} of {whole['asked']} services run); "
        f"at most {best['compute_pct']:.0f} % shared, where {best['services']} run. Of the GPUs in use, "
        f"{dense['compute_in_use_pct']:.0f} % ({dense['way']}, {dense['gpus_in_use']} GPUs), with a p99 of "
        f"{dense['p99_x']:.0f} times a request alone instead of {whole['p99_x']:.1f}."
    )


def _verdict(rows: Sequence[Row]) -> str:
    reached = any(float(row["compute_in_use_pct"]) > 80 for row in rows)
    return PARTLY if reached else FAILS


def _conditions(services: Sequence[Service], scale: Scale, rows: Sequence[Row]) -> tuple[str, ...]:
    demand = 100 * sum(service.mean_share for service in services) / scale.gpus
    needed = round(80 / demand * len(services))
    memory = 100 * needed * total_memory_gb(services) / len(services) / (GPU_GB * scale.gpus)
    over = [row for row in rows if float(row["compute_pct"]) > 80]
    tails = ", ".join(f"{row['p99_x']:.0f}× ({row['way']}, {row['asked']} services)" for row in over)
    return (
        f"These {len(services)} services need {demand:.0f} % of {scale.gpus} GPUs in all, bursts included: no way of "
        "sharing can use more. The rest of the gain is GPUs that stay free.",
        f"Over 80 % of all GPUs takes some {needed} such services, whose memory is {memory:.0f} % of the park's"
        + (
            f"; seen with a p99 of {tails}." if over else "; those that ask for their compute share don't fit any more."
        ),
        "Services that are held to their compute share (MPS, by share) or to instances (MIG) leave a quarter of the "
        "GPUs idle on average: the room that bursts, and with them the tail latency, need.",
        "Latency is from the interference model in simulate/interference.py, in which seven tenants without a pause do "
        f"{MEASURED_MODEL.capacity(TIME_SLICING, 7):.2f} (time-slicing), {MEASURED_MODEL.capacity(MPS, 7):.1f} (MPS) "
        f"and {MEASURED_MODEL.capacity(MIG, 7, 1):.1f} (MIG) times the work of one: measured with small kernels, "
        "interpolated in between. With kernels that fill a GPU, instances of one or two slices can't carry this load "
        "(third table).",
    )
