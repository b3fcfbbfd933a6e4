"""`kubectl logs`: which container is meant, and which of its lines are returned. Used by both runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from windlass.embedded.api.timestamps import format_micro_time, parse_time
from windlass.embedded.controllers.objects import name_of
from windlass.embedded.runtime.kubelet_api import KubeletApiError, LogRequest
from windlass.model.unstructured import Unstructured

Line = tuple[float, bytes]
"""Time of writing, and the line with its newline."""
POLL_SECONDS = 0.1
Run = TypeVar("Run")


def select_container(pod: Unstructured, name: str) -> Unstructured:
    """The container that a request names, or the only one."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    if not name:
        if len(spec["containers"]) == 1 and not spec.get("initContainers"):
            return dict(spec["containers"][0])
        names = " ".join(str(candidate["name"]) for candidate in spec["containers"])
        init_names = " ".join(str(candidate["name"]) for candidate in spec.get("initContainers") or ())
        extra = f" or one of the init containers: [{init_names}]" if init_names else ""
        message = f"a container name must be specified for pod {name_of(pod)}, choose one of: [{names}]{extra}"
        raise KubeletApiError(400, "BadRequest", message)
    for container in containers:
        if container["name"] == name:
            return dict(container)
    raise KubeletApiError(400, "BadRequest", f"container {name} is not valid for pod {name_of(pod)}")


def select_run(runs: Sequence[Run], pod: Unstructured, container: str, previous: bool) -> Run:
    """The current or the previous run of a container."""
    if not runs:
        raise not_started(pod, container)
    if previous and len(runs) < 2:
        raise no_previous(pod, container)
    return runs[0] if previous else runs[-1]


def not_started(pod: Unstructured, container: str) -> KubeletApiError:
    status = pod.get("status") or {}
    listed = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = next(
        (
            (container_status.get("state") or {}).get("waiting") or {}
            for container_status in listed
            if container_status["name"] == container
        ),
        {},
    )
    reason = waiting.get("reason") or "ContainerCreating"
    message = f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {reason}'
    return KubeletApiError(400, "BadRequest", message)


def no_previous(pod: Unstructured, container: str) -> KubeletApiError:
    message = f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
    return KubeletApiError(400, "BadRequest", message)


async def stream_lines(
    read: Callable[[], tuple[Sequence[Line], bool]], request: LogRequest, now: float
) -> AsyncIterator[bytes]:
    """`read` returns all lines so far, and whether there will be no more."""
    lines, ended = read()
    since = parse_time(request.since_time) if request.since_time else 0.0
    if request.since_seconds is not None:
        since = max(since, now - request.since_seconds)
    shown = len(lines)
    chosen = [line for line in lines if line[0] >= since]
    if request.tail_lines is not None:
        chosen = chosen[len(chosen) - min(request.tail_lines, len(chosen)) :]
    bytes_left = request.limit_bytes
    while True:
        text = b"".join(_format_line(line, request.timestamps) for line in chosen)
        if bytes_left is not None:
            text = text[:bytes_left]
            bytes_left -= len(text)
        if text:
            yield text
        if not request.follow or ended or bytes_left == 0:
            return
        await asyncio.sleep(POLL_SECONDS)
        lines, ended = read()
        chosen, shown = list(lines[shown:]), len(lines)


def _format_line(line: Line, with_time: bool) -> bytes:
    return f"{format_micro_time(line[0])} ".encode() + line[1] if with_time else line[1]
