"""The ledger of a set of objects now: one snapshot, one decision, one ledger. Nothing is carried out.

`windlass status`, `top` and `usage` call `observe_objects` with what a dump or the live API has. The scheduler, which
has decided already, calls `find_demand` and `build_ledger` itself (`scheduler.ledger_recorder`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass.cluster.snapshot import Snapshot
from windlass.isolation import IsolatingEngine
from windlass.model.configuration import Settings
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.planner import engine_config, snapshot_objects
from windlass.telemetry.activity import DEFAULT_RULES, ActivityRules, GpuSample
from windlass.telemetry.demand import find_demand
from windlass.telemetry.ledger import GpuKey, Ledger, build_ledger


class Observation(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    plan: Plan
    ledger: Ledger
    frozen: str = ""
    """Since when, by whom and why Windlass is frozen; empty if it is not."""


def observe_objects(
    objects: Sequence[object],
    settings: Settings,
    now: int,
    samples: Mapping[GpuKey, GpuSample] | None = None,
    rules: ActivityRules = DEFAULT_RULES,
) -> Observation:
    snapshot = snapshot_objects(objects, settings, now)
    config = engine_config(settings)
    if not any(isinstance(obj, Node) for obj in objects):
        config = msgspec.structs.replace(config, node_selector={})  # nothing is known about nodes
    plan, advisor, _ = IsolatingEngine(config).decide_without_explanations(snapshot, now)
    demand = find_demand(snapshot, plan, advisor)
    return Observation(snapshot, plan, build_ledger(snapshot, samples or {}, demand, now, rules))
