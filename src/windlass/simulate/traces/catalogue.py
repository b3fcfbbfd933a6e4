"""The catalogue of traces: description, files, source and licence of each.

`windlass simulate --list` prints it; `traces.load` looks names up in it. The files of public traces are not part of the
project.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.simulate.synthetic import SYNTHETIC_TRACES
from windlass.simulate.traces.openb import POD_LISTS, arrivals_file, node_list_file, pod_list_file
from windlass.simulate.traces.philly_helios import HELIOS_FILE, PHILLY_CLUSTERS, PHILLY_FILE, PHILLY_LAST_FILE


class TraceInfo(msgspec.Struct, frozen=True):
    name: str
    at_hand: bool
    description: str
    source: str
    """Where its files can be downloaded."""
    licence: str
    files: tuple[str, ...] = ()
    """Required files, relative to the traces folder."""
    published_orders: bool = False
    """Whether the files of the published arrival orders (seeds 42 to 51) exist; else orders are generated."""


OPENB = (
    "github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/csv",
    "free for research and study; cites Beware of Fragmentation, USENIX ATC 2023",
)
PHILLY = (
    "github.com/siasosp23/artifacts, sia-simulator/traces/philly.csv",
    "CC-BY-4.0 (msr-fiddle/philly-traces)",
)
PHILLY_LAST = (
    "github.com/DIR-LAB/Gen-Parallel-Workloads, Philly/training_data",
    "CC-BY-4.0 (msr-fiddle/philly-traces)",
)
HELIOS = (
    "github.com/DIR-LAB/Gen-Parallel-Workloads, Helios/training_data",
    "CC-BY-4.0 (S-Lab-System-Group/HeliosData)",
)
OURS = ("comes with Windlass", "Apache-2.0")

OPENB_NODE_LISTS = {
    "openb": ("gpu", "1,213 GPU nodes"),
    "openb-all": ("all", "1,523 nodes, CPU-only ones too"),
}


def list_traces(traces_dir: Path | None) -> list[TraceInfo]:
    """Every trace, including those whose files are missing."""
    return [
        *(_openb(traces_dir, family, pods) for family in OPENB_NODE_LISTS for pods in POD_LISTS),
        _recorded(traces_dir, "philly", PHILLY_FILE, "82,247 training jobs of 2017, 552 nodes", PHILLY),
        *(
            _recorded(traces_dir, f"philly/{cluster}", PHILLY_FILE, "the jobs of one virtual cluster", PHILLY)
            for cluster in PHILLY_CLUSTERS
        ),
        _recorded(traces_dir, "philly-last15k", PHILLY_LAST_FILE, "the last 15,000 jobs, 552 nodes", PHILLY_LAST),
        _recorded(traces_dir, "helios", HELIOS_FILE, "15,000 jobs of 2020, 802 nodes of 8 GPUs", HELIOS),
        *(TraceInfo(name, True, recipe.description, *OURS) for name, recipe in SYNTHETIC_TRACES.items()),
    ]


def _openb(folder: Path | None, family: str, pods: str) -> TraceInfo:
    node_list, fleet_description = OPENB_NODE_LISTS[family]
    files = (pod_list_file(pods), node_list_file(node_list))
    return TraceInfo(
        name=f"{family}/{pods}",
        at_hand=_at_hand(folder, files),
        description=f"pod list {pods} of 2023 on {fleet_description}",
        source=OPENB[0],
        licence=OPENB[1],
        files=files,
        published_orders=family == "openb" and _at_hand(folder, (arrivals_file(pods),)),
    )


def _recorded(folder: Path | None, name: str, file: str, description: str, origin: tuple[str, str]) -> TraceInfo:
    return TraceInfo(name, _at_hand(folder, (file,)), description, *origin, files=(file,))


def _at_hand(folder: Path | None, files: tuple[str, ...]) -> bool:
    return folder is not None and all((folder / file).is_file() for file in files)
