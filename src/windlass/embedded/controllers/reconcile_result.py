"""The result of a controller's reconcile: actions, and when to reconcile again.

Every controller's `reconcile` function is pure and returns a `ReconcileResult`; `executor` executes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.model.unstructured import Unstructured


@dataclass(frozen=True)
class Create:
    """A new object for `owner`; success and failure become events on the owner."""

    resource: str
    owner: Unstructured
    obj: Unstructured
    suppress_event: bool = False
    """No event on success, since the controller emits its own."""


@dataclass(frozen=True)
class Delete:
    """Deletes an object; `owner` gets the event."""

    resource: str
    obj: Unstructured
    owner: Unstructured | None = None
    grace: int | None = None
    propagation: str = "Background"


@dataclass(frozen=True)
class Patch:
    """A merge patch; not sent if it would change nothing."""

    resource: str
    obj: Unstructured
    merge: Unstructured
    subresource: str = ""


@dataclass(frozen=True)
class UpdateStatus:
    """Replaces the object's status; not sent if it is equal."""

    resource: str
    obj: Unstructured
    status: Unstructured


@dataclass(frozen=True)
class EmitEvent:
    regarding: Unstructured
    reason: str
    message: str
    type: str = "Normal"


Action = Create | Delete | Patch | UpdateStatus | EmitEvent


@dataclass(frozen=True)
class ReconcileResult:
    actions: tuple[Action, ...] = ()
    requeue_at: float | None = None
    """When time alone may change something."""


@dataclass
class ReconcileResultBuilder:
    actions: list[Action] = field(default_factory=list)
    requeue_at: float | None = None

    def add(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def requeue(self, moment: float | None) -> None:
        if moment is not None:
            self.requeue_at = moment if self.requeue_at is None else min(self.requeue_at, moment)

    def build(self) -> ReconcileResult:
        return ReconcileResult(tuple(self.actions), self.requeue_at)
