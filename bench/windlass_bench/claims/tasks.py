"""Work on a simulated cluster: what a task is, and the record of what happened to it.

The claims make tasks; `task_cluster` starts, stops and ends them, and keeps a `TaskRecord` of each, from which the
claims read their measures. Time is counted until the horizon only: afterwards the cluster runs empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.shape import ShapeRegistry
from windlass.model.decision import Bind
from windlass.model.pod import Pod


class Task(msgspec.Struct, frozen=True):
    """Pods that start together and, if one of them is lost, start again together."""

    name: str
    pods: tuple[Pod, ...]
    arrival: int
    seconds: int | None
    """Of work; None: it runs for ever."""
    kind: str = ""
    checkpoint: int = 0
    """Seconds of work between two checkpoints; 0: it writes none, and loses everything when it is stopped."""
    restart: int = 0
    """Seconds from a start after the first until it works again."""


class TaskRecord:
    """What became of a task so far."""

    def __init__(self, task: Task, gpus: float, number: int = 0) -> None:
        self.task, self.gpus = task, gpus
        self.number, self.pods = number, task.pods
        self.unbound_pods = self.starts = 0
        """Kept by the cluster: pods that are not bound, and how often it was started."""
        self.first_start: int | None = None
        self.started: int | None = None
        """Of the run that goes on now."""
        self.ended: int | None = None
        self.binds: tuple[Bind, ...] = ()
        """Where its pods are."""
        self.stops: list[tuple[int, str]] = []
        """(when, why): evictions and failures."""
        self.checkpointed_seconds = 0
        """Seconds of work that no stop can undo any more."""
        self.lost = self.restarting = self.held = 0
        """Seconds of work that were undone, of restarts, and of holding its GPUs, all until the horizon."""
        self.waited = 0
        """Seconds without GPUs, before the first start and after stops."""
        self._waiting_since = task.arrival
        self._overhead = 0
        self._asked_checkpoint: int | None = None
        """When this run wrote a checkpoint because it was asked to."""

    @property
    def wait(self) -> int | None:
        """Until the first start; None if there was none."""
        return None if self.first_start is None else self.first_start - self.task.arrival

    def start(self, now: int, binds: tuple[Bind, ...]) -> int | None:
        """Returns when it will have ended, if nothing stops it; None for what runs for ever."""
        self._overhead = 0 if self.first_start is None else self.task.restart
        if self.first_start is None:
            self.first_start = now
        self.started, self.binds, self._asked_checkpoint = now, binds, None
        self.waited += now - self._waiting_since
        return (
            None if self.task.seconds is None else now + self._overhead + self.task.seconds - self.checkpointed_seconds
        )

    def last_checkpoint(self, now: int) -> int | None:
        """When this run wrote its last checkpoint; None if it has not."""
        if self.started is None or not self.task.checkpoint:
            return self._asked_checkpoint
        worked = now - self.started - self._overhead
        written = worked // self.task.checkpoint * self.task.checkpoint
        by_itself = self.started + self._overhead + written if written > 0 else None
        return max((at for at in (by_itself, self._asked_checkpoint) if at is not None), default=None)

    def write_checkpoint(self, began: int) -> None:
        """It has answered an ask, with the state of the moment when it began to write."""
        if self.started is not None and began > self.started + self._overhead:
            self._asked_checkpoint = began

    def at_risk(self, now: int) -> int:
        """Seconds of work that a stop now would undo."""
        if self.started is None:
            return 0
        since = self.last_checkpoint(now)
        return max(0, now - (self.started + self._overhead if since is None else since))

    def stop(self, now: int, why: str, horizon: int) -> None:
        """It gives up its GPUs and goes on later from its last checkpoint."""
        assert self.started is not None, self.task.name
        undone = self.at_risk(now)
        self._close(now, horizon)
        worked = max(0, now - self.started - self._overhead)
        self.checkpointed_seconds += worked - undone
        if now <= horizon:
            self.lost += undone
            self.stops.append((now, why))
        self.started, self.binds, self._waiting_since = None, (), now

    def end(self, now: int, horizon: int) -> None:
        self._close(now, horizon)
        self.ended, self.started, self.binds = now, None, ()

    def close(self, horizon: int) -> None:
        """The account is closed at the horizon, whatever still runs or waits."""
        if self.started is not None:
            self._close(horizon, horizon)
        elif self.ended is None:
            self.waited += max(0, horizon - self._waiting_since)

    def _close(self, now: int, horizon: int) -> None:
        assert self.started is not None, self.task.name
        self.held += max(0, min(now, horizon) - min(self.started, horizon))
        self.restarting += max(0, min(now, self.started + self._overhead, horizon) - min(self.started, horizon))


def waits_of(records: Sequence[TaskRecord], kind: str, horizon: int) -> list[float]:
    """Until the first start; whoever still waits at the end has waited until then at least."""
    return [
        float(horizon - record.task.arrival if record.wait is None else record.wait)
        for record in records
        if record.task.kind == kind
    ]


def gpus_of_tasks(tasks: tuple[Task, ...]) -> list[float]:
    """GPUs that each task holds while it runs; a MIG instance counts by nothing, since it is a part of a GPU."""
    book = ShapeRegistry()
    return [sum(book.intern(pod)[0].gpu_milli for pod in task.pods) / 1000 for task in tasks]
