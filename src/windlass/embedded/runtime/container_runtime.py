"""What a kubelet asks of whatever really (or not really) runs a container.

`runtime.podrun` drives the life of a pod through this; `runtime.simulated` and `runtime.process` implement it.
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
    """Empty: Completed or Error, by the code."""
    message: str = ""
    signal: int = 0
    at: float | None = None
    """When; None: just now."""


class ContainerStartError(Exception):
    """The container can't be started; the reason stands in its waiting state, and it is tried again later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(slots=True)
class ContainerLaunch:
    """Everything that is known when a container starts."""

    pod: Unstructured
    """As it is now: it is renewed with every step of the pod, so that no old version of it is kept alive."""
    container: Unstructured
    attempt: int
    """Counted from 0."""
    environment: Mapping[str, str]
    devices: Sequence[str] = ()
    """UUIDs of the GPUs or MIG devices that the pod holds."""


class Process(Protocol):
    """A started container."""

    started_at: float

    def poll(self, now: float) -> ContainerExit | None:
        """How it ended, once it has."""

    def next_poll_at(self) -> float | None:
        """When to poll again; None where whoever runs it will say."""

    def terminate(self, now: float) -> None:
        """SIGTERM."""

    def kill(self, now: float) -> None:
        """SIGKILL."""


class ContainerRuntime(Protocol):
    @property
    def pulls_images(self) -> bool:
        """Whether images mean anything here."""

    def pull_seconds(self, node: str, container: Unstructured) -> float | None:
        """How long the image takes; None where it is on the node already."""

    def start(self, launch: ContainerLaunch, now: float) -> Process:
        """Raises `ContainerStartError`."""

    def resume(self, launch: ContainerLaunch, started_at: float, now: float) -> Process | None:
        """A container that ran when this process last stopped; None where it is lost."""

    def remove_pod(self, pod: Unstructured) -> None:
        """The pod is gone; so are its logs."""
