"""Kueue's own cases, run in this process: objects of a case in, a plan document out, judged by the cases' own
scorer.
"""

from __future__ import annotations

import importlib.util
import json
from argparse import Namespace as Options
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import yaml

from windlass.model.codec import decode_object
from windlass.model.kueue import WorkloadObject, is_finished, queue_system, workload_from_object
from windlass.model.namespace_limits import LimitRange, limit_range_violation
from windlass.model.queue import QueueSystem
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.queueing.admit import admit
from windlass.queueing.config import QueueConfig, UsageHistoryConfig
from windlass.queueing.outcome import Admitted, Evicted, Outcome
from windlass.queueing.placement_interface import UnlimitedPlacement


def scorer(cases_dir: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kueue_score", cases_dir / "engine" / "kueue" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_objects(items: list[dict[str, Any]]) -> tuple[QueueSystem, list[Workload]]:
    objects = [decode_object(item) for item in items]
    system = queue_system(objects)
    ranges = [obj for obj in objects if isinstance(obj, LimitRange)]
    wires = [obj for obj in objects if isinstance(obj, WorkloadObject)]
    workloads = [workload_from_object(wire, system) for wire in wires if not is_finished(wire)]
    return system, [_limited(workload, ranges) for workload in workloads]


def _limited(workload: Workload, ranges: list[LimitRange]) -> Workload:
    """With what its namespace's LimitRanges say to it, as the grouping of workloads does it."""
    own = [limits for limits in ranges if limits.metadata.namespace == workload.namespace]
    problems = [limit_range_violation(own, pod_set.template) for pod_set in workload.pod_sets] if own else []
    return msgspec.structs.replace(workload, hold="; ".join(problem for problem in problems if problem))


def read_config(path: Path) -> QueueConfig:
    if not path.exists():
        return QueueConfig()
    raw = yaml.safe_load(path.read_text())
    fair = raw.get("fairSharing")
    history = raw.get("admissionFairSharing")
    return QueueConfig(
        fair_sharing=fair is not None,
        preemption_strategies=tuple((fair or {}).get("preemptionStrategies", ())),
        history=UsageHistoryConfig(half_life_seconds=8760 * 3600) if history else None,
    )


def document(outcomes: list[Outcome]) -> dict[str, Any]:
    return {"decisions": [_decision(outcome) for outcome in outcomes]}


def _decision(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Admitted):
        sets = [{"name": choice.name, "count": choice.count, "flavors": choice.flavors} for choice in outcome.choices]
        return {
            "decision": "admit",
            "workload": outcome.workload,
            "podSets": sets,
            "after": list(outcome.after),
        }
    if isinstance(outcome, Evicted):
        return {
            "decision": "evict",
            "workload": outcome.workload,
            "for": outcome.preemptor,
            "reason": outcome.reason,
        }
    return {
        "decision": "hold",
        "workload": outcome.workload,
        "code": outcome.code,
        "message": outcome.message,
    }


def run_case(path: Path) -> tuple[dict[str, Any], Any]:
    """The plan document, and the raw objects."""
    raw = read_json(path / "objects.json")
    expect = read_json(path / "expect.json")
    system, workloads = read_objects(raw["items"])
    outcomes = admit(
        system,
        workloads,
        read_config(path / "config.yaml"),
        parse_timestamp(expect["now"]),
        UnlimitedPlacement(),
    )
    return document(outcomes), raw


def differences(score: ModuleType, path: Path) -> list[str]:
    expect = read_json(path / "expect.json")
    answer, raw = run_case(path)
    options = Options(strict_held=False, loose=False)
    return list(score.judge(expect, score.World(raw), answer, options)[0])


def scored_cases(cases_dir: Path, suite: str) -> list[Path]:
    folder = cases_dir / "engine" / "kueue" / suite
    return [path.parent for path in sorted(folder.glob("*/expect.json")) if read_json(path)["score"] == "exact"]
