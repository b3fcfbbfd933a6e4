"""Machine parks of the claims: equal nodes of eight GPUs in racks."""

from __future__ import annotations

from windlass.model.fleet import Fleet, FleetGpus, FleetPool, FleetSpec, expand_fleet
from windlass.model.node import Node

GPUS_PER_NODE = 8


def rack_fleet(nodes: int, nodes_per_rack: int, gpus: int = GPUS_PER_NODE) -> tuple[Node, ...]:
    pool = FleetPool(
        name="n",
        count=nodes,
        gpus=(FleetGpus(model="H100", count=gpus),),
        cpu="128",
        memory="2Ti",
        pods=1000,
        nodes_per_rack=nodes_per_rack,
    )
    return tuple(expand_fleet(Fleet(spec=FleetSpec(pools=(pool,)))))
