"""`kubectl logs`: which container is meant, and which of its lines are shown. Both runtimes answer through this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from windlass.embedded.controllers.objects import format_micro_time, name_of, parse_time
from windlass.embedded.runtime.kubelet_api import KubeletApiError, LogRequest
from windlass.model.unstructured import Unstructured

Line = tuple[float, bytes]
"""When it was written, and the line with its end."""
POLL_SECONDS = 0.1
Run = TypeVar("Run")


def select_container(pod: Unstructured, name: str) -> Unstructured:
    """The container that a request names, or the only one."""
    spec = pod["spec"]
    everything = [*(spec.get("initContainers") or ()), *spec["containers"]]
    if not name:
        if len(spec["containers"]) == 1 and not spec.get("initContainers"):
            return dict(spec["containers"][0])
        names = " ".join(str(each["name"]) for each in spec["containers"])
        more = " ".join(str(each["name"]) for each in spec.get("initContainers") or ())
        extra = f" or one of the init containers: [{more}]" if more else ""
        said = f"a container name must be specified for pod {name_of(pod)}, choose one of: [{names}]{extra}"
        raise KubeletApiError(400, "BadRequest", said)
    for container in everything:
        if container["name"] == name:
            return dict(container)
    raise KubeletApiError(400, "BadRequest", f"container {name} is not valid for pod {name_of(pod)}")


def select_run(runs: Sequence[Run], pod: Unstructured, container: str, previous: bool) -> Run:
    """Of a container's last two runs the one whose lines are asked for."""
    if not runs:
        raise not_started(pod, container)
    if previous and len(runs) < 2:
        raise no_previous(pod, container)
    return runs[0] if previous else runs[-1]


def not_started(pod: Unstructured, container: str) -> KubeletApiError:
    status = pod.get("status") or {}
    listed = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = next(
        ((each.get("state") or {}).get("waiting") or {} for each in listed if each["name"] == container), {}
    )
    why = waiting.get("reason") or "ContainerCreating"
    said = f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {why}'
    return KubeletApiError(400, "BadRequest", said)


def no_previous(pod: Unstructured, container: str) -> KubeletApiError:
    said = f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
    return KubeletApiError(400, "BadRequest", said)


async def stream_lines(
    read: Callable[[], tuple[Sequence[Line], bool]], request: LogRequest, now: float
) -> AsyncIterator[bytes]:
    """`read` gives all lines so far, and whether there will be no more."""
    lines, ended = read()
    since = parse_time(request.since_time) if request.since_time else 0.0
    if request.since_seconds is not None:
        since = max(since, now - request.since_seconds)
    shown = len(lines)
    chosen = [line for line in lines if line[0] >= since]
    if request.tail_lines is not None:
        chosen = chosen[len(chosen) - min(request.tail_lines, len(chosen)) :]
    left = request.limit_bytes
    while True:
        text = b"".join(_written(line, request.timestamps) for line in chosen)
        if left is not None:
            text = text[:left]
            left -= len(text)
        if text:
            yield text
        if not request.follow or ended or left == 0:
            return
        await asyncio.sleep(POLL_SECONDS)
        lines, ended = read()
        chosen, shown = list(lines[shown:]), len(lines)


def _written(line: Line, with_time: bool) -> bytes:
    return f"{format_micro_time(line[0])} ".encode() + line[1] if with_time else line[1]
