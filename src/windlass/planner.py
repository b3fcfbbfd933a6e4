"""A plan for a set of objects: one snapshot, one decision, and nothing is executed.

`windlass plan`, `check` and `fit` call it, and it decides as the scheduler does. `engine_config` turns
settings into the configuration of the engine, for the scheduler and the simulator, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.delta import Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.engine import EngineConfig
from windlass.isolation import IsolatingEngine
from windlass.model.annotation_checks import invalid_annotations
from windlass.model.configuration import Settings
from windlass.model.default_queue import with_default_queues
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.priority import resolve_priorities
from windlass.placement.asks import AskSettings
from windlass.placement.decision_context import GangSettings
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS
from windlass.placement.policies import PlacementConfig
from windlass.placement.stop_conditions import Readiness
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig, UsageHistoryConfig


def plan_objects(objects: Sequence[object], settings: Settings, now: int) -> tuple[Plan, Sequence[str]]:
    """The plan for these objects now, and notes for the user: objects that can't be read or grouped."""
    snapshot = snapshot_objects(objects, settings, now)
    config = engine_config(settings)
    if not any(isinstance(obj, Node) for obj in objects):
        config = msgspec.structs.replace(config, node_selector={})  # nothing is known about nodes
    return plan_snapshot(snapshot, config, now), (*snapshot.notes, *invalid_annotations(objects))


def plan_snapshot(snapshot: Snapshot, config: EngineConfig, now: int) -> Plan:
    """The plan with as many holds explained as a user may read."""
    explaining = msgspec.structs.replace(config, max_explained_holds=MAX_EXPLAINED_HOLDS)
    return IsolatingEngine(explaining).decide(snapshot, now)


def snapshot_objects(objects: Sequence[object], settings: Settings, now: int) -> Snapshot:
    """The snapshot that a scheduler with these settings would make of the objects."""
    store = Store()
    visible = with_default_queues(visible_objects(objects, settings))
    store.apply(Put(obj) for obj in resolve_priorities(visible))
    return store.snapshot(now)


def visible_objects(objects: Sequence[object], settings: Settings) -> Sequence[object]:
    """The objects without nodes that the settings exclude."""
    return [obj for obj in objects if not isinstance(obj, Node) or settings.selects_node(obj.labels)]


def engine_config(settings: Settings) -> EngineConfig:
    history = None
    if settings.usage_half_life_seconds is not None:
        history = UsageHistoryConfig(
            settings.usage_half_life_seconds, settings.usage_sampling_seconds, settings.resource_weights_milli
        )
    queues = QueueConfig(
        fair_sharing=settings.fair_sharing,
        preemption_strategies=settings.preemption_strategies,
        history=history,
        ignore_undeclared=settings.ignores_undeclared,
        min_run_seconds=settings.min_run_seconds,
        budgets_yield_to=settings.budgets_yield_to,
        restart_seconds=settings.restart_seconds,
        lost_seconds_cap=settings.lost_seconds_cap,
        lost_seconds_caps=settings.lost_seconds_caps,
        requeues_at_creation=settings.requeue_at_creation,
        blocks_admission=settings.block_admission,
    )
    placement = PlacementConfig(settings.placement, settings.seed)
    time = PlannedStartSettings(
        settings.backfill_depth,
        settings.reservation_lead_seconds,
        settings.run_time_seconds,
        settings.run_time_percentile,
    )
    readiness = None
    if settings.ready_seconds is not None:
        readiness = Readiness(settings.ready_seconds, settings.recovery_seconds, settings.requeue_limit)
    gangs = GangSettings(settings.gang_grace_seconds, settings.resources, time, readiness, settings.topology_levels)
    return EngineConfig(
        placement,
        queues=queues,
        gangs=gangs,
        classes=settings.classes,
        asks=AskSettings(settings.ask_seconds, settings.max_ask_seconds),
        defrag=settings.defrag,
        node_selector=settings.node_selector,
    )
