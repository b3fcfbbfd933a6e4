"""The cluster at one moment: everything that `decide` may look at.

Made by the store, never changed. It shares arrays with the store, which copies them before it writes again.
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
    """How many bound pods bear on others (anti-affinity and the like); 0 lets placement skip looking."""
    queue_system: QueueSystem
    """Queues, cohorts, flavors and topologies."""
    workloads: tuple[Workload, ...]
    """What starts together or waits in a queue, where the cluster has objects that say so; empty where none does."""
    notes: tuple[str, ...]
    """What could not be grouped into workloads, and is said instead of guessed."""
    unreadable: dict[str, str]
    """Pods that could not be understood → the error that names the field."""
    reservations: tuple[Reservation, ...] = ()
    """Of the calendar, by name."""
    budgets: tuple[PodDisruptionBudget, ...] = ()
    """By namespace and name."""
    run_times: dict[str, RunTimes] = {}
    """LocalQueue (`namespace/name`) → how long its work has run, as its history object tells."""
    refusals: Refusals = NO_REFUSALS
    """What the API server has just refused."""
