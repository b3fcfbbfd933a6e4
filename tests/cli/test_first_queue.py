"""The files of the guide to the first queue do what the guide says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.planner import plan_objects

EXAMPLES = Path(__file__).parents[2] / "examples"


def trees() -> list[dict[str, Any]]:
    files = ("first-queue.yaml", "queued-jobs.yaml")
    found = [tree for file in files for tree in yaml.safe_load_all((EXAMPLES / file).read_text())]
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    status = {"capacity": room, "allocatable": room}
    return [*found, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}]


def outcome(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Job → admitted, or the code of its hold."""
    plan, _ = plan_objects([decode_object(tree) for tree in objects], Settings(), 1_800_000_000)
    admitted = {admit.workload: "admitted" for admit in plan.admits}
    return admitted | {hold.workload: hold.verdict.code for hold in plan.holds}


def test_there_is_quota_for_one_of_the_two() -> None:
    assert outcome(trees()) == {"default/train-a": "admitted", "default/train-b": "KUEUE_QUOTA_INSUFFICIENT"}


def test_what_the_guide_says_of_queues_that_are_missing_or_stopped() -> None:
    without = [tree for tree in trees() if tree["kind"] != "LocalQueue"]
    assert set(outcome(without).values()) == {"KUEUE_QUEUE_MISSING"}
    stopped = trees()
    next(tree for tree in stopped if tree["kind"] == "ClusterQueue")["spec"]["stopPolicy"] = "Hold"
    assert set(outcome(stopped).values()) == {"KUEUE_QUEUE_MISSING"}
