"""The engine cases made from Kueue's and KAI's tests: every object is read, and says what the file says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from windlass.model.codec import Unreadable, decode_each
from windlass.model.kueue import WorkloadObject, queue_system, workload_from_object
from windlass.model.quantity import parse_quantity
from windlass.model.workload import Workload

pytestmark = pytest.mark.cases


def scale(resource: str) -> int:
    return 1000 if resource in ("cpu", "nvidia.com/gpu") else 1


def cases(folder: Path) -> Iterator[tuple[list[dict[str, Any]], list[object]]]:
    found = sorted((folder / "engine").glob("*/*/*/objects.json"))
    assert found
    for file in found:
        raw = file.read_bytes()
        things = list(decode_each(raw, str(file)))
        broken = [thing.error for thing in things if isinstance(thing, Unreadable)]
        assert not broken, broken
        yield json.loads(raw)["items"], things


def test_every_queue_has_the_quota_that_is_written(cases_dir: Path) -> None:
    for items, things in cases(cases_dir):
        system = queue_system(things)
        for item in (item for item in items if item["kind"] == "ClusterQueue"):
            queue = system.queues[item["metadata"]["name"]]
            spec = item["spec"]
            assert queue.cohort == spec.get("cohortName", spec.get("cohort", ""))
            written = {
                (flavor["name"], quota["name"]): ceil(parse_quantity(quota["nominalQuota"]) * scale(quota["name"]))
                for group in spec.get("resourceGroups", ())
                for flavor in group["flavors"]
                for quota in flavor["resources"]
            }
            read = {
                (flavor.flavor, name): cell.nominal
                for group in queue.resource_groups
                for flavor in group.flavors
                for name, cell in flavor.quotas.items()
            }
            assert read == written


def test_every_workload_says_what_is_written(cases_dir: Path) -> None:
    for items, things in cases(cases_dir):
        system = queue_system(things)
        made = [workload_from_object(thing, system) for thing in things if isinstance(thing, WorkloadObject)]
        written = [item for item in items if item["kind"] == "Workload"]
        for item, workload in zip(written, made, strict=True):
            check(item, workload)


def check(item: dict[str, Any], workload: Workload) -> None:
    spec = item["spec"]
    assert workload.queue_name == spec["queueName"]
    assert workload.priority == spec.get("priority", 0)
    assert [(one.name, one.count, one.min_count) for one in workload.pod_sets] == [
        (one["name"], one["count"], one.get("minCount")) for one in spec["podSets"]
    ]
    held = item.get("status", {}).get("admission")
    assert (workload.admission is None) == (held is None)
    if workload.admission is not None and held is not None:
        assert workload.admission.cluster_queue == held["clusterQueue"]
        for one, assigned in zip(workload.admission.assignments, held["podSetAssignments"], strict=True):
            assert one.flavors == assigned.get("flavors", {})
            usage = assigned.get("resourceUsage", {})
            assert one.usage == {name: parse_quantity(raw) * scale(name) for name, raw in usage.items()}
            if "topologyAssignment" in assigned:
                assert sum(count for _, count in one.domains) == one.count
