"""Cases that must come out like the one they were made of: other names and UIDs, another order, another time, and
company that can't matter.

`test_variants` draws them with a seed that it prints; `renaming` knows where names stand.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.peers.renaming import Names, rename_kai_expectation, rename_kueue_expectation, rename_object
from tests.peers.scorers import Json, read_json

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
KUEUE = "kueue.x-k8s.io/v1beta2"
LONELY = "bystander"


def write_variant(case: Path, peer: str, seed: str, into: Path) -> Path:
    """A folder like the case's, under the same suite."""
    chance = random.Random(seed)
    objects, expect = read_json(case / "objects.json"), read_json(case / "expect.json")
    items = deepcopy(objects["items"])
    newest = max(newest_time(item) for item in items)
    names = Names(chance)
    for item in items:
        rename_object(item, names)
    (rename_kueue_expectation if peer == "kueue" else rename_kai_expectation)(expect, names)
    items += [*bystanders(chance, newest), *company(items, chance, newest)]
    chance.shuffle(items)
    later = timedelta(days=chance.randrange(1, 400), seconds=chance.randrange(86400))
    objects["items"] = [_shifted(item, later) for item in items]
    folder = into / case.parent.name / case.name
    folder.mkdir(parents=True)
    (folder / "objects.json").write_text(json.dumps(objects))
    (folder / "expect.json").write_text(json.dumps(expect))
    if (case / "config.yaml").exists():
        shutil.copy(case / "config.yaml", folder / "config.yaml")
    return folder


def newest_time(item: Json) -> str:
    """The newest moment that an object tells of."""
    return max((found.group() for found in TIME.finditer(json.dumps(item))), default="")


def _shifted(value: Any, later: timedelta) -> Any:
    """With all times moved by the same distance."""
    if isinstance(value, dict):
        return {field: _shifted(one, later) for field, one in value.items()}
    if isinstance(value, list):
        return [_shifted(one, later) for one in value]
    if isinstance(value, str) and TIME.fullmatch(value):
        moved = datetime.fromisoformat(value.replace("Z", "+00:00")) + later
        return moved.isoformat().replace("+00:00", "Z")
    return value


def bystanders(chance: random.Random, now: str) -> list[Json]:
    """A namespace, nodes, a cohort with queues, work that runs and work that can't, all of no concern to the case."""
    made = [*_nodes(chance, now), *_queues(chance, now)]
    if chance.random() < 0.5:
        made.append(_workload("done", 1, now, admitted=True, finished=True))
    return made


def _meta(name: str, now: str, **more: Any) -> Json:
    return {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": now, **more}


def _nodes(chance: random.Random, now: str) -> list[Json]:
    """One that is closed, one that takes no pods at all, one that isn't ready."""
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    closed = {"unschedulable": True, "taints": [{"key": LONELY, "effect": "NoSchedule"}]}
    choices = [(closed, room, "True"), ({}, {**room, "pods": "0"}, "True"), (closed, room, "False")]
    labels = {"kubernetes.io/os": "linux", LONELY: "true"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": _meta(f"{LONELY}-{number}", now, labels=labels),
            "spec": spec,
            "status": {
                "capacity": room,
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}],
            },
        }
        for number, (spec, allocatable, ready) in enumerate(chance.sample(choices, chance.randrange(1, 4)))
    ]


def _queues(chance: random.Random, now: str) -> list[Json]:
    """In a cohort and with a flavor of their own."""
    quota = {"name": "cpu", "nominalQuota": "4"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": LONELY, "resources": [quota]}]}
    flavor_labels = {"nodeLabels": {LONELY: "nowhere"}}
    made: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": _meta(LONELY, now)},
        {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": _meta(LONELY, now),
            "spec": flavor_labels,
        },
    ]
    for name in (LONELY, "aaa-first", "zzz-last")[: chance.randrange(1, 4)]:
        spec = {"cohortName": LONELY, "namespaceSelector": {}, "resourceGroups": [group]}
        made.append({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": _meta(name, now), "spec": spec})
    local = {"clusterQueue": LONELY}
    named = _meta(LONELY, now, namespace=LONELY)
    made.append({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": named, "spec": local})
    made.append(_workload("runs", 2, now, admitted=True))
    made.append(_workload("too-large", 99, now))
    return made


def company(items: list[Json], chance: random.Random, now: str) -> list[Json]:
    """On the case's own nodes and in its own queues: what has ended, what is closed, what waits for a gate."""
    by_kind: dict[str, list[Json]] = {}
    for item in items:
        by_kind.setdefault(item["kind"], []).append(item)
    made = [_gated(now)]
    for node in by_kind.get("Node", ()):
        if chance.random() < 0.4:
            made.append(_over(node["metadata"]["name"], chance.choice(["Succeeded", "Failed"]), now))
    if by_kind.get("Node"):
        made.append(_tainted(chance.choice(by_kind["Node"]), now))
    if by_kind.get("ClusterQueue"):
        made += _idle_queue(chance.choice(by_kind["ClusterQueue"]), now)
    if by_kind.get("LocalQueue"):
        made.append(_inactive(chance.choice(by_kind["LocalQueue"]), now))
    return made


def _pod(name: str, phase: str, now: str, **spec: Any) -> Json:
    asked = {"cpu": "1", "nvidia.com/gpu": "1"}
    container = {"name": "c", "image": "pause", "resources": {"requests": asked, "limits": asked}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _meta(f"{LONELY}-{name}", now, namespace=LONELY),
        "spec": {"schedulerName": "other", "containers": [container], **spec},
        "status": {"phase": phase},
    }


def _gated(now: str) -> Json:
    return _pod("gated", "Pending", now, schedulingGates=[{"name": "bystander/gate"}], priority=1_000_000)


def _over(node: str, phase: str, now: str) -> Json:
    return _pod(f"over-{node}", phase, now, nodeName=node)


def _tainted(node: Json, now: str) -> Json:
    """Like one of the case's nodes, empty, and closed to whoever doesn't tolerate it."""
    labels = {**(node["metadata"].get("labels") or {}), "kubernetes.io/hostname": f"{LONELY}-tainted"}
    taints = [{"key": LONELY, "value": "x", "effect": "NoSchedule"}]
    name = _meta(f"{LONELY}-tainted", now, labels=labels)
    return {**deepcopy(node), "metadata": name, "spec": {"taints": taints}}


def _idle_queue(like: Json, now: str) -> list[Json]:
    """In the same cohort, without quota and without work."""
    cohort = like["spec"].get("cohortName") or like["spec"].get("cohort")
    groups = deepcopy(like["spec"].get("resourceGroups") or [])
    for resource in (one for group in groups for flavor in group["flavors"] for one in flavor["resources"]):
        resource["nominalQuota"] = "0"
        resource.pop("borrowingLimit", None)
        resource.pop("lendingLimit", None)
    if not cohort or not groups:
        return []
    spec = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups}
    return [{"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": _meta("idle", now), "spec": spec}]


def _inactive(queue: Json, now: str) -> Json:
    """Urgent, in the case's own queue, and switched off."""
    made = _workload("switched-off", 1, now)
    made["metadata"]["namespace"] = queue["metadata"]["namespace"]
    made["spec"] |= {"queueName": queue["metadata"]["name"], "priority": 1_000_000, "active": False}
    return made


def _workload(name: str, cpus: int, now: str, *, admitted: bool = False, finished: bool = False) -> Json:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(cpus)}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    made: Json = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": _meta(name, now, namespace=LONELY),
        "spec": {"queueName": LONELY, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    if admitted:
        part = {
            "name": "main",
            "count": 1,
            "flavors": {"cpu": LONELY},
            "resourceUsage": {"cpu": str(cpus)},
        }
        types = ["QuotaReserved", "Admitted", *(["Finished"] if finished else [])]
        conditions = [{"type": one, "status": "True", "lastTransitionTime": now} for one in types]
        admission = {"clusterQueue": LONELY, "podSetAssignments": [part]}
        made["status"] = {"admission": admission, "conditions": conditions}
    return made
