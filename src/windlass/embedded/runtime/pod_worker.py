"""The life of one pod on its node: images, init containers, sidecars, restarts, back-off, the end.

`runtime.kubelet` makes a `PodWorker` for each pod that it accepts and calls `step` whenever something may have changed;
`step` moves containers on and says when to look again. What Kubernetes calls the pod's status comes from
`runtime.podstatus`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windlass.embedded.controllers.objects import name_of, namespace_of, parse_time, uid_of
from windlass.embedded.runtime.container_run import (
    INIT,
    MAIN,
    SIDECAR,
    ContainerRun,
    container_runs_of,
    restore_from_status,
)
from windlass.embedded.runtime.container_runtime import (
    ContainerExit,
    ContainerLaunch,
    ContainerRuntime,
    ContainerStartError,
)
from windlass.model.unstructured import Unstructured

RETRY_SECONDS = 10.0
"""How long after a container that couldn't start it is tried again."""
KILLED = ContainerExit(137)
EventCallback = Callable[[str, str, str, str], None]
"""Type, reason and message of an event, and the container that it is about."""


class PodWorker:
    __slots__ = (
        "_containers",
        "_launch",
        "_start_seconds",
        "_stop_at",
        "_stopping",
        "_tell",
        "container_runs",
        "failure",
        "pod",
        "started_at",
        "uid",
    )

    def __init__(
        self,
        pod: Unstructured,
        container_runtime: ContainerRuntime,
        make_launch: Callable[[Unstructured, ContainerRun], ContainerLaunch],
        record_event: EventCallback,
        start_seconds: float = 0.0,
    ) -> None:
        self.pod = pod
        self.uid = uid_of(pod)
        self.container_runs = container_runs_of(pod)
        self.failure: tuple[str, str] | None = None
        """Reason and message, where the pod as a whole has failed."""
        self.started_at = 0.0
        self._containers, self._launch, self._tell = container_runtime, make_launch, record_event
        self._start_seconds = start_seconds
        self._stopping = False
        self._stop_at = 0.0

    @property
    def restart_policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy") or "Always")

    @property
    def main_containers(self) -> list[ContainerRun]:
        return [box for box in self.container_runs if box.role == MAIN]

    @property
    def is_finished(self) -> bool:
        """Nothing runs and nothing will."""
        if any(box.is_running for box in self.container_runs):
            return False
        is_going = bool(self.pod["metadata"].get("deletionTimestamp"))
        return self.failure is not None or is_going or self._has_come_to_its_end()

    def restore(self, now: float) -> None:
        """Take up a pod that ran before this process started."""
        status = self.pod.get("status") or {}
        listed = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        known = {each["name"]: each for each in listed}
        self.started_at = parse_time(status.get("startTime")) or now
        for box in self.container_runs:
            state = restore_from_status(box, known.get(box.name) or {})
            if not state.get("running"):
                continue
            started = parse_time(state["running"].get("startedAt"))
            box.launch = self._launch(self.pod, box)
            process = self._containers.resume(box.launch, started, now)
            box.started_at = started
            if process is not None:
                box.process = process
            else:
                box.mark_ended(ContainerExit(137, "ContainerStatusUnknown", "the runtime was restarted"), now)

    def sync(self, pod: Unstructured, now: float) -> float | None:
        """Move everything on as far as it goes now; returns when to look again."""
        self.pod = pod
        self.started_at = self.started_at or now
        for box in self.container_runs:
            if box.launch is not None:
                box.launch.pod = pod
            if box.process is not None and (ended := box.process.poll(now)) is not None:
                box.mark_ended(ended, now)
        if self.is_finished:
            return None
        if pod["metadata"].get("deletionTimestamp") or self.failure is not None:
            self._stop(now)
        elif not self._past_deadline(now):
            self._advance(now)
        return min(self._moments(now), default=None)

    def fail(self, reason: str, message: str, now: float, ended: ContainerExit = KILLED) -> None:
        """The pod as a whole fails; what runs is killed, and ends as `ended` says."""
        self.failure = (reason, message)
        self.kill_all(ended, now)

    def kill_all(self, ended: ContainerExit, now: float) -> None:
        """Every running container ends this way at once."""
        for box in self.container_runs:
            if box.process is not None:
                box.process.kill(now)
                box.mark_ended(ended, now)

    def _past_deadline(self, now: float) -> bool:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or now < self.started_at + int(limit):
            return False
        self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", now)
        return True

    def _advance(self, now: float) -> None:
        for box in self.container_runs:
            if box.role == MAIN:
                continue
            if box.role == INIT and box.is_done and box.ended is not None and box.ended.code == 0:
                continue
            if box.role == SIDECAR and box.is_running:
                continue
            if box.is_running or not self._start_again(box, now):
                return
            if box.role == INIT:
                return
        if self._has_come_to_its_end():
            self._stop(now)
            return
        for box in self.main_containers:
            if not box.is_running:
                self._start_again(box, now)

    def _has_come_to_its_end(self) -> bool:
        inits = [box for box in self.container_runs if box.role == INIT]
        if self.restart_policy == "Never" and any(
            box.is_done and box.ended and box.ended.code for box in inits
        ):
            return True
        return all(box.is_done and not self._restarts(box) for box in self.main_containers)

    def _restarts(self, box: ContainerRun) -> bool:
        if box.role == SIDECAR:
            return True
        if box.ended is None:
            return True
        if box.role == INIT:
            return box.ended.code != 0 and self.restart_policy != "Never"
        return self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and box.ended.code != 0)

    def _start_again(self, box: ContainerRun, now: float) -> bool:
        """Start a container that should run, if its time has come; whether it runs."""
        if box.ended is not None and not self._restarts(box):
            return False
        if now < box.retry_at:
            self._back_off(box)
            return False
        if not self._has_image(box, now):
            return False
        try:
            box.launch = self._launch(self.pod, box)
            process = self._containers.start(box.launch, now)
        except ContainerStartError as error:
            if box.waiting != (error.reason, error.message):
                self._tell("Warning", "Failed", f"Error: {error.message}", box.name)
            box.waiting, box.retry_at = (error.reason, error.message), now + RETRY_SECONDS
            box.in_backoff = box.ended is not None
            return False
        box.mark_started(process, now)
        self._tell("Normal", "Created", f"Created container: {box.name}", box.name)
        self._tell("Normal", "Started", f"Started container {box.name}", box.name)
        return True

    def _back_off(self, box: ContainerRun) -> None:
        if box.ended is None or box.in_backoff:
            return
        box.in_backoff = True
        box.waiting = ("CrashLoopBackOff", box.backoff_message(self.pod))
        where = f"{name_of(self.pod)}_{namespace_of(self.pod)}({self.uid})"
        said = f"Back-off restarting failed container {box.name} in pod {where}"
        self._tell("Warning", "BackOff", said, box.name)

    def _has_image(self, box: ContainerRun, now: float) -> bool:
        if not self._containers.pulls_images:
            return True
        image = str(box.spec.get("image") or "")
        if box.image_ready_at is None:
            seconds_left = self._containers.pull_seconds(str(self.pod["spec"]["nodeName"]), box.spec)
            if seconds_left is None:
                if image:
                    said = f'Container image "{image}" already present on machine'
                    self._tell("Normal", "Pulled", said, box.name)
                box.image_ready_at = now + self._start_seconds
            else:
                self._tell("Normal", "Pulling", f'Pulling image "{image}"', box.name)
                box.image_ready_at = now + seconds_left + self._start_seconds
                took = f"{seconds_left:.3f}".rstrip("0").rstrip(".") or "0"
                box.pulled_message = (
                    f'Successfully pulled image "{image}" in {took}s ({took}s including waiting).'
                )
        if now < box.image_ready_at:
            return False
        if box.pulled_message:
            self._tell("Normal", "Pulled", box.pulled_message, box.name)
            box.pulled_message = ""
        return True

    def _stop(self, now: float) -> None:
        """SIGTERM to everything, SIGKILL after the grace period."""
        deletion = self.pod["metadata"].get("deletionTimestamp")
        ends = parse_time(deletion) if deletion else self._stop_by(now)
        for box in self._running():
            assert box.process is not None
            if not self._stopping:
                self._tell("Normal", "Killing", f"Stopping container {box.name}", box.name)
                box.process.terminate(now)
            if now >= ends:
                box.process.kill(now)
            ended = box.process.poll(now)
            if ended is not None:
                box.mark_ended(ended, now)
        self._stopping = True

    def _stop_by(self, now: float) -> float:
        grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        if not self._stopping:
            self._stop_at = now + (30.0 if grace is None else float(grace))
        return self._stop_at

    def _running(self) -> Sequence[ContainerRun]:
        return [box for box in self.container_runs if box.is_running]

    def _moments(self, now: float) -> Iterator[float]:
        for box in self.container_runs:
            if box.process is not None:
                at = box.process.next_poll_at()
                if at is not None:
                    yield at
            elif box.ended is None or self._restarts(box):
                yield from (at for at in (box.image_ready_at, box.retry_at) if at is not None and at > now)
        if self._stopping and self._running():
            deletion = self.pod["metadata"].get("deletionTimestamp")
            yield parse_time(deletion) if deletion else self._stop_at
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is not None and not self.is_finished:
            yield self.started_at + int(limit)
