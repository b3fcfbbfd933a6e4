"""Judges the sizes of admitted Jobs: what runs has quota, what has quota runs or is about to, and a Job that wants more
than it has quota for is queued again, unless it is elastic.

Jobs are made larger and smaller while they run. `Judge` calls `check` every few seconds while nothing is disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.worlds.judges.trees import admission, annotations_of, condition, is_deleted, key_of, node_of, owner_uids
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.names.kueue import ELASTIC_JOB_ANNOTATION
from windlass.model.unstructured import Unstructured

PATIENCE_SECONDS = 60.0


class SizeJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None]) -> None:
        self._state, self._wrong = state, wrong
        self._since: dict[str, float] = {}
        """What is wrong → since when."""

    def disturb(self) -> None:
        self._since.clear()

    def check(self) -> None:
        now = self._state.clock()
        self._since = {text: self._since.get(text, now) for text in self._wrong_sizes()}
        for text, since in self._since.items():
            if now - since > PATIENCE_SECONDS:
                self._wrong(f"{text} for {now - since:.0f} s")
                self._since[text] = now + 10_000  # said once

    def _wrong_sizes(self) -> Iterator[str]:
        for job in self._state.objects["jobs"].values():
            tree = self._workload_of(job)
            if tree is None or job["spec"].get("suspend") or is_deleted(job):
                continue
            held = _held_pods(tree)
            present = self._state.pods_of(tree)
            pods = [pod for pod in present if not is_deleted(pod)]
            bound = sum(1 for pod in pods if node_of(pod))
            wanted = _wanted_pods(job)
            needs = max(wanted, len(present))  # those that are deleted hold it until their kubelet has ended them
            if bound > held:
                yield f"{key_of(tree)} runs {bound} pods with quota for {held}"
            elif wanted > held and ELASTIC_JOB_ANNOTATION not in annotations_of(job):
                yield f"{key_of(tree)} wants {wanted} pods and goes on with quota for {held}"
            elif held > needs:
                yield f"{key_of(tree)} holds quota for {held} pods and needs {needs}"

    def _workload_of(self, job: Unstructured) -> Unstructured | None:
        """Its Workload, where that is admitted and goes on."""
        for tree in self._state.workloads.values():
            if job["metadata"]["uid"] in owner_uids(tree):
                goes_on = admission(tree) and not is_finished(tree) and condition(tree, "Evicted") != "True"
                return tree if goes_on else None
        return None


def _held_pods(tree: Unstructured) -> int:
    """As in Kueue: the admitted pods, but no more than are asked for and not given back."""
    parts = {part["name"]: part["count"] for part in admission(tree)["podSetAssignments"]}  # type: ignore[index]
    given_back = {part["name"]: part["count"] for part in tree["status"].get("reclaimablePods") or ()}
    return sum(
        min(parts.get(pod_set["name"], 0), pod_set["count"] - given_back.get(pod_set["name"], 0))
        for pod_set in tree["spec"]["podSets"]
    )


def _wanted_pods(job: Unstructured) -> int:
    spec, succeeded = job["spec"], (job.get("status") or {}).get("succeeded", 0)
    parallelism = int(spec.get("parallelism", 1))
    return parallelism if spec.get("completions") is None else min(parallelism, int(spec["completions"]) - succeeded)
