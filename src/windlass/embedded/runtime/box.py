"""One container of a pod: waiting, running or ended, and how it came to that. `runtime.podrun` moves it on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from windlass.embedded.controllers.objects import Tree, name_of, namespace_of, seconds, timestamp, uid_of
from windlass.embedded.runtime.containers import Exit, Launch, Process

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
FORGIVEN_SECONDS = 600.0
"""A container that ran so long starts with a clean sheet."""
INIT, SIDECAR, MAIN = "init", "sidecar", "main"


@dataclass(slots=True)
class Box:
    spec: Tree
    role: str
    process: Process | None = None
    launch: Launch | None = None
    started_at: float = 0.0
    ended: Exit | None = None
    ended_at: float = 0.0
    last: Tree | None = None
    """`lastState`."""
    restarts: int = 0
    ready_at: float | None = None
    """When its image is there; None until it is being pulled."""
    not_before: float = 0.0
    pause: float = 0.0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    told_back_off: bool = False
    """Whether it waits for its next start, and no longer shows how it ended."""
    told_pull: str = ""
    """What is to be said once its image is there."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_done(self) -> bool:
        return self.process is None and self.ended is not None

    def begin(self, process: Process, now: float) -> None:
        if self.ended is not None:
            self.last = {"terminated": self._terminated()}
            self.restarts += 1
        self.process, self.started_at, self.ended = process, process.started_at or now, None
        self.told_back_off = False

    def end(self, ended: Exit, now: float) -> None:
        self.process, self.ended = None, ended
        self.ended_at = ended.at if ended.at is not None else now
        ran = self.ended_at - self.started_at
        if ran >= FORGIVEN_SECONDS:
            self.pause = 0.0
        # The first restart is at once; from then on it is counted from the end, and doubles.
        self.not_before = self.ended_at + self.pause
        self.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, self.pause * 2))

    def state(self) -> Tree:
        if self.process is not None:
            return {"running": {"startedAt": timestamp(self.started_at)}}
        if self.ended is not None and not self.told_back_off:
            return {"terminated": self._terminated()}
        reason, message = self.waiting
        return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}

    def status(self, pod: Tree, is_ready: bool) -> Tree:
        image = str(self.spec.get("image") or "")
        ran = self.process is not None or self.ended is not None or self.last is not None
        last = self.last or {}
        if self.told_back_off and self.ended is not None:
            last = {"terminated": self._terminated()}
        status: Tree = {
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

    def container_id(self, pod: Tree) -> str:
        return f"windlass://{_digest(f'{uid_of(pod)}/{self.name}/{self.restarts}')}"

    def _terminated(self) -> Tree:
        assert self.ended is not None
        ended = self.ended
        terminated: Tree = {
            "exitCode": ended.code,
            "reason": ended.reason or ("Completed" if ended.code == 0 else "Error"),
            "startedAt": timestamp(self.started_at),
            "finishedAt": timestamp(self.ended_at),
        }
        if ended.signal:
            terminated["signal"] = ended.signal
        if ended.message:
            terminated["message"] = ended.message
        return terminated

    def back_off_words(self, pod: Tree) -> str:
        where = f"container={self.name} pod={name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"
        pause = max(0.0, self.not_before - self.ended_at)
        length = f"{int(pause // 60)}m{int(pause % 60)}s" if pause >= 60 else f"{int(pause)}s"
        return f"back-off {length} restarting failed {where}"


def boxes_of(pod: Tree) -> list[Box]:
    """In the order in which they start."""
    spec = pod["spec"]
    first = [
        Box(each, SIDECAR if each.get("restartPolicy") == "Always" else INIT)
        for each in spec.get("initContainers") or ()
    ]
    mains = [Box(each, MAIN) for each in spec["containers"]]
    if first:
        for box in (*first, *mains):
            box.waiting = ("PodInitializing", "")
    return [*first, *mains]


def restored(box: Box, known: Tree) -> Tree:
    """Take over what a container's status says; returns its state."""
    state: Tree = known.get("state") or {}
    box.restarts = int(known.get("restartCount") or 0)
    box.last = known.get("lastState") or None
    ended = state.get("terminated")
    if ended:
        box.ended = Exit(int(ended.get("exitCode") or 0), ended.get("reason", ""), ended.get("message", ""))
        box.started_at, box.ended_at = seconds(ended.get("startedAt")), seconds(ended.get("finishedAt"))
    return state


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
