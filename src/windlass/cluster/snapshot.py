"""The cluster at one moment: everything that `engine.decide` may read.

Made by the store, and immutable. It shares arrays with the store, which copies them before its next write.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import Ints, NodeState
from windlass.cluster.node_state_builder import GpuModelCodes
from windlass.cluster.pod_table import PodRows
from windlass.cluster.resource_columns import ResourceColumns
from windlass.cluster.shape import ShapeRegistry
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.queue import QueueSystem
from windlass.model.refusal import NO_REFUSALS, Refusals
from windlass.model.reservation import Reservation
from windlass.model.run_time_history import RunTimes
from windlass.model.workload import Workload


class Snapshot(msgspec.Struct, frozen=True):
    generation: int
    """Grows with every change; two snapshots of one store with the same generation are equal."""
    nodes: NodeColumns
    """The Node objects in rank order, and what the filters read from them."""
    node_state: NodeState
    pods: PodRows
    shapes: ShapeRegistry
    resources: ResourceColumns
    gpu_models: GpuModelCodes
    listers: Listers
    decided_by_shape: Ints
    """[shape] how many pods of the shape have been decided on (`cluster.pod_mix_history`)."""
    decided_pods: int
    """How many pods have been decided on so far."""
    pods_with_affinity: int
    """How many bound pods have inter-pod (anti-)affinity; 0 lets placement skip the check."""
    queue_system: QueueSystem
    """Queues, cohorts, flavors and topologies."""
    workloads: tuple[Workload, ...]
    """The oldest first; empty where no object or pod declares a gang, a queue or a run limit."""
    notes: tuple[str, ...]
    """For the user: pods that could not be grouped, nodes that can't be read."""
    unreadable: dict[str, str]
    """Pod or node that can't be read → the error, which names the field."""
    reservations: tuple[Reservation, ...] = ()
    """Those that have not ended, by name."""
    budgets: tuple[PodDisruptionBudget, ...] = ()
    """By namespace and name."""
    run_times: dict[str, RunTimes] = {}
    """LocalQueue (`namespace/name`) → its run time history."""
    refusals: Refusals = NO_REFUSALS
    """What the API server has refused and would refuse again."""
    any_asks: bool = True
    """False: none of the workloads asks to be asked before it is preempted, and none is asked."""
