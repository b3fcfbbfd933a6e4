"""Judges gangs: which pods belong together, and that none runs partly beyond its grace.

A gang runs partly while some of its pods have a node and others wait for one; a Workload that is admitted also while
all of its pods wait. Extra members, above the minimum that a gang was submitted with, may wait. Its time begins again
when another member is lost. What must not be preempted is not stopped either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

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
from tests.worlds.judges.world_state import WorldState, is_finished, is_guarded

from windlass.model.unstructured import Unstructured

KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
SIZES = ("kueue.x-k8s.io/pod-group-total-count",)
"""Annotations with the size of a group that is no object."""
MARKS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", KUEUE_GROUP)
NOTES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name", KUEUE_GROUP)
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


def group_minimum(state: WorldState, pods: list[Unstructured]) -> int:
    """How many pods of the group must run together."""
    group = state.objects["podgroups"].get(f"{pods[0]['metadata']['namespace']}/{group_of(pods[0])}")
    if group is None:
        notes = annotations_of(pods[0])
        return int(next((notes[size] for size in SIZES if size in notes), len(pods)))
    spec = group["spec"]
    return int(spec.get("minMember") or spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 1))


class GangJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], patience: float) -> None:
        self._state, self._wrong, self._patience = state, wrong, patience
        self._since: dict[str, float] = {}
        self._waiting: dict[str, set[str]] = {}
        """Gang → members (UID) that waited when it was looked at last."""

    def check(self) -> None:
        """Called again and again, also where nothing changes."""
        now, partly = self._state.clock(), {name: (uids, text) for name, uids, text in self._partly_running()}
        for name, (uids, text) in partly.items():
            if not uids <= self._waiting.get(name, set()):
                self._since[name] = now
            late = now - self._since.setdefault(name, now)
            if late > self._patience:
                self._wrong(f"{name} runs partly for {late:.0f} s: {text}")
                self._since[name] = now + 10_000  # said once
        self._waiting = {name: uids for name, (uids, _) in partly.items()}

    def disturb(self) -> None:
        """Something happened to the scheduler or the network: its time begins again."""
        self._since.clear()

    def _partly_running(self) -> Iterator[tuple[str, set[str], str]]:
        """Gangs, with the members that wait and what is said about one of them."""
        for name, (pods, minimum) in self.gangs().items():
            here = [pod for pod in pods if not is_deleted(pod)]
            bound = [pod for pod in here if node_of(pod)]
            waiting = [pod for pod in here if not node_of(pod) and not is_gated(pod)]
            is_idle = name.startswith(ADMITTED) and not bound
            if waiting and len(bound) < minimum and (bound or is_idle):
                said = message(waiting[0], "PodScheduled")
                uids = {pod["metadata"]["uid"] for pod in waiting}
                yield name, uids, f"{len(bound)} bound, {len(waiting)} wait, minimum {minimum}: {said}"

    def gangs(self) -> dict[str, tuple[list[Unstructured], int]]:
        """Gang → its pods that have not ended, and how many must run."""
        members: dict[str, list[Unstructured]] = defaultdict(list)
        for pod in self._state.alive_pods():
            if group_of(pod):
                members[f"group {group_of(pod)}"].append(pod)
        gangs = {
            name: (pods, group_minimum(self._state, pods))
            for name, pods in members.items()
            if not any(is_guarded(self._state, pod) for pod in pods)
        }
        for key, tree in self._state.workloads.items():
            if admission(tree) and not is_finished(tree) and owner_uids(tree) and not is_guarded(self._state, tree):
                pods = self._state.pods_of(tree)
                gangs[f"{ADMITTED}{key}"] = (pods, len(pods) if pods else 0)
        return gangs
