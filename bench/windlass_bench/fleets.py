"""Machine parks for the benchmarks that no trace reader gives: other companies' node lists, and one park many times.

Read from the folder of public traces; feeds `play` with nodes to play other traces' pods on.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.node import Node
from windlass.simulate.fleet import NodeFactory, NodeSize
from windlass.simulate.traces.openb import node_list_file, read_openb_nodes

PAI_FILE = "alibaba-pai-v2020/pai_machine_spec.csv"
SPOT_FILE = "alibaba-spot-gpu-v2026/node_info_df.csv"
MEMORY_NOT_GIVEN = 4 * 2**20
"""MiB for machines whose memory the list doesn't state: enough that it never binds."""

Machines = Iterator[tuple[str, NodeSize]]


def read_fleet(name: str, traces_dir: Path) -> tuple[Node, ...]:
    """`pai-v2020`, `spot-v2026`, or `openb*N`: the openb park N times over."""
    family, _, copies = name.partition("*")
    if family == "openb":
        return repeat_nodes(read_openb_nodes(traces_dir / node_list_file("gpu")), int(copies))
    file, machines = FLEETS[family]
    path = traces_dir / file
    park = NodeFactory()
    try:
        return tuple(park.make_node(each, size) for each, size in machines(path))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"can't be read as a list of machines: {error}", file=str(path)) from error


def repeat_nodes(nodes: tuple[Node, ...], copies: int) -> tuple[Node, ...]:
    """Each node `copies` times, under names of its own."""
    return tuple(_renamed(node, f"{node.name}-{copy}") for node in nodes for copy in range(copies))


def _renamed(node: Node, name: str) -> Node:
    labels = {**node.metadata.labels, HOSTNAME_LABEL: name}
    metadata = msgspec.structs.replace(node.metadata, name=name, labels=labels)
    return msgspec.structs.replace(node, metadata=metadata)


def _pai_machines(path: Path) -> Machines:
    """No header: machine, GPU type, CPUs, GiB of memory, GPUs."""
    with path.open(encoding="utf-8", newline="") as file:
        for name, kind, cpus, memory, gpus in csv.reader(file):
            model = kind if int(gpus) else ""
            yield name, NodeSize(int(cpus) * 1000, int(memory) * 1024, int(gpus), model)


def _spot_machines(path: Path) -> Machines:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            gpus = int(row["gpu_capacity_num"])
            cpu = round(float(row["cpu_num"]) * 1000)
            yield f"spot-{row['node_name']}", NodeSize(cpu, MEMORY_NOT_GIVEN, gpus, row["gpu_model"])


FLEETS: dict[str, tuple[str, Callable[[Path], Machines]]] = {
    "pai-v2020": (PAI_FILE, _pai_machines),
    "spot-v2026": (SPOT_FILE, _spot_machines),
}
