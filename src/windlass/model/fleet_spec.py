"""`kind: Fleet`: a short description of nodes with GPUs.

Decoded by `model.codec`; `model.fleet` expands it into nodes for the simulator, the embedded cluster and the
simulated node agent. Unlike in Kubernetes' own objects, an unknown field is an error: a typing error would otherwise
change the fleet silently. `EXAMPLE` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.gpu_models import find_gpu_model, mig_geometry_of_model, product_label
from windlass.model.meta import ObjectMeta
from windlass.model.mig import place_layout
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.model.node import Taint
from windlass.model.pod import RawQuantity
from windlass.model.requests import parse_amount
from windlass.model.taints import check_taints

EXAMPLE = """\
apiVersion: windlass.dev/v1
kind: Fleet
metadata: {name: lab}
spec:
  pools:
  - name: h100
    count: 4
    gpus: [{model: H100, count: 8, islands: 2}]
    numa: 2
    cpu: 128
    memory: 2Ti
    zone: zone-a
    nodesPerRack: 2
"""
MAX_GPUS = 16
"""GPUs of one node; larger machines are not built."""
MAX_POOL_NODES = 100_000
MAX_REPLICAS = 48
"""MPS clients per GPU; the limit for time-slicing too."""
_MIB = 1 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class FleetStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Base of Fleet structs: camelCase in JSON, unknown fields are errors."""


class FleetGpus(FleetStruct, frozen=True):
    """Equal GPUs of a node."""

    model: str
    """A short name (`H100`, `A100-80`), a product label, or any name if `memory` is given."""
    count: int
    memory: RawQuantity | None = None
    """Of one GPU; for unknown models."""
    islands: int = 1
    """NVLink islands that these GPUs form, of equal size."""
    mig: str | tuple[str, ...] = ""
    """`dynamic`, or the profiles into which each of these GPUs is partitioned."""


class FleetSharing(FleetStruct, frozen=True):
    strategy: str
    """`time-slicing` or `mps`."""
    replicas: int
    rename: bool = False
    """Advertise `nvidia.com/gpu.shared` instead of `nvidia.com/gpu`."""


class FleetFault(FleetStruct, frozen=True):
    """A fault of one node of the pool, from the start."""

    node: int
    """Counted from 0."""
    devices: tuple[int, ...] = ()
    """GPUs that are unhealthy."""
    not_ready: bool = False


class FleetPool(FleetStruct, frozen=True):
    """Equal nodes, named `<name>-<number>`."""

    name: str
    count: int = 1
    gpus: tuple[FleetGpus, ...] = ()
    cpu: RawQuantity = "64"
    memory: RawQuantity = "512Gi"
    ephemeral_storage: RawQuantity = "1Ti"
    pods: int = 110
    numa: int = 1
    """NUMA nodes; GPUs are spread over them in order."""
    mig_strategy: str = "mixed"
    sharing: FleetSharing | None = None
    region: str = ""
    zone: str = ""
    block: str = ""
    rack: str = ""
    nodes_per_rack: int = 0
    """Nodes per rack, named `<rack or pool>-<number>`; 0: all nodes are in `rack`."""
    clique: str = ""
    """NVLink domain across nodes (`nvidia.com/gpu.clique`); `rack` gives every rack its own."""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    faults: tuple[FleetFault, ...] = ()

    @property
    def gpu_count(self) -> int:
        return sum(group.count for group in self.gpus)


class FleetSpec(FleetStruct, frozen=True):
    pools: tuple[FleetPool, ...]


class Fleet(FleetStruct, frozen=True):
    spec: FleetSpec
    api_version: str = WINDLASS_API_VERSION
    kind: str = "Fleet"
    metadata: ObjectMeta = ObjectMeta()


def check_fleet(fleet: Fleet) -> None:
    """Raises an `InputError` that names the field of an impossible fleet."""
    if fleet.api_version != WINDLASS_API_VERSION:
        raise InputError(f"unknown version {fleet.api_version!r}", path="apiVersion", remedy="use windlass.dev/v1")
    if not fleet.spec.pools:
        raise InputError("a fleet needs at least one pool", path="spec.pools", remedy="add a pool")
    seen: set[str] = set()
    for index, pool in enumerate(fleet.spec.pools):
        path = f"spec.pools[{index}]"
        if pool.name in seen:
            raise InputError(f"a second pool is named {pool.name!r}", path=f"{path}.name", remedy="rename one of them")
        seen.add(pool.name)
        _check_pool(pool, path)


def gpu_memory_mib(group: FleetGpus) -> int:
    """Of one GPU: as given in the fleet, else that of the model."""
    if group.memory is not None:
        return parse_amount("memory", group.memory) // _MIB
    known = find_gpu_model(group.model)
    return known.memory_mib if known else 0


def gpu_product(group: FleetGpus) -> str:
    """What GPU Feature Discovery would call the model."""
    known = find_gpu_model(group.model)
    return known.product if known else product_label(group.model)


def _check_pool(pool: FleetPool, path: str) -> None:
    if not _NAME.fullmatch(pool.name):
        raise InputError(
            f"{pool.name[:64]!r} can't begin the names of nodes",
            path=f"{path}.name",
            remedy="use up to 50 lower-case letters, digits and dashes",
        )
    _check_range(pool.count, 1, MAX_POOL_NODES, f"{path}.count")
    _check_range(pool.pods, 1, 10_000, f"{path}.pods")
    _check_range(pool.numa, 1, 64, f"{path}.numa")
    _check_range(pool.nodes_per_rack, 0, MAX_POOL_NODES, f"{path}.nodesPerRack")
    for name, raw in (
        ("cpu", pool.cpu),
        ("memory", pool.memory),
        ("ephemeralStorage", pool.ephemeral_storage),
    ):
        _check_amount(name, raw, f"{path}.{name}")
    _check_gpus(pool, path)
    _check_sharing(pool, path)
    _check_labels(pool, path)
    check_taints(pool.taints, f"{path}.taints")
    _check_faults(pool, path)


def _check_amount(name: str, raw: RawQuantity, path: str) -> None:
    try:
        amount = parse_amount(name, raw)
    except InputError as error:
        raise error.with_context(path=path) from None
    if not amount:
        raise InputError("a node can't have none of it", path=path, remedy="write an amount above 0")


def _check_gpus(pool: FleetPool, path: str) -> None:
    for index, group in enumerate(pool.gpus):
        where = f"{path}.gpus[{index}]"
        _check_range(group.count, 1, MAX_GPUS, f"{where}.count")
        _check_range(group.islands, 1, group.count, f"{where}.islands")
        if group.count % group.islands:
            raise InputError(
                f"{group.count} GPUs can't form {group.islands} equal NVLink islands",
                path=f"{where}.islands",
                remedy="use a divisor of count",
            )
        _check_model(group, where)
        _check_mig(group, where)
    if pool.gpu_count > MAX_GPUS:
        raise InputError(
            f"{pool.gpu_count} GPUs in one node are impossible",
            path=f"{path}.gpus",
            remedy=f"a node has at most {MAX_GPUS}; raise the pool's count instead",
        )
    if pool.mig_strategy not in ("mixed", "single"):
        raise _unknown(pool.mig_strategy, ("mixed", "single"), f"{path}.migStrategy")
    if pool.mig_strategy == "single":
        _check_single(pool, path)


def _check_model(group: FleetGpus, where: str) -> None:
    if not group.model or not _LABEL_VALUE.fullmatch(gpu_product(group)):
        raise InputError(
            f"{group.model[:64]!r} can't be written into a label",
            path=f"{where}.model",
            remedy="use letters and digits",
        )
    if group.memory is not None:
        _check_amount("memory", group.memory, f"{where}.memory")
    _check_range(gpu_memory_mib(group), 0, 1 << 24, f"{where}.memory")
    if not gpu_memory_mib(group):
        raise InputError(
            f"GPU model {group.model!r} is not known and its memory is not given",
            path=f"{where}.memory",
            remedy="add memory: 24Gi (1Mi at the least), or use a known model such as H100, A100-80, L40S or T4",
        )


def _check_mig(group: FleetGpus, where: str) -> None:
    if not group.mig:
        return
    geometry = mig_geometry_of_model(gpu_product(group), gpu_memory_mib(group))
    if geometry is None:
        raise InputError(
            f"GPU model {group.model!r} can't be partitioned by MIG, or its profiles are not known",
            path=f"{where}.mig",
            remedy="remove mig, or use A100-40, A100-80, A30, H100, H200, B200 or B300",
        )
    if isinstance(group.mig, str):
        if group.mig != "dynamic":
            raise _unknown(group.mig, ("dynamic", "a list of profiles"), f"{where}.mig")
        return
    for index, name in enumerate(group.mig):
        if geometry.profile(name) is None:
            names = [profile.name for profile in geometry.profiles]
            raise _unknown(name, names, f"{where}.mig[{index}]")
    if place_layout(geometry, group.mig) is None:
        raise InputError(
            f"one {group.model} can't be cut into {', '.join(group.mig)}",
            path=f"{where}.mig",
            remedy="take out an instance, or use smaller profiles",
        )


def _check_single(pool: FleetPool, path: str) -> None:
    """The device plugin's rule for the strategy single: every GPU is partitioned, into equal instances."""
    profiles = {name for group in pool.gpus if not isinstance(group.mig, str) for name in group.mig}
    uncut = any(isinstance(group.mig, str) or not group.mig for group in pool.gpus)
    if uncut or len(profiles) != 1 or len({gpu_product(group) for group in pool.gpus}) != 1:
        raise InputError(
            "the MIG strategy single needs one model, cut everywhere into instances of one profile",
            path=f"{path}.migStrategy",
            remedy="use mixed, or give every group the same list of equal profiles",
        )


def _check_sharing(pool: FleetPool, path: str) -> None:
    sharing = pool.sharing
    if sharing is None:
        return
    if sharing.strategy not in ("time-slicing", "mps"):
        raise _unknown(sharing.strategy, ("time-slicing", "mps"), f"{path}.sharing.strategy")
    _check_range(sharing.replicas, 2, MAX_REPLICAS, f"{path}.sharing.replicas")
    if not pool.gpus or any(group.mig for group in pool.gpus):
        raise InputError(
            "sharing needs whole GPUs to share",
            path=f"{path}.sharing",
            remedy="use a pool with GPUs that MIG doesn't cut",
        )


def _check_labels(pool: FleetPool, path: str) -> None:
    for name, value in _label_values(pool):
        if not _LABEL_VALUE.fullmatch(value):
            raise InputError(
                f"{value[:64]!r} is not a label value",
                path=f"{path}.{name}",
                remedy="use up to 63 letters, digits, dashes, dots and underscores",
            )


def _label_values(pool: FleetPool) -> Iterator[tuple[str, str]]:
    yield from (("region", pool.region), ("zone", pool.zone), ("block", pool.block), ("clique", pool.clique))
    # Leaves space for the number of the rack.
    yield "rack", pool.rack + ("0" * 7 if pool.rack and pool.nodes_per_rack else "")
    yield from ((f"labels.{key}", value) for key, value in pool.labels.items())


def _check_faults(pool: FleetPool, path: str) -> None:
    for index, fault in enumerate(pool.faults):
        where = f"{path}.faults[{index}]"
        _check_range(fault.node, 0, pool.count - 1, f"{where}.node")
        for position, device in enumerate(fault.devices):
            _check_range(device, 0, pool.gpu_count - 1, f"{where}.devices[{position}]")


def _check_range(value: int, low: int, high: int, path: str) -> None:
    if not low <= value <= high:
        shown = str(value) if value.bit_length() < 64 else "a number beyond 64 bits"
        remedy = f"use {low} to {high}" if low <= high else "the pool has none"
        raise InputError(f"{shown} is out of range", path=path, remedy=remedy)


def _unknown(value: str, known: Sequence[str], path: str) -> InputError:
    return InputError(f"unknown value {value[:64]!r}", path=path, remedy=f"use one of {', '.join(known)}")
