"""Judges gangs: which pods belong together, and that none runs partly beyond its grace.

A gang runs partly while some of its pods have a node and others wait for one; a Workload that is admitted also while
all of its pods wait. Extra members, above the minimum that a gang was submitted with, may wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.worlds.judges.trees import (
    admission,
    annotations_of,
    is_deleted,
    is_gated,
    labels_of,
    message,
    node_of,
    owner_uids,
)
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.unstructured import Unstructured

KUEUE_GROUP, KUEUE_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
MARKS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", KUEUE_GROUP)
NOTES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", KUEUE_GROUP)
ADMITTED = "Workload "
"""Before the key of an admitted Workload: its pods run, or it gives its quota back."""


def group_of(pod: Unstructured) -> str:
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    named = [
        native,
        *(labels_of(pod).get(key, "") for key in MARKS),
        *(annotations_of(pod).get(key, "") for key in NOTES),
    ]
    return next((name for name in named if name), "")


class GangJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], patience: float) -> None:
        self._state, self._wrong, self._patience = state, wrong, patience
        self._since: dict[str, float] = {}

    def check(self) -> None:
        """Called again and again, also where nothing changes."""
        now, partly = self._state.clock(), dict(self._partly_running())
        self._since = {name: self._since.get(name, now) for name in partly}
        for name, text in partly.items():
            if now - self._since[name] > self._patience:
                self._wrong(f"{name} runs partly for {now - self._since[name]:.0f} s: {text}")
                self._since[name] = now + 10_000  # said once

    def disturb(self) -> None:
        """Something happened to the scheduler or the network: its time begins again."""
        self._since.clear()

    def _partly_running(self) -> list[tuple[str, str]]:
        found = []
        for name, (pods, minimum) in self.gangs().items():
            here = [pod for pod in pods if not is_deleted(pod)]
            bound = [pod for pod in here if node_of(pod)]
            waiting = [pod for pod in here if not node_of(pod) and not is_gated(pod)]
            is_idle = name.startswith(ADMITTED) and not bound
            if waiting and len(bound) < minimum and (bound or is_idle):
                said = message(waiting[0], "PodScheduled")
                found.append((name, f"{len(bound)} bound, {len(waiting)} wait, minimum {minimum}: {said}"))
        return found

    def gangs(self) -> dict[str, tuple[list[Unstructured], int]]:
        """Gang → its pods that have not ended, and how many must run."""
        members: dict[str, list[Unstructured]] = defaultdict(list)
        for pod in self._state.alive_pods():
            if group_of(pod):
                members[f"group {group_of(pod)}"].append(pod)
        gangs = {name: (pods, self._minimum(pods)) for name, pods in members.items()}
        for key, tree in self._state.workloads.items():
            if admission(tree) and not is_finished(tree) and owner_uids(tree):
                pods = self._state.pods_of(tree)
                gangs[f"{ADMITTED}{key}"] = (pods, len(pods) if pods else 0)
        return gangs

    def _minimum(self, pods: list[Unstructured]) -> int:
        group = self._state.objects["podgroups"].get(f"{pods[0]['metadata']['namespace']}/{group_of(pods[0])}")
        if group is None:
            return int(annotations_of(pods[0]).get(KUEUE_SIZE, len(pods)))
        spec = group["spec"]
        return int(spec.get("minMember") or spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 1))
