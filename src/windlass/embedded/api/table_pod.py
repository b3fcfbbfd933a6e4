"""The row of a pod in a Table: ready containers and the status word, with the rules of kubectl's printer.

Used by `tables`.
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
    """A finished pod's row is marked, so that kubectl can hide it."""
    phase = nested_value(pod, "status", "phase")
    if phase == "Succeeded":
        return [_completed("Succeeded", "The pod has completed successfully.")]
    if phase == "Failed":
        return [_completed("Failed", "The pod failed.")]
    return []


def _completed(reason: str, message: str) -> Unstructured:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


def _gates(spec: Unstructured, status: Unstructured) -> str:
    gates = [item.get("conditionType") for item in spec.get("readinessGates") or ()]
    if not gates:
        return NONE
    true = {item.get("type") for item in status.get("conditions") or () if item.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


class _Summary:
    """Counts and the status word, collected from the container statuses."""

    def __init__(self, pod: Unstructured, spec: Unstructured, status: Unstructured) -> None:
        self.restarts = 0
        self.restarted: str | None = None
        self.ready = 0
        self.total = len(spec.get("containers") or ())
        self._status = status
        self.reason = status.get("reason") or status.get("phase") or ""
        if any(_has(item, "PodScheduled", reason="SchedulingGated") for item in self._conditions()):
            self.reason = "SchedulingGated"
        sidecars = {item.get("name"): _is_sidecar(item) for item in spec.get("initContainers") or ()}
        self.total += sum(sidecars.values())
        initializing = self._count_init_containers(sidecars, len(spec.get("initContainers") or ()))
        if not initializing or any(_has(item, "Initialized", status="True") for item in self._conditions()):
            self._count_containers(sidecars)
        self._apply_deletion(pod, status)

    def _conditions(self) -> list[Unstructured]:
        return self._status.get("conditions") or []

    def _count_restarts(self, container: Unstructured) -> None:
        self.restarts += container.get("restartCount", 0)
        finished = nested_value(container, "lastState", "terminated", "finishedAt")
        if finished and (self.restarted is None or finished > self.restarted):
            self.restarted = finished

    def _count_init_containers(self, sidecars: dict[Any, bool], count: int) -> bool:
        """Whether the pod is still initializing; sets the status word if so."""
        for index, container in enumerate(self._status.get("initContainerStatuses") or ()):
            self._count_restarts(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and terminated.get("exitCode", 0) == 0:
                continue
            if sidecars.get(container.get("name")) and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated is not None:
                self.reason = "Init:" + _termination_reason(terminated)
            elif waiting.get("reason") not in (None, "", "PodInitializing"):
                self.reason = "Init:" + waiting["reason"]
            else:
                self.reason = f"Init:{index}/{count}"
            return True
        return False

    def _count_containers(self, sidecars: dict[Any, bool]) -> None:
        self.restarts, self.restarted = 0, None
        for container in self._status.get("initContainerStatuses") or ():
            if sidecars.get(container.get("name")):
                self._count_restarts(container)
        running, failed = False, ""
        for container in reversed(self._status.get("containerStatuses") or ()):
            self._count_restarts(container)
            state = container.get("state") or {}
            terminated = state.get("terminated")
            if (state.get("waiting") or {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif terminated is not None:
                self.reason = _termination_reason(terminated)
                failed = self.reason if terminated.get("exitCode", 0) else failed
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            ready = any(_has(condition, "Ready", status="True") for condition in self._conditions())
            self.reason = _reason_with_completed(running, ready, failed)

    def _apply_deletion(self, pod: Unstructured, status: Unstructured) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            return
        if status.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            self.reason = "Terminating"


def _reason_with_completed(running: bool, ready: bool, failed: str) -> str:
    """The status word if one container has completed, which depends on the others."""
    if running and ready:
        return "Running"
    if failed:
        return failed
    return "NotReady" if running else "Completed"


def _termination_reason(terminated: Unstructured) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_sidecar(container: Unstructured) -> bool:
    return container.get("restartPolicy") == "Always"


def _has(condition: Unstructured, kind: str, *, status: str = "", reason: str = "") -> bool:
    return (
        condition.get("type") == kind
        and (not status or condition.get("status") == status)
        and (not reason or condition.get("reason") == reason)
    )
