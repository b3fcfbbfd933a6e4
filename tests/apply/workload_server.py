"""A server of Workloads for tests of admission: writes wait until the test answers them, and changes wait until the
test lets the watch show them. The scheduler's own cache, sinks and engine run on it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import deque
from typing import Any

import msgspec

from windlass.apply.executor import PlanExecutor
from windlass.cluster.delta import Deleted, Delta, Put
from windlass.engine import EngineCache, decide
from windlass.kube.errors import Conflict, NotFound, ServerUnavailable, Status, decode_answer
from windlass.kube.events import EventRecorder
from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

GPU = "nvidia.com/gpu"
API = f"{KUEUE_API_GROUP}/v1beta2"
NOW = 1_767_226_000
WORKLOADS = Resource("Workload", "workloads", KUEUE_API_GROUP, "v1beta2")
JOBS = Resource("Job", "jobs", "batch", "v1")


class Waiting:
    """A request that the server has not answered."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class WorkloadServer:
    def __init__(self) -> None:
        self.objects: dict[str, Unstructured] = {}
        self.version = 100
        self.unseen: deque[Delta] = deque()
        """Changes that the watch has not shown."""
        self.waiting: list[Waiting] = []
        self.sent: list[Request] = []
        """Writes to anything but Workloads; they are not carried out."""

    async def read(self, request: Request, kind: Any) -> Any:
        return decode_answer(await self.send(request), kind, request.path)

    async def send(self, request: Request, allowed: Any = None) -> bytes:
        if request.method == "GET":
            name = dict(request.query)["fieldSelector"].partition("=")[2]
            found = [one for key, one in self.objects.items() if key.endswith(f"/{name}")]
            return json.dumps({"items": found}).encode()
        if "workloads" not in request.path:
            self.sent.append(request)
            return b"{}"
        one = Waiting(request)
        self.waiting.append(one)
        return await one.answer

    # What tests do

    def put(self, tree: Unstructured) -> None:
        tree["metadata"]["resourceVersion"] = str(self._next())
        self.objects[_key(tree)] = tree
        self.unseen.append(Put(decode_object(copy.deepcopy(tree))))

    def delete(self, key: str) -> None:
        del self.objects[key]
        self._next()
        self.unseen.append(Deleted("Workload", key, KUEUE_API_GROUP))

    def apply(self, one: Waiting) -> bytes | Exception:
        """Carries a write out; returns what its answer would be."""
        parts = one.request.path.split("/")
        key = f"{parts[parts.index('namespaces') + 1]}/{parts[parts.index('workloads') + 1]}"
        known = self.objects.get(key)
        if known is None:
            return NotFound(404, Status(message=f"{key} not found"))
        wanted = one.request.body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != known["metadata"]["resourceVersion"]:
            return Conflict(409, Status(message="the object has been modified"))
        changed = copy.deepcopy(known)
        status = {**changed.get("status", {}), **one.request.body["status"]}
        changed["status"] = {name: value for name, value in status.items() if value is not None}
        self.put(changed)
        return msgspec.json.encode(changed)

    def answer(self, one: Waiting, result: bytes | Exception) -> None:
        if one in self.waiting:
            self.waiting.remove(one)
        if isinstance(result, Exception):
            one.answer.set_exception(result)
        else:
            one.answer.set_result(result)

    def answer_all(self) -> None:
        for one in [*self.waiting]:
            self.answer(one, self.apply(one))

    def lose(self, one: Waiting, *, applied: bool) -> None:
        """No answer comes, whether it was carried out or not."""
        if applied:
            self.apply(one)
        self.answer(one, ServerUnavailable("connection reset"))

    def finish(self, key: str) -> None:
        tree = copy.deepcopy(self.objects[key])
        done = {"type": "Finished", "status": "True", "reason": "Succeeded"}
        status = tree.setdefault("status", {})
        status["conditions"] = [*status.get("conditions", ()), done]
        self.put(tree)

    def admitted(self) -> set[str]:
        """Workloads that hold quota."""
        return {key for key, one in self.objects.items() if _holds(one)}

    def reserved(self) -> int:
        """GPUs that are given away."""
        parts = [self.objects[key]["status"]["admission"]["podSetAssignments"] for key in self.admitted()]
        return sum(int(part["resourceUsage"][GPU]) for sets in parts for part in sets)

    def _next(self) -> int:
        self.version += 1
        return self.version


class Scheduling:
    """The scheduler's cache, sinks and engine, a step at a time."""

    def __init__(self, server: WorkloadServer, *objects: Unstructured) -> None:
        self.server, self._memo = server, EngineCache()
        client: Any = server
        self.world = SchedulerCache(SchedulerOptions())
        self.world.push([Put(decode_object(one)) for one in objects])
        self.carrier = PlanExecutor(client, self.world, EventRecorder(client, "test"), Metrics(), lambda: True, _served)
        self.now = NOW

    async def decide(self) -> Plan:
        self.now += 1
        self.world.flush(self.now)
        snapshot = self.world.store.snapshot(self.now)
        plan = decide(snapshot, engine_config(Settings()), self.now, self._memo)
        self.carrier.execute(plan, snapshot)
        await turn()
        return plan

    def watch(self, changes: int | None = None) -> None:
        """The next changes, or all of them."""
        server = self.server
        for _ in range(len(server.unseen) if changes is None else changes):
            self.world.push([server.unseen.popleft()])


async def turn() -> None:
    """Everything that can go on does."""
    for _ in range(20):
        await asyncio.sleep(0)


def workload(
    name: str,
    gpus: int,
    queue: str = "a",
    *,
    priority: int = 0,
    created: int = 0,
    owner: str = "",
    status: Unstructured | None = None,
) -> Unstructured:
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    template = {"spec": {"schedulerName": "windlass", "containers": [container]}}
    sets = [{"name": "main", "count": 1, "template": template}]
    stamp = f"2026-01-01T00:{created // 60:02d}:{created % 60:02d}Z"
    meta: Unstructured = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": stamp}
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
        meta["ownerReferences"] = [reference]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": meta,
        "spec": {"queueName": queue, "priority": priority, "active": True, "podSets": sets},
        "status": status or {},
    }


def job(name: str) -> Unstructured:
    """One that runs."""
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}
    labels = {"kueue.x-k8s.io/queue-name": "a"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels},
        "spec": {"suspend": False, "parallelism": 1, "template": template},
    }


def cohort(*quotas: int, preemption: Unstructured | None = None) -> list[Unstructured]:
    """Queues a, b, … of one cohort with so many GPUs each, and more than enough nodes."""
    found: list[Unstructured] = [_object("ResourceFlavor", "any")]
    for name, quota in zip("abcdefgh", quotas, strict=False):
        flavor = {"name": "any", "resources": [{"name": GPU, "nominalQuota": quota}]}
        spec = {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
            "preemption": preemption or {},
        }
        found += [_object("ClusterQueue", name, spec), _object("LocalQueue", name, {"clusterQueue": name})]
    room = {GPU: "8", "cpu": "64", "memory": "256Gi", "pods": "100"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    nodes = 1 + 2 * sum(quotas) // 8
    return found + [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": status} for i in range(nodes)
    ]


def _object(kind: str, name: str, spec: Unstructured | None = None) -> Unstructured:
    namespace = {"namespace": "ns"} if kind == "LocalQueue" else {}
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **namespace}, "spec": spec or {}}


def _key(tree: Unstructured) -> str:
    return f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"


def _holds(tree: Unstructured) -> bool:
    status = tree.get("status", {})
    is_over = any(one["type"] == "Finished" for one in status.get("conditions", ()))
    return bool(status.get("admission")) and not is_over


def _served(kind: str, group: str) -> Resource | None:
    return {"Workload": WORKLOADS, "Job": JOBS}.get(kind)
