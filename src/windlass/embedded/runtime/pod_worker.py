"""Runs one pod on its node: image pulls, init containers, sidecars, restarts, back-off, termination.

`kubelet` creates a `PodWorker` per admitted pod and calls `sync` whenever something may have changed; `sync`
advances the containers and returns when to sync again. `pod_status` derives the pod's status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windlass.embedded.api.timestamps import parse_time
from windlass.embedded.controllers.objects import name_of, namespace_of, uid_of
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
"""Delay before a failed container start is retried."""
KILLED = ContainerExit(137)
EventCallback = Callable[[str, str, str, str], None]
"""(type, reason, message, container) of an event."""


class PodWorker:
    __slots__ = (
        *("_make_launch", "_record_event", "_runtime", "_start_seconds", "_stop_at", "_stopping"),
        *("container_runs", "failure", "pod", "started_at", "uid"),
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
        """Reason and message if the pod as a whole has failed."""
        self.started_at = 0.0
        self._runtime, self._make_launch, self._record_event = container_runtime, make_launch, record_event
        self._start_seconds = start_seconds
        self._stopping = False
        self._stop_at = 0.0

    @property
    def restart_policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy") or "Always")

    @property
    def main_containers(self) -> list[ContainerRun]:
        return [run for run in self.container_runs if run.role == MAIN]

    @property
    def is_finished(self) -> bool:
        """Nothing runs and nothing will."""
        if any(run.is_running for run in self.container_runs):
            return False
        is_deleting = bool(self.pod["metadata"].get("deletionTimestamp"))
        return self.failure is not None or is_deleting or self._is_complete()

    def restore(self, now: float) -> None:
        """Takes over a pod that ran before this process started."""
        status = self.pod.get("status") or {}
        listed = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        known = {container_status["name"]: container_status for container_status in listed}
        self.started_at = parse_time(status.get("startTime")) or now
        for run in self.container_runs:
            state = restore_from_status(run, known.get(run.name) or {})
            if not state.get("running"):
                continue
            started = parse_time(state["running"].get("startedAt"))
            run.started_at = started
            try:
                run.launch = self._make_launch(self.pod, run)
                process = self._runtime.resume(run.launch, started, now)
            except ContainerStartError:  # what it was started with is not there any more
                process = None
            if process is not None:
                run.process = process
            else:
                run.mark_ended(ContainerExit(137, "ContainerStatusUnknown", "the runtime was restarted"), now)

    def sync(self, pod: Unstructured, now: float) -> float | None:
        """Advances everything as far as possible now; returns when to sync again."""
        self.pod = pod
        self.started_at = self.started_at or now
        for run in self.container_runs:
            if run.launch is not None:
                run.launch.pod = pod
            if run.process is not None and (ended := run.process.poll(now)) is not None:
                run.mark_ended(ended, now)
        if self.is_finished:
            return None
        if pod["metadata"].get("deletionTimestamp") or self.failure is not None:
            self._stop(now)
        elif not self._past_deadline(now):
            self._advance(now)
        return min(self._sync_times(now), default=None)

    def fail(self, reason: str, message: str, now: float, ended: ContainerExit = KILLED) -> None:
        """Fails the whole pod; running containers are killed and end as `ended`."""
        self.failure = (reason, message)
        self.kill_all(ended, now)

    def kill_all(self, ended: ContainerExit, now: float) -> None:
        """Ends every running container at once as `ended`."""
        for run in self.container_runs:
            if run.process is not None:
                run.process.kill(now)
                run.mark_ended(ended, now)

    def _past_deadline(self, now: float) -> bool:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or now < self.started_at + int(limit):
            return False
        self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", now)
        return True

    def _advance(self, now: float) -> None:
        for run in self.container_runs:
            if run.role == MAIN:
                continue
            if run.role == INIT and run.is_done and run.ended is not None and run.ended.code == 0:
                continue
            if run.role == SIDECAR and run.is_running:
                continue
            if run.is_running or not self._start_if_due(run, now):
                return
            if run.role == INIT:
                return
        if self._is_complete():
            self._stop(now)
            return
        for run in self.main_containers:
            if not run.is_running:
                self._start_if_due(run, now)

    def _is_complete(self) -> bool:
        inits = [run for run in self.container_runs if run.role == INIT]
        if self.restart_policy == "Never" and any(run.is_done and run.ended and run.ended.code for run in inits):
            return True
        return all(run.is_done and not self._will_restart(run) for run in self.main_containers)

    def _will_restart(self, run: ContainerRun) -> bool:
        if run.role == SIDECAR:
            return True
        if run.ended is None:
            return True
        if run.role == INIT:
            return run.ended.code != 0 and self.restart_policy != "Never"
        return self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and run.ended.code != 0)

    def _start_if_due(self, run: ContainerRun, now: float) -> bool:
        """Starts a container that should run, after its back-off and image pull; returns whether it runs."""
        if run.ended is not None and not self._will_restart(run):
            return False
        if now < run.retry_at:
            self._back_off(run)
            return False
        if not self._has_image(run, now):
            return False
        try:
            run.launch = self._make_launch(self.pod, run)
            process = self._runtime.start(run.launch, now)
        except ContainerStartError as error:
            if run.waiting != (error.reason, error.message):
                self._record_event("Warning", "Failed", f"Error: {error.message}", run.name)
            run.waiting, run.retry_at = (error.reason, error.message), now + RETRY_SECONDS
            run.in_backoff = run.ended is not None
            return False
        run.mark_started(process, now)
        self._record_event("Normal", "Created", f"Created container: {run.name}", run.name)
        self._record_event("Normal", "Started", f"Started container {run.name}", run.name)
        return True

    def _back_off(self, run: ContainerRun) -> None:
        if run.ended is None or run.in_backoff:
            return
        run.in_backoff = True
        run.waiting = ("CrashLoopBackOff", run.backoff_message(self.pod))
        pod = f"{name_of(self.pod)}_{namespace_of(self.pod)}({self.uid})"
        message = f"Back-off restarting failed container {run.name} in pod {pod}"
        self._record_event("Warning", "BackOff", message, run.name)

    def _has_image(self, run: ContainerRun, now: float) -> bool:
        if not self._runtime.pulls_images:
            return True
        image = str(run.spec.get("image") or "")
        if run.image_ready_at is None:
            seconds_left = self._runtime.pull_seconds(str(self.pod["spec"]["nodeName"]), run.spec)
            if seconds_left is None:
                if image:
                    message = f'Container image "{image}" already present on machine'
                    self._record_event("Normal", "Pulled", message, run.name)
                run.image_ready_at = now + self._start_seconds
            else:
                self._record_event("Normal", "Pulling", f'Pulling image "{image}"', run.name)
                run.image_ready_at = now + seconds_left + self._start_seconds
                duration = f"{seconds_left:.3f}".rstrip("0").rstrip(".") or "0"
                run.pulled_message = (
                    f'Successfully pulled image "{image}" in {duration}s ({duration}s including waiting).'
                )
        if now < run.image_ready_at:
            return False
        if run.pulled_message:
            self._record_event("Normal", "Pulled", run.pulled_message, run.name)
            run.pulled_message = ""
        return True

    def _stop(self, now: float) -> None:
        """SIGTERM to everything, SIGKILL after the grace period."""
        deletion = self.pod["metadata"].get("deletionTimestamp")
        kill_at = parse_time(deletion) if deletion else self._kill_at(now)
        for run in self._running():
            assert run.process is not None
            if not self._stopping:
                self._record_event("Normal", "Killing", f"Stopping container {run.name}", run.name)
                run.process.terminate(now)
            if now >= kill_at:
                run.process.kill(now)
            ended = run.process.poll(now)
            if ended is not None:
                run.mark_ended(ended, now)
        self._stopping = True

    def _kill_at(self, now: float) -> float:
        grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        if not self._stopping:
            self._stop_at = now + (30.0 if grace is None else float(grace))
        return self._stop_at

    def _running(self) -> Sequence[ContainerRun]:
        return [run for run in self.container_runs if run.is_running]

    def _sync_times(self, now: float) -> Iterator[float]:
        for run in self.container_runs:
            if run.process is not None:
                at = run.process.next_poll_at()
                if at is not None:
                    yield at
            elif run.ended is None or self._will_restart(run):
                yield from (at for at in (run.image_ready_at, run.retry_at) if at is not None and at > now)
        if self._stopping and self._running():
            deletion = self.pod["metadata"].get("deletionTimestamp")
            yield parse_time(deletion) if deletion else self._stop_at
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is not None and not self.is_finished:
            yield self.started_at + int(limit)
