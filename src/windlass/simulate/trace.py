"""A trace, whatever it was read from: nodes, and jobs that arrive.

The readers in `simulate.traces` and the generator in `simulate.synthetic` make one; `simulate.trace_run` plays it.
"""

from __future__ import annotations

import msgspec

from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp

FIRST_ARRIVAL = 1_000_000_000
"""Creation time of the first job's pods, in seconds since 1970."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """Pods that arrive, start together and end together. A lone pod is a job of one."""

    name: str
    pods: tuple[Pod, ...]
    arrival: int = 0
    """Seconds since the start of the trace."""
    duration: int | None = None
    """Seconds from start to end; None means that it stays."""


def with_creation_times(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs with creation times on their pods, a second apart in the order of arrival: as in any cluster, the older
    goes first among equals."""
    return tuple(
        msgspec.structs.replace(job, pods=tuple(_created(pod, number) for pod in job.pods))
        for number, job in enumerate(jobs)
    )


def _created(pod: Pod, seconds: int) -> Pod:
    metadata = msgspec.structs.replace(
        pod.metadata, creation_timestamp=format_timestamp(FIRST_ARRIVAL + seconds)
    )
    return msgspec.structs.replace(pod, metadata=metadata)


class ShapeCount(msgspec.Struct, frozen=True):
    """One class of a declared workload mix: how many pods of the list look like `pod`."""

    pod: Pod
    count: int


class Trace(msgspec.Struct, frozen=True):
    name: str
    """As the user names it, `openb/default`."""
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """In arrival order."""
    retry: bool
    """True: what does not fit waits and is tried again, first in first out. False: it is dropped."""
    ranks: tuple[int, ...] = ()
    """Tie-break rank of each node of `nodes` (lowest wins); empty means by name."""
    declared: tuple[ShapeCount, ...] = ()
    """The declared class mix, if the trace has one: every distinct shape of the whole list with its count."""
    seed: int | None = None
    order: str = "recorded"
    """Where the arrival order comes from: `published`, `generated` or `recorded`."""
