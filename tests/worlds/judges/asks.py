"""Judges asks: who opted in is never evicted for others, or since its node goes, before it has answered or its time is
over; no ask lasts longer than its terms; nobody stays on a node that goes; and an ask that is over leaves no trace.

Plans are judged on the objects of the moment, which the scheduler has seen somewhat earlier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from tests.worlds.judges.trees import annotations_of, is_deleted, key_of, node_of, seconds
from tests.worlds.judges.world_state import WorldState

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

ASK, ANSWER, OPT_IN = "windlass.dev/ask", "windlass.dev/ask-answer", "windlass.dev/on-preemption"
CERTAIN = (
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "windlass.dev/leaving",
)

ANNOUNCED = frozenset({"Priority", "InClusterQueue", "Defragmentation", "LeaveNotice"})
MAX_SECONDS = 600
STAY_SECONDS = 75.0
"""How long opted-in work may be on a node that goes: asked, its grace, evicted, terminated."""


class AskJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], count: Callable[[str], None]) -> None:
        self._state, self._wrong, self._count = state, wrong, count
        self._asked: set[str] = set()
        self._there_since: dict[tuple[str, str], float] = {}
        """Pod (UID) and node that goes → since when."""

    def on_plan(self, plan: Plan) -> None:
        for ask in plan.asks:
            if ask.id not in self._asked:
                self._asked.add(ask.id)
                self._count(f"asks: {ask.reason}")
            if ask.until - ask.asked_at > MAX_SECONDS:
                self._wrong(f"{ask.workload} is asked for {ask.until - ask.asked_at} s")
        for evict in plan.evicts:
            is_announced = evict.reason in ANNOUNCED or evict.reason.startswith("InCohort")
            pods = [pod for key in evict.pods if (pod := self._state.pods.get(key)) is not None]
            if is_announced and not evict.after and any(map(_opted_in, pods)):
                self._check_eviction(evict.workload, pods)

    def _check_eviction(self, workload: str, pods: list[Unstructured]) -> None:
        requests = [json.loads(text) for pod in pods if (text := annotations_of(pod).get(ASK))]
        if not requests:
            self._wrong(f"{workload} has opted in, and is evicted without having been asked")
            return
        is_over = any(seconds(request["until"]) <= self._state.clock() + 1 for request in requests)
        answers = [json.loads(text) for pod in pods if (text := annotations_of(pod).get(ANSWER))]
        answered = {answer["id"] for answer in answers} & {request["id"] for request in requests}
        self._count("evictions after an answer" if answered else "evictions at the deadline")
        if not is_over and not answered:
            self._wrong(f"{workload} is evicted before it has answered, and before {requests[0]['until']}")

    def disturb(self) -> None:
        self._there_since.clear()

    def check(self) -> None:
        now, there = self._state.clock(), set(self._on_leaving_nodes())
        self._there_since = {at: self._there_since.get(at, now) for at in there}
        for (uid, node), since in list(self._there_since.items()):
            if now - since > STAY_SECONDS:
                self._wrong(
                    f"the pod with uid {uid} has opted in, and is on {node}, which goes, for {now - since:.0f} s"
                )
                self._there_since[uid, node] = now + 10_000  # said once

    def _on_leaving_nodes(self) -> Iterable[tuple[str, str]]:
        leaving = {
            name
            for name, node in self._state.nodes.items()
            if any(taint["key"] in CERTAIN for taint in node["spec"].get("taints") or ())
        }
        for pod in self._state.placed_pods():
            # A budget may keep a service where it is.
            if node_of(pod) in leaving and _opted_in(pod) and not is_deleted(pod) and not _has_budget(pod):
                yield pod["metadata"]["uid"], node_of(pod)

    def check_at_rest(self) -> None:
        plan = self._state.plan
        # What the API server does not let go is evicted by every plan, and stays asked.
        known = {key for found in (*plan.asks, *plan.evicts) for key in found.pods} if plan is not None else set()
        for pod in self._state.placed_pods():
            if ASK in annotations_of(pod) and not is_deleted(pod) and key_of(pod) not in known:
                self._wrong(f"{key_of(pod)} has an ask that no plan knows of")


def _opted_in(pod: Unstructured) -> bool:
    return annotations_of(pod).get(OPT_IN) == "ask"


def _has_budget(pod: Unstructured) -> bool:
    return any(owner["kind"] in ("ReplicaSet", "StatefulSet") for owner in pod["metadata"].get("ownerReferences") or ())
