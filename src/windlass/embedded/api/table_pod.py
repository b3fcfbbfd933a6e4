"""The row of a pod in a Table: how many containers are ready, and the one word that says how it is doing.

Fed by `api.tables`. What the word is in which case is the behaviour that kubectl users know.
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.timestamps import age
from windlass.model.unstructured import Unstructured

NONE = "<none>"


def pod_cells(pod: Unstructured, now: float) -> list[Any]:
    """The cells in the order of the columns."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    summary = _Summary(pod, spec, status)
    restarts = str(summary.restarts)
    if summary.restarts and summary.restarted:
        restarts = f"{summary.restarts} ({age(summary.restarted, now)} ago)"
    addresses = status.get("podIPs") or ()
    return [
        pod["metadata"].get("name", ""),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        restarts,
        age(pod["metadata"].get("creationTimestamp"), now),
        (addresses[0].get("ip") if addresses else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def pod_conditions(pod: Unstructured) -> list[Unstructured]:
    """A finished pod's row is marked, so that kubectl can leave it out where it has always done so."""
    phase = nested_value(pod, "status", "phase")
    if phase == "Succeeded":
        return [_completed("Succeeded", "The pod has completed successfully.")]
    if phase == "Failed":
        return [_completed("Failed", "The pod failed.")]
    return []


def _completed(reason: str, message: str) -> Unstructured:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


def _gates(spec: Unstructured, status: Unstructured) -> str:
    gates = [each.get("conditionType") for each in spec.get("readinessGates") or ()]
    if not gates:
        return NONE
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


class _Summary:
    """Counts and the word, gathered while walking over the container statuses."""

    def __init__(self, pod: Unstructured, spec: Unstructured, status: Unstructured) -> None:
        self.restarts = 0
        self.restarted: str | None = None
        self.ready = 0
        self.total = len(spec.get("containers") or ())
        self._status = status
        self.reason = status.get("reason") or status.get("phase") or ""
        if any(_is(each, "PodScheduled", reason="SchedulingGated") for each in self._conditions()):
            self.reason = "SchedulingGated"
        beside = {each.get("name"): _stays(each) for each in spec.get("initContainers") or ()}
        self.total += sum(beside.values())
        initializing = self._initialization(beside, len(spec.get("initContainers") or ()))
        if not initializing or any(_is(each, "Initialized", status="True") for each in self._conditions()):
            self._running(beside)
        self._ending(pod, status)

    def _conditions(self) -> list[Unstructured]:
        return self._status.get("conditions") or []

    def _count(self, container: Unstructured) -> None:
        self.restarts += container.get("restartCount", 0)
        finished = nested_value(container, "lastState", "terminated", "finishedAt")
        if finished and (self.restarted is None or finished > self.restarted):
            self.restarted = finished

    def _initialization(self, beside: dict[Any, bool], count: int) -> bool:
        """Whether the pod still initialises, and with which word."""
        for index, container in enumerate(self._status.get("initContainerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting") or {}
            if ended is not None and ended.get("exitCode", 0) == 0:
                continue
            if beside.get(container.get("name")) and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if ended is not None:
                self.reason = "Init:" + _how_it_ended(ended)
            elif waiting.get("reason") not in (None, "", "PodInitializing"):
                self.reason = "Init:" + waiting["reason"]
            else:
                self.reason = f"Init:{index}/{count}"
            return True
        return False

    def _running(self, beside: dict[Any, bool]) -> None:
        self.restarts, self.restarted = 0, None
        for container in self._status.get("initContainerStatuses") or ():
            if beside.get(container.get("name")):
                self._count(container)
        running, failed = False, ""
        for container in reversed(self._status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            ended = state.get("terminated")
            if (state.get("waiting") or {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif ended is not None:
                self.reason = _how_it_ended(ended)
                failed = self.reason if ended.get("exitCode", 0) else failed
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            ready = any(_is(each, "Ready", status="True") for each in self._conditions())
            self.reason = _of_several(running, ready, failed)

    def _ending(self, pod: Unstructured, status: Unstructured) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            return
        if status.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            self.reason = "Terminating"


def _of_several(running: bool, ready: bool, failed: str) -> str:
    """One container is done: what that means for the pod depends on the others."""
    if running and ready:
        return "Running"
    if failed:
        return failed
    return "NotReady" if running else "Completed"


def _how_it_ended(ended: Unstructured) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _stays(container: Unstructured) -> bool:
    return container.get("restartPolicy") == "Always"


def _is(condition: Unstructured, kind: str, *, status: str = "", reason: str = "") -> bool:
    return (
        condition.get("type") == kind
        and (not status or condition.get("status") == status)
        and (not reason or condition.get("reason") == reason)
    )
