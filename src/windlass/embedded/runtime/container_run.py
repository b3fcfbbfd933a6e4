"""One container of a pod: waiting, running or terminated, with its restarts. `pod_worker` changes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.controllers.objects import name_of, namespace_of, uid_of
from windlass.embedded.runtime.container_runtime import ContainerExit, ContainerLaunch, Process
from windlass.model.unstructured import Unstructured

INITIAL_BACKOFF, MAX_BACKOFF = 10.0, 300.0
BACKOFF_RESET_SECONDS = 600.0
"""A container that ran this long restarts without back-off, as in the kubelet."""
INIT, SIDECAR, MAIN = "init", "sidecar", "main"


@dataclass(slots=True)
class ContainerRun:
    spec: Unstructured
    role: str
    process: Process | None = None
    launch: ContainerLaunch | None = None
    started_at: float = 0.0
    ended: ContainerExit | None = None
    ended_at: float = 0.0
    last_state: Unstructured | None = None
    """The status field `lastState`."""
    restarts: int = 0
    image_ready_at: float | None = None
    """When its image has been pulled; None before the pull starts."""
    retry_at: float = 0.0
    backoff: float = 0.0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    in_backoff: bool = False
    """Whether it waits for its next start and its state is shown as waiting, not terminated."""
    pulled_message: str = ""
    """Event message for when its image has been pulled."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_done(self) -> bool:
        return self.process is None and self.ended is not None

    def mark_started(self, process: Process, now: float) -> None:
        if self.ended is not None:
            self.last_state = {"terminated": self._terminated()}
            self.restarts += 1
        self.process, self.started_at, self.ended = process, process.started_at or now, None
        self.in_backoff = False

    def mark_ended(self, ended: ContainerExit, now: float) -> None:
        self.process, self.ended = None, ended
        self.ended_at = ended.at if ended.at is not None else now
        ran = self.ended_at - self.started_at
        if ran >= BACKOFF_RESET_SECONDS:
            self.backoff = 0.0
        # The first restart is immediate; then the back-off, counted from the end, doubles.
        self.retry_at = self.ended_at + self.backoff
        self.backoff = min(MAX_BACKOFF, max(INITIAL_BACKOFF, self.backoff * 2))

    def state(self) -> Unstructured:
        if self.process is not None:
            return {"running": {"startedAt": format_time(self.started_at)}}
        if self.ended is not None and not self.in_backoff:
            return {"terminated": self._terminated()}
        reason, message = self.waiting
        return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}

    def status(self, pod: Unstructured, is_ready: bool) -> Unstructured:
        image = str(self.spec.get("image") or "")
        ran = self.process is not None or self.ended is not None or self.last_state is not None
        last = self.last_state or {}
        if self.in_backoff and self.ended is not None:
            last = {"terminated": self._terminated()}
        status: Unstructured = {
            "name": self.name,
            "image": image,
            "imageID": f"{image}@sha256:{_digest(image)}" if ran and image else "",
            "ready": is_ready,
            "started": self.process is not None,
            "restartCount": self.restarts,
            "state": self.state(),
            "lastState": last,
        }
        if ran:
            status["containerID"] = self.container_id(pod)
        return status

    def container_id(self, pod: Unstructured) -> str:
        return f"windlass://{_digest(f'{uid_of(pod)}/{self.name}/{self.restarts}')}"

    def _terminated(self) -> Unstructured:
        assert self.ended is not None
        ended = self.ended
        terminated: Unstructured = {
            "exitCode": ended.code,
            "reason": ended.reason or ("Completed" if ended.code == 0 else "Error"),
            "startedAt": format_time(self.started_at),
            "finishedAt": format_time(self.ended_at),
        }
        if ended.signal:
            terminated["signal"] = ended.signal
        if ended.message:
            terminated["message"] = ended.message
        return terminated

    def backoff_message(self, pod: Unstructured) -> str:
        container = f"container={self.name} pod={name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"
        backoff = max(0.0, self.retry_at - self.ended_at)
        duration = f"{int(backoff // 60)}m{int(backoff % 60)}s" if backoff >= 60 else f"{int(backoff)}s"
        return f"back-off {duration} restarting failed {container}"


def container_runs_of(pod: Unstructured) -> list[ContainerRun]:
    """In the order in which they start."""
    spec = pod["spec"]
    inits = [
        ContainerRun(container, SIDECAR if container.get("restartPolicy") == "Always" else INIT)
        for container in spec.get("initContainers") or ()
    ]
    mains = [ContainerRun(container, MAIN) for container in spec["containers"]]
    if inits:
        for run in (*inits, *mains):
            run.waiting = ("PodInitializing", "")
    return [*inits, *mains]


def restore_from_status(run: ContainerRun, status: Unstructured) -> Unstructured:
    """Restores a container from its status; returns its state."""
    state: Unstructured = status.get("state") or {}
    run.restarts = int(status.get("restartCount") or 0)
    run.last_state = status.get("lastState") or None
    end = state.get("terminated")
    if end:
        run.ended = ContainerExit(int(end.get("exitCode") or 0), end.get("reason", ""), end.get("message", ""))
        run.started_at, run.ended_at = parse_time(end.get("startedAt")), parse_time(end.get("finishedAt"))
    return state


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
