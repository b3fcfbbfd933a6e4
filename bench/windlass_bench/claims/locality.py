"""Claim: a 32-GPU job whose GPUs are far apart runs at a tenth of the speed.

The engine places the job on a park that is half full, with and without a topology request; `allreduce` says how long
the job's all-reduce takes where it was placed, on fabrics made of NVLink 4, PCIe 4, HDR InfiniBand and Ethernet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.placement.policies import PlacementConfig
from windlass.simulate.pod_templates import make_pod_spec
from windlass.simulate.random_stream import RandomStream
from windlass_bench.claims.allreduce import (
    GB,
    HDR_PORT,
    NVLINK_4,
    PCIE_4,
    Fabric,
    JobPlacement,
    all_reduce_seconds,
    ethernet,
    step_seconds,
)
from windlass_bench.claims.claim import FAILS, PARTLY, Claim, OnProgress
from windlass_bench.claims.parks import rack_fleet
from windlass_bench.claims.queues import QueueSpec, queue_objects
from windlass_bench.section import Column, Row, Section, columns

CLAIM = (
    "A 32-GPU job with a worker that only Ethernet reaches runs at one tenth of the speed of one on NVLinked nodes; "
    "NVLink is up to 28 times as fast as PCIe."
)
GPUS = 32
RACKS, NODES_A_RACK = 8, 8
GRADIENT_BYTES = 14 * GB
"""Of a model of 7 billion parameters, two bytes each."""
BUCKET_BYTES = 25e6
"""What frameworks exchange at a time while the backward pass goes on."""
COMPUTE_S = 1.0
"""Of one step, for the sake of a number; the last table says what another would change."""
OVERSUBSCRIPTIONS = (1, 2, 4, 8)
HDR_RAILS = Fabric()
FABRICS = (
    ("NVLink, 8 HDR ports a node", HDR_RAILS),
    ("NVLink, 1 HDR port a node", Fabric(ports=1)),
    ("PCIe 4, 1 HDR port a node", Fabric(intra_node_bandwidth=PCIE_4, ports=1)),
    ("NVLink, 100 Gbit Ethernet", Fabric(ports=1, port_bandwidth=ethernet(100))),
    ("NVLink, 25 Gbit Ethernet", Fabric(ports=1, port_bandwidth=ethernet(25))),
    ("NVLink, 10 Gbit Ethernet", Fabric(ports=1, port_bandwidth=ethernet(10))),
)

PLACEMENT_COLUMNS = (
    *columns(placement="the job is placed", nodes="nodes", racks="racks"),
    *(Column(f"all_reduce_{o}_s", f"all-reduce, s, {o}:1", "{:.3f}") for o in OVERSUBSCRIPTIONS),
    *(Column(f"speed_{o}_pct", f"speed, %, {o}:1", "{:.0f}") for o in OVERSUBSCRIPTIONS),
)
FABRIC_COLUMNS = (
    Column("fabric", "fabric"),
    *columns("{:.3f}", one_rack_s="all-reduce in one rack, s", across_s="across racks 4:1, s"),
    Column("across_x", "times as long", "{:.1f}"),
    Column("bucket_ms", "25 MB in one rack, ms", "{:.2f}"),
    Column("speed_pct", "speed in one rack, % of the best", "{:.0f}"),
    Column("hidden_pct", "with 80 % hidden behind compute, %", "{:.0f}"),
    Column("tenth_s", "a tenth of the speed below so much compute, s", "{:.2f}"),
)


def check_locality(seed: int, on_progress: OnProgress) -> Claim:
    nodes = rack_fleet(RACKS * NODES_A_RACK, NODES_A_RACK)
    spots = place_job_variants(nodes, seed)
    on_progress(0.5)
    near = spots[0][1]
    placements = [_placement_row(name, spot, near) for name, spot in spots]
    fabrics = [_fabric_row(name, fabric, near, spots[1][1]) for name, fabric in FABRICS]
    return Claim(
        "locality",
        CLAIM,
        _found(placements, fabrics),
        PARTLY if any(row["tenth_s"] for row in fabrics) else FAILS,
        _conditions(placements, fabrics),
        (
            Section(
                "locality-placements",
                f"A {GPUS}-GPU job on a park of {RACKS} racks of {NODES_A_RACK} nodes that is half full",
                PLACEMENT_COLUMNS,
                placements,
                note=f"NVLink 4 in the node, 8 HDR ports a node, {GRADIENT_BYTES / GB:.0f} GB of gradients, "
                f"{COMPUTE_S:g} s of compute a step, nothing overlapped; 4:1 is the oversubscription between racks. "
                "Speed is against the same job in one rack.",
            ),
            Section(
                "locality-fabrics",
                "The same job on four whole nodes, by fabric",
                FABRIC_COLUMNS,
                fabrics,
                note="Speed is against NVLink with 8 HDR ports.",
            ),
        ),
    )


# Where the engine puts the job


def place_job_variants(nodes: Sequence[Node], seed: int) -> list[tuple[str, JobPlacement]]:
    """The job, placed in four ways on the same half-full park: as a gang in one rack, or pod by pod."""
    whole = partial(_pods, pods=GPUS // 8, gpus=8)
    single = partial(_pods, pods=GPUS, gpus=1)
    return [
        ("one rack required, 4 pods of 8", place(nodes, whole(rack=True), "windlass", seed)),
        ("pod by pod, 4 pods of 8, spread", place(nodes, whole(), "spread", seed)),
        ("one rack required, 32 pods of 1", place(nodes, single(rack=True), "windlass", seed)),
        ("pod by pod, 32 pods of 1, spread", place(nodes, single(), "spread", seed)),
    ]


def place(nodes: Sequence[Node], pods: Sequence[Pod], policy: str, seed: int) -> JobPlacement:
    """Among equal nodes the choice is by chance (the seed), as kube-scheduler does it."""
    ranks = RandomStream(seed, 1).permutation(len(nodes)).tolist()
    store = Store({node.name: rank for node, rank in zip(nodes, ranks, strict=True)})
    store.apply(map(Put, nodes))
    if any(KUEUE_POD_GROUP_NAME in pod.metadata.labels for pod in pods):
        store.apply(map(Put, queue_objects([QueueSpec("train", 8 * len(nodes))])))
    store.apply(Put(pod) for pod in _background_pods(nodes, seed))
    store.apply(map(Put, pods))
    plan = decide(store.snapshot(), EngineConfig(PlacementConfig(policy)), 0)
    rack_of = {node.name: node.labels[RACK_LABEL] for node in nodes}
    gpus: dict[tuple[str, str], int] = {}
    for bind in plan.binds:
        at = (rack_of[bind.node], bind.node)
        gpus[at] = gpus.get(at, 0) + len(bind.devices)
    return JobPlacement(gpus)


def _pods(pods: int, gpus: int, rack: bool = False) -> list[Pod]:
    annotations = (
        {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(pods), REQUIRED_TOPOLOGY_ANNOTATION: RACK_LABEL} if rack else {}
    )
    labels = {KUEUE_POD_GROUP_NAME: "job", QUEUE_NAME_LABEL: "train"} if rack else {}
    amount = {GPU_RESOURCE: str(gpus)}
    return [
        Pod(
            metadata=ObjectMeta(name=f"job-{index:02}", labels=labels, annotations=annotations),
            spec=make_pod_spec({}, dict(amount)),
        )
        for index in range(pods)
    ]


def _background_pods(nodes: Sequence[Node], seed: int) -> list[Pod]:
    """Half of the nodes, drawn by the seed, are full."""
    full = RandomStream(seed, 2).permutation(len(nodes))[: len(nodes) // 2].tolist()
    spec = make_pod_spec({}, {GPU_RESOURCE: "8"})
    return [
        Pod(
            metadata=ObjectMeta(name=f"other-{number:03}"),
            spec=msgspec.structs.replace(spec, node_name=nodes[number].name),
        )
        for number in full
    ]


# What it makes of that


def _placement_row(name: str, spot: JobPlacement, near: JobPlacement) -> Row:
    row: Row = {"placement": name, "nodes": len(spot.gpus), "racks": spot.racks, "gpus": spot.total}
    for narrow in OVERSUBSCRIPTIONS:
        fabric = msgspec.structs.replace(HDR_RAILS, oversubscription=float(narrow))
        row[f"all_reduce_{narrow}_s"] = all_reduce_seconds(spot, GRADIENT_BYTES, fabric)
        best = step_seconds(near, GRADIENT_BYTES, fabric, COMPUTE_S)
        row[f"speed_{narrow}_pct"] = 100 * best / step_seconds(spot, GRADIENT_BYTES, fabric, COMPUTE_S)
    return row


def _fabric_row(name: str, fabric: Fabric, near: JobPlacement, far: JobPlacement) -> Row:
    narrow = msgspec.structs.replace(fabric, oversubscription=4.0)
    best = all_reduce_seconds(near, GRADIENT_BYTES, HDR_RAILS)
    here, there = (
        all_reduce_seconds(near, GRADIENT_BYTES, fabric),
        all_reduce_seconds(far, GRADIENT_BYTES, narrow),
    )
    return {
        "fabric": name,
        "one_rack_s": here,
        "across_s": there,
        "across_x": there / here,
        "bucket_ms": 1000 * all_reduce_seconds(near, BUCKET_BYTES, fabric),
        "speed_pct": 100 * (COMPUTE_S + best) / (COMPUTE_S + here),
        "hidden_pct": 100
        * step_seconds(near, GRADIENT_BYTES, HDR_RAILS, COMPUTE_S, 0.8)
        / step_seconds(near, GRADIENT_BYTES, fabric, COMPUTE_S, 0.8),
        "tenth_s": tenth_speed_threshold(best, here),
    }


def tenth_speed_threshold(best: float, here: float) -> float | None:
    """Compute a step, in seconds, below which the speed is less than a tenth; None where it never is."""
    compute = (here - 10 * best) / 9
    return compute if compute > 0 else None


def _found(placements: Sequence[Row], fabrics: Sequence[Row]) -> str:
    far, scattered = placements[1], placements[3]
    slow = [row for row in fabrics if row["tenth_s"] is not None and row["tenth_s"] >= COMPUTE_S]
    return (
        f"Across {far['racks']} racks instead of one: {far['speed_1_pct']:.0f} % of the speed on a network without "
        f"oversubscription, {far['speed_4_pct']:.0f} % at 4:1, {far['speed_8_pct']:.0f} % at 8:1; as "
        f"{scattered['nodes']} single GPUs {scattered['speed_4_pct']:.0f} % at 4:1. A tenth of the speed is seen with "
        f"{' and '.join(row['fabric'].partition(', ')[2] for row in slow) or 'none of these fabrics'}. "
        f"NVLink 4 is {NVLINK_4 / PCIE_4:.0f} times PCIe 4 x16 in the same direction."
    )


def _conditions(placements: Sequence[Row], fabrics: Sequence[Row]) -> tuple[str, ...]:
    by_name = {row["fabric"]: row for row in fabrics}
    tenths = ", ".join(
        f"{row['tenth_s']:.1f} s ({name})" for name, row in by_name.items() if (row["tenth_s"] or 0) >= 0.1
    )
    return (
        "Racks matter only where the links between them are narrower than the nodes' ports, or shared with other load; "
        "on a non-blocking fabric one rack and several are the same.",
        f"A tenth of the speed needs a step with little compute: below {tenths or 'nothing'} for "
        f"{GRADIENT_BYTES / GB:.0f} GB of gradients. Every worker waits for the slowest link, "
        "so one such worker is enough.",
        "28 times is 900 over 32 GB/s: both directions of NVLink over one of PCIe. Like for like it is 14.",
        f"PCIe before InfiniBand is no order: a HDR port ({HDR_PORT / GB:.0f} GB/s) nearly fills a PCIe 4 x16 slot "
        f"({PCIE_4 / GB:.0f}), and eight ports a node carry six times as much.",
        "Pods of one GPU, spread by default, cost more than racks do: every GPU then has the network for a neighbour.",
    )
