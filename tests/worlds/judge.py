"""What must never be wrong in a world, computed again from the objects alone, after every change of every object.

`play` feeds it with changes, plans and happenings, and calls `check` every few seconds; the promises themselves are in
`judges`, which share nothing with the engine. The scheduler sees the world a little late: what it does counts as wrong
only if it was wrong in every state of the last seconds.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.invariants.objects import QUEUE
from tests.worlds.judges.asks import AskJudge
from tests.worlds.judges.binds import BindJudge
from tests.worlds.judges.conservation import ConservationJudge
from tests.worlds.judges.evictions import EvictionJudge
from tests.worlds.judges.flavors import FlavorJudge
from tests.worlds.judges.gangs import GangJudge
from tests.worlds.judges.guarantees import GuaranteeJudge
from tests.worlds.judges.limits import LimitJudge
from tests.worlds.judges.lost_gpus import LostGpuJudge
from tests.worlds.judges.lost_members import LostMemberJudge
from tests.worlds.judges.reasons import ReasonJudge
from tests.worlds.judges.sizes import SizeJudge
from tests.worlds.judges.trees import (
    admission,
    annotations_of,
    condition,
    is_deleted,
    key_of,
    labels_of,
    message,
    node_of,
)
from tests.worlds.judges.twin import ALLOCATED
from tests.worlds.judges.world_state import QUEUE_KINDS, WorldState

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Report

MAX_PROBLEMS = 20
DUPLICATE, SPARE_CREATES = "conflict: POST workloads", 3


@dataclass(frozen=True)
class Patience:
    """How long something may be as it should not be, in seconds."""

    lag: float = 15.0
    """How late the scheduler may know of a change: watches lag, decisions take time, requests are sent again."""
    decision: float = 15.0
    """One decision: it is due every ten seconds at the latest."""
    reclaim: float = 90.0
    """Reclaiming quota: victims are chosen, stopped, and end."""
    gang: float = 200.0
    """A gang that has lost pods: the node is noticed to be gone, the grace passes, pods are evicted."""
    gain: float = 90.0
    """After an eviction, until the workload that it was for runs: victims have ended, binds were sent."""
    stable: float = 75.0
    """Since the last change, for what is said to be up to date."""
    recovery: float = 45.0
    """After the network was bad or a scheduler was lost: a lease expires, watches catch up, backoffs end."""


class Judge:
    def __init__(self, report: Report, patience: Patience | None = None) -> None:
        self._report, self.patience = report, patience or Patience()
        self.state = WorldState(time.time, self.patience.lag)
        self._binds = BindJudge(self.state, self.wrong)
        self._gangs = GangJudge(self.state, self.wrong, self.patience.gang)
        self._conservation = ConservationJudge(self.state, self.wrong, self._count, self.patience.decision)
        self.guarantees = GuaranteeJudge(self.state, self.wrong, self.patience.reclaim)
        self._evictions = EvictionJudge(self.state, self.wrong, self.patience.gain)
        self._members = LostMemberJudge(self.state, self.wrong, self._count, self.patience.decision * 2)
        self._lost_gpus = LostGpuJudge(self.state, self.wrong, self._count)
        self._flavors = FlavorJudge(self.state, self.wrong)
        self._sizes = SizeJudge(self.state, self.wrong)
        self.limits = LimitJudge(self.state, self.wrong)
        self._reasons = ReasonJudge(self.state, self.wrong, self._count)
        self._asks = AskJudge(self.state, self.wrong, self._count)
        self._changed_at = 0.0
        self.is_calm = True
        """Network, machine and scheduler are as they should be."""
        self.log: deque[str] = deque(maxlen=4000)

    def note(self, text: str) -> None:
        self.log.append(f"{time.time() % 100_000:10.3f} {text}")

    def wrong(self, text: str) -> None:
        self.note(f"WRONG: {text}")
        if len(self._report.problems) < MAX_PROBLEMS:
            self._report.problems.append(f"at {time.time() % 100_000:.3f}: {text}")

    def _count(self, what: str) -> None:
        self._report.counts[what] += 1

    # What is told

    def on_happening(self, name: str) -> None:
        self.note(name)
        self._evictions.on_happening()
        self._conservation.disturb()

    def _disturb(self) -> None:
        self._gangs.disturb()
        self._conservation.disturb()
        self.guarantees.disturb()
        self._members.disturb()
        self._asks.disturb()

    def on_plan(self, plan: Plan) -> None:
        self.state.plan = plan
        self._evictions.on_plan(plan)
        self._asks.on_plan(plan)
        for evict in plan.evicts:
            self.note(f"decided: evict {evict.workload} for {evict.for_workload or 'nobody'} ({evict.reason})")

    def on_change(self, resource: str, event: str, new: Unstructured, old: Unstructured | None) -> None:
        kind = resource.partition(".")[0]
        self.state.apply(kind, event, new)
        if kind in QUEUE_KINDS:
            self.state.count_usage()
            self._changed_at = time.time()
            if kind == "resourceflavors":
                self._flavors.on_flavor(event, new)
        elif kind == "workloads":
            self._on_workload(new, old)
        elif kind == "jobs":
            self._flavors.on_job(new)
        elif kind == "pods":
            self._on_pod(event, new, old)
        elif kind == "nodes" and (old is None or new["spec"] != old["spec"]):
            self._changed_at = time.time()

    def _on_workload(self, new: Unstructured, old: Unstructured | None) -> None:
        key, before, after = key_of(new), admission(old or {}), admission(new)
        if bool(before) != bool(after):
            self.note(f"{key} {'admitted' if after else 'no longer admitted'}")
            self._count("admissions" if after else "withdrawals")
            self._changed_at = time.time()
        if condition(new, "Evicted") == "True" != condition(old or {}, "Evicted"):
            self._count("evicted workloads")
            self.note(f"{key} evicted: {message(new, 'Evicted')}")
            self._evictions.on_evicted(key, message(new, "Evicted"))
            if self._evictions.reasons.get(key) == "GangBelowMinimum":
                self._lost_gpus.on_evicted(key, message(new, "Evicted"))
        self._check_quota(key)

    def _check_quota(self, key: str) -> None:
        before = self.state.count_usage()
        found: list[str] = []
        for books in self.state.recent_books():
            found = books.pushed_over(before, self.state.usage)
            if not found:
                return
        self.wrong(f"{key} pushes quota over: {'; '.join(found)}")

    def _on_pod(self, event: str, new: Unstructured, old: Unstructured | None) -> None:
        key, node, is_queued = key_of(new), node_of(new), QUEUE in labels_of(new)
        was = old or {"spec": {}, "metadata": {}, "status": {}}
        if event != "DELETED" and node and not node_of(was):
            self._count("binds")
            self.note(f"{key} bound to {node} {annotations_of(new).get('windlass.dev/devices', '')}")
            self._changed_at = time.time()
            self._binds.on_bind(new)
            self._flavors.on_bind(new)
            if is_queued:
                self._check_quota(key)
            return
        if event == "DELETED" or new["status"].get("phase") != was.get("status", {}).get("phase"):
            self._changed_at = time.time()
            self._check_rejection(key, new)
            self.state.count_usage()
        if node and annotations_of(new).get(ALLOCATED) != annotations_of(was).get(ALLOCATED) and event != "DELETED":
            self._binds.on_allocated(new)
        if is_deleted(new) and not is_deleted(was):
            self.note(f"{key} is deleted ({event}) {message(new, 'DisruptionTarget')}")
            self._changed_at = time.time()
            if condition(new, "DisruptionTarget") == "True":
                self._count("evicted pods")
                self._evictions.on_evicted(key, message(new, "DisruptionTarget"))
        if is_queued:
            self.state.count_usage()

    def _check_rejection(self, key: str, pod: Unstructured) -> None:
        status = pod["status"]
        if status.get("phase") != "Failed" or not status.get("reason"):
            return
        self._count(f"pods failed: {status['reason']}")
        rejected = status["reason"] == "UnexpectedAdmissionError" or status["reason"].startswith("OutOf")
        versions = [version["status"]["allocatable"] for version in self.state.versions_of_node(node_of(pod))]
        if rejected and all(version == versions[0] for version in versions):
            self.wrong(f"the kubelet of {node_of(pod)} rejects {key}: {status['reason']}: {status.get('message')}")

    # Every few seconds, and at rest

    def check(self) -> None:
        self._binds.check()
        if not self.is_calm:
            self._disturb()
            self._sizes.disturb()
            self.limits.disturb()
            return
        self._gangs.check()
        self._evictions.check()
        self._asks.check()
        self._members.check()
        self._conservation.check()
        self.guarantees.check()
        self._sizes.check()
        self.limits.check()

    def begin_quiet(self) -> None:
        self.on_happening("quiet from here on")

    def check_at_rest(self) -> None:
        self._evictions.check_at_rest()
        self._asks.check_at_rest()
        self._check_creates()
        if time.time() - self._changed_at > self.patience.stable:
            self._count("worlds that came to rest")
            self._reasons.check()

    def _check_creates(self) -> None:
        """A Workload is created twice only by another replica, or by one that has just started."""
        counts, happened = self._report.counts, self._report.happened
        excused = SPARE_CREATES * (happened["restart_scheduler"] + happened["cut_off_leader"])
        if counts[DUPLICATE] > excused:
            self.wrong(f"{counts[DUPLICATE]} Workloads were created again")
