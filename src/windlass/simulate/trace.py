"""A trace, independent of its source: nodes, and jobs with arrival times.

The readers in `simulate.traces` and the generators in `simulate.synthetic` return one; `simulate.trace_run` plays it.
"""

from __future__ import annotations

import msgspec

from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp

FIRST_ARRIVAL = 1_000_000_000
"""Creation time of the first job's pods, in seconds since 1970."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """Pods that arrive, start and end together; a single pod is a job of one."""

    name: str
    pods: tuple[Pod, ...]
    arrival: int = 0
    """Seconds since the start of the trace."""
    duration: int | None = None
    """Seconds from start to end; None if it never ends."""


def with_creation_times(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs with creation times a second apart in the order of arrival, so that the engine decides in this order
    among pods of equal priority."""
    return tuple(
        msgspec.structs.replace(job, pods=tuple(_with_creation_time(pod, number) for pod in job.pods))
        for number, job in enumerate(jobs)
    )


def _with_creation_time(pod: Pod, seconds: int) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=format_timestamp(FIRST_ARRIVAL + seconds))
    return msgspec.structs.replace(pod, metadata=metadata)


class ShapeCount(msgspec.Struct, frozen=True):
    """One class of a declared workload mix: the number of pods of the same shape as `pod`."""

    pod: Pod
    count: int


class Trace(msgspec.Struct, frozen=True):
    name: str
    """As on the command line, such as `openb/default`."""
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """In arrival order."""
    retry: bool
    """True: jobs that don't fit wait. False: they are dropped."""
    ranks: tuple[int, ...] = ()
    """Tie-break rank of each node of `nodes` (lowest wins); if empty, by name."""
    declared: tuple[ShapeCount, ...] = ()
    """The declared workload mix, if the trace has one: every distinct shape with its count."""
    seed: int | None = None
    order: str = "recorded"
    """Origin of the arrival order: `published`, `generated` or `recorded`."""
