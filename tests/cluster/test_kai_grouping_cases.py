"""The gangs of KAI's test cases are grouped as their files describe them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from windlass.cluster.workloads import group_workloads, grouping_inputs
from windlass.model.codec import decode_each

pytestmark = pytest.mark.cases
GROUP = "scheduling.x-k8s.io/pod-group"
QUEUE = "kueue.x-k8s.io/queue-name"


def test_every_gang_has_its_members_queue_minimum_and_priority(cases_dir: Path) -> None:
    files = sorted((cases_dir / "engine" / "kai").glob("*/*/objects.json"))
    assert files
    for file in files:
        raw = file.read_bytes()
        workloads = {
            workload.key: workload for workload in group_workloads(grouping_inputs(decode_each(raw), 1)).workloads
        }
        items: list[dict[str, Any]] = json.loads(raw)["items"]
        minimum = {key_of(item): item["spec"]["minMember"] for item in items if item["kind"] == "PodGroup"}
        members = defaultdict(list)
        for item in items:
            if item["kind"] == "Pod":
                members[f"{item['metadata']['namespace']}/{item['metadata']['labels'][GROUP]}"].append(item)
        for key, pods in members.items():
            live = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
            if not live or any("deletionTimestamp" in pod["metadata"] for pod in live):
                continue
            workload = workloads[key]
            done = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
            assert workload.min_pods == max(0, minimum[key] - done)
            assert workload.queue_name == live[0]["metadata"]["labels"][QUEUE]
            assert workload.priority == live[0]["spec"]["priority"]
            assert {name for pod_set in workload.pod_sets for name in pod_set.pod_keys} == {key_of(pod) for pod in live}
            placed = [pod for pod in live if pod["spec"].get("nodeName")]
            assert (workload.admission is None) == (not placed)
            held = workload.admission.assignments if workload.admission is not None else ()
            assert sum(one.count for one in held) == len(placed)
            assert workload.hold == ""


def key_of(item: dict[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
