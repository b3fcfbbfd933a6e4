"""Small clusters with running pods of several priorities, and an exhaustive search for the cheapest victims.

A case is drawn as plain numbers; `objects` makes Kubernetes objects of it for the engine, `cheapest` tries every set of
victims and every placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

import msgspec

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.planner import plan_objects

START = "2026-01-01T00:00:00Z"
EPOCH = 1767225600
HOUR = 3600
GROUP, TOTAL = "scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-total-count"


class Running(NamedTuple):
    """A unit: one pod, or a gang with a pod on each of several nodes."""

    name: str
    gpus: int
    nodes: tuple[int, ...]
    priority: int
    age: int
    """Seconds that it runs."""
    app: str = ""
    """Label by which budgets cover it."""

    @property
    def cost(self) -> tuple[int, int]:
        """Milli-GPU seconds, and pods."""
        return 1000 * self.gpus * len(self.nodes) * self.age, len(self.nodes)


class ClusterCase(NamedTuple):
    nodes: tuple[int, ...]
    """GPUs of each."""
    running: tuple[Running, ...]
    waiting: tuple[int, ...]
    """GPUs of each pod that waits, as one gang where there are several."""
    priority: int
    policy: str = "PreemptLowerPriority"
    budgets: tuple[tuple[str, int], ...] = ()
    """(app, number of its pods that may be evicted)."""

    def permits(self, evicted: Sequence[Running]) -> bool:
        """Whether the API server would evict these: none that two budgets cover, and no more than each allows."""
        apps = [app for app, _ in self.budgets]
        return all(apps.count(unit.app) < 2 for unit in evicted) and all(
            sum(len(unit.nodes) for unit in evicted if unit.app == app) <= allowed for app, allowed in self.budgets
        )

    def free(self, evicted: frozenset[str] = frozenset()) -> list[int]:
        left = list(self.nodes)
        for unit in self.running:
            for node in unit.nodes if unit.name not in evicted else ():
                left[node] -= unit.gpus
        return left


Cost = list[tuple[int, tuple[int, int]]]


def cost_of(units: list[Running]) -> Cost:
    """(priority, (lost milli-GPU-seconds, pods)), the highest priority first."""
    found = []
    for priority in sorted({unit.priority for unit in units}, reverse=True):
        parts = [unit.cost for unit in units if unit.priority == priority]
        found.append((priority, (sum(lost for lost, _ in parts), sum(pods for _, pods in parts))))
    return found


def fits(free: list[int], waiting: tuple[int, ...]) -> bool:
    """Whether all pods fit, by trying every placement."""
    if not waiting:
        return True
    size, rest = waiting[0], waiting[1:]
    for node in {have: at for at, have in enumerate(free)}.values():
        if free[node] >= size and fits([have - size * (at == node) for at, have in enumerate(free)], rest):
            return True
    return False


def cheapest(case: ClusterCase) -> list[Running] | None:
    """The cheapest set of victims; empty where the pods fit without any, None where no set helps."""
    waiting = tuple(sorted(case.waiting, reverse=True))
    if fits(case.free(), waiting):
        return []
    lower = [unit for unit in case.running if unit.priority < case.priority]
    found: list[Running] | None = None
    for count in range(1, len(lower) + 1 if case.policy != "Never" else 0):
        for chosen in combinations(lower, count):
            better = case.permits(chosen) and (found is None or cost_of(list(chosen)) < cost_of(found))
            if better and fits(case.free(frozenset(unit.name for unit in chosen)), waiting):
                found = list(chosen)
    return found


def draw(rng: Random, most_waiting: int = 1) -> ClusterCase:
    nodes = tuple(rng.choice([2, 4]) for _ in range(rng.randint(1, 4)))
    left = list(nodes)
    running = []
    for number in range(rng.randint(1, 7)):
        gpus = rng.randint(1, 3)
        members = rng.choice([1, 1, 1, 2])
        places = [node for node in range(len(nodes)) if left[node] >= gpus]
        if len(places) < members:
            continue
        chosen = tuple(rng.sample(places, members))
        for node in chosen:
            left[node] -= gpus
        running.append(Running(f"r{number}", gpus, chosen, rng.choice([0, 0, 1, 5, 10]), rng.randint(1, 9) * 600))
    size = rng.randint(1, 4)
    waiting = tuple([size] * rng.randint(1, most_waiting))
    return ClusterCase(nodes, tuple(running), waiting, rng.choice([1, 5, 5, 10]))


def with_budgets(case: ClusterCase, rng: Random) -> ClusterCase:
    """The case with apps and budgets; a unit may be covered by two budgets."""
    running = tuple(unit._replace(app=rng.choice(["", "a", "b"])) for unit in case.running)
    budgets = tuple((app, rng.randint(0, 2)) for app in rng.choices(["a", "b"], k=rng.randint(1, 3)))
    return case._replace(running=running, budgets=budgets)


def pod(name: str, gpus: int, priority: int, node: str = "", age: int = 0, group: str = "", **spec: Any) -> Any:
    stamp = f"2026-01-01T{(9 * HOUR - age) // HOUR:02d}:{(9 * HOUR - age) % HOUR // 60:02d}:00Z"
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": stamp}
    if group:
        meta["labels"] = {GROUP: group}
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    body = {"containers": [{"name": "main", "resources": resources}], "priority": priority, **spec}
    status = {"phase": "Pending"}
    if node:
        body["nodeName"], status = node, {"phase": "Running", "startTime": stamp}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body, "status": status})


def gpu_node(name: str, gpus: int, **labels: str) -> Any:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"capacity": amounts, "allocatable": amounts}
    meta = {"name": name, "labels": labels}
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})


def pod_group(name: str, members: int) -> Any:
    meta = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": START}
    spec = {"minMember": members}
    tree = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": spec}
    return decode_object(tree)


NOW = EPOCH + 9 * HOUR


def objects(case: ClusterCase) -> list[Any]:
    created = [gpu_node(f"n{at}", gpus) for at, gpus in enumerate(case.nodes)]
    for number, (app, allowed) in enumerate(case.budgets):
        tree = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"b{number}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": allowed},
        }
        created.append(decode_object(tree))
    for unit in case.running:
        group = unit.name if len(unit.nodes) > 1 else ""
        created += [pod_group(group, len(unit.nodes))] if group else []
        for number, node in enumerate(unit.nodes):
            name = f"{unit.name}-{number}" if group else unit.name
            made = pod(name, unit.gpus, unit.priority, f"n{node}", unit.age, group)
            labels = {**made.metadata.labels, **({"app": unit.app} if unit.app else {})}
            created.append(
                msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))
            )
    group = "urgent" if len(case.waiting) > 1 else ""
    created += [pod_group(group, len(case.waiting))] if group else []
    for number, gpus in enumerate(case.waiting):
        name = f"urgent-{number}" if group else "urgent"
        created.append(pod(name, gpus, case.priority, group=group, preemptionPolicy=case.policy))
    return created


def plan_of(case: ClusterCase, settings: Settings | None = None) -> Plan:
    return plan_objects(objects(case), settings or Settings(), NOW)[0]


def victims(case: ClusterCase, plan: Plan) -> list[Running]:
    names = {evict.workload.partition("/")[2] for evict in plan.evicts}
    return [unit for unit in case.running if unit.name in names]
