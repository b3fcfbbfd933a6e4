"""An overlay, a placer and an occupancy on a few nodes, for tests of the parts of a decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace
from tests.queueing.builders import NOW

from reference.park import pod
from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.shape import make_shape
from windlass.cluster.store import Store
from windlass.model.configuration import ResourceRules
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.decision_context import DecisionContext, GangSettings
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.preemption.context import Preemption
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.placement.workload_mix import WorkloadMix, mix_arrays
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.config import QueueConfig
from windlass.queueing.placement_interface import PodSetChoice

NO_QUEUES = QueueSystem()
DEFAULT_SETTINGS = PlannedStartSettings()
DEFAULT_GANGS = GangSettings()
CELL = ("default", "cpu")


def make_overlay(*objects: object, queues: QueueSystem | None = None, workloads: Sequence[Workload] = ()) -> Overlay:
    """Over the nodes and pods, as `engine.decide` makes it; with these queues and workloads, where given."""
    store = Store()
    store.apply([Put(obj) for obj in objects])
    snapshot = store.snapshot(0)
    if queues is not None:
        snapshot = replace(snapshot, queue_system=queues)
    if workloads:
        snapshot = replace(snapshot, workloads=tuple(workloads))
    arrays = mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state)
    table = ScoreTable(snapshot, arrays, ScorerSelector(SCORERS["windlass"]))
    rule = make_scoring_rule(PlacementConfig("windlass"), snapshot.node_state)
    return Overlay(snapshot, table, rule, jit.kernels(small=True))


def make_placer(
    overlay: Overlay, workloads: Iterable[Workload] = (), system: QueueSystem = NO_QUEUES
) -> WorkloadPlacer:
    return WorkloadPlacer(overlay, system, workloads, ResourceRules())


def make_occupancy(
    overlay: Overlay,
    workloads: Sequence[Workload] = (),
    system: QueueSystem = NO_QUEUES,
    settings: PlannedStartSettings = DEFAULT_SETTINGS,
    now: int = NOW,
) -> Occupancy:
    """The workloads that hold quota run."""
    occupancy = Occupancy(overlay, make_placer(overlay, workloads, system), system, now, settings)
    occupancy.add_running(workloads)
    return occupancy


def gang(
    name: str, template: Pod, count: int = 1, *, topology: TopologyRequest | None = None, **more: object
) -> Workload:
    """A waiting workload of one pod set in the namespace `team`."""
    pod_set = PodSet("main", count, template, topology=topology)
    return Workload(f"team/{name}", "PodGroup", (pod_set,), uid=name, **more)  # type: ignore[arg-type]


def runs(
    name: str, pods: Sequence[Pod], *, queue: str = "", usage: dict[str, int] | None = None, **more: object
) -> Workload:
    """A running workload of pods that have a node."""
    keys = tuple(one.key for one in pods)
    flavors = dict.fromkeys(usage or {}, "default")
    nodes: dict[str, int] = {}
    for one in pods:
        nodes[one.spec.node_name] = nodes.get(one.spec.node_name, 0) + 1
    part = PodSetAssignment("main", len(pods), flavors, usage or {}, nodes)
    pod_set = PodSet("main", len(pods), pods[0], pod_keys=keys)
    admission = Admission(queue, (part,), NOW - 100)
    return Workload(f"team/{name}", "PodGroup", (pod_set,), uid=name, queue_name=queue, admission=admission, **more)  # type: ignore[arg-type]


def choices(workload: Workload, **flavors: str) -> tuple[PodSetChoice, ...]:
    """All pods, with these flavors by resource."""
    return tuple(PodSetChoice(pod_set.name, pod_set.count, dict(flavors)) for pod_set in workload.pod_sets)


def make_context(
    overlay: Overlay, workloads: Sequence[Workload], settings: GangSettings = DEFAULT_GANGS, now: int = NOW
) -> DecisionContext:
    """The context of a decision on these workloads, before anything was evicted."""
    config = QueueConfig()
    none = np.zeros(0, dtype=np.int64)
    return DecisionContext(overlay, workloads, config, now, settings, Preemption(overlay, config, now), none)


def plan(
    overlay: Overlay,
    start: int,
    end: int | None,
    *pods: tuple[int, int],
    queue: str = "",
    usage: int = 0,
    key: str = "team/plan",
) -> PlannedStart:
    """A planned start; pods as (node, CPUs)."""
    planned = []
    for number, cpus in pods:
        template = pod("t", cpu=str(cpus))
        planned.append(PlannedPod(template, overlay.table.row(make_shape(template), overlay.snapshot), number))
    return PlannedStart(key, start, end, tuple(planned), queue=queue, usage={CELL: usage} if usage else {})
