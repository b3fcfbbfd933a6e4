"""The interface between a kubelet and what runs containers.

`pod_worker` uses it; `simulated_containers` and `process.container_runtime` implement it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from windlass.model.unstructured import Unstructured


class ContainerExit(msgspec.Struct, frozen=True):
    """How a container ended."""

    code: int
    reason: str = ""
    """If empty: Completed or Error, by the exit code."""
    message: str = ""
    signal: int = 0
    at: float | None = None
    """None: now."""


class ContainerStartError(Exception):
    """The container can't be started; the reason is shown in its waiting state, and the start is retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(slots=True)
class ContainerLaunch:
    """Everything that is known when a container starts."""

    pod: Unstructured
    """The current version: replaced with every sync, so that old versions are freed."""
    container: Unstructured
    attempt: int
    """From 0."""
    environment: Mapping[str, str]
    devices: Sequence[str] = ()
    """UUIDs of the container's GPUs or MIG devices."""


class Process(Protocol):
    started_at: float

    def poll(self, now: float) -> ContainerExit | None:
        """How it ended; None while it runs."""

    def next_poll_at(self) -> float | None:
        """When to poll again; None if the runtime signals the end itself."""

    def terminate(self, now: float) -> None:
        """SIGTERM."""

    def kill(self, now: float) -> None:
        """SIGKILL."""


class ContainerRuntime(Protocol):
    @property
    def pulls_images(self) -> bool:
        """Whether images are pulled at all."""

    def pull_seconds(self, node: str, container: Unstructured) -> float | None:
        """How long the pull takes; None if the image is on the node already."""

    def start(self, launch: ContainerLaunch, now: float) -> Process:
        """Raises `ContainerStartError`."""

    def resume(self, launch: ContainerLaunch, started_at: float, now: float) -> Process | None:
        """A container that ran when this process last stopped; None if it is lost."""

    def remove_pod(self, pod: Unstructured) -> None:
        """Removes the pod's logs; the pod was deleted."""
