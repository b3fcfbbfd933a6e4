"""What a controller wants done: a list of actions, and when to look again.

Every controller's `reconcile` is a pure function that returns an `Outcome`; `controllers.carry` carries it out
through the in-process verbs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.model.unstructured import Unstructured


@dataclass(frozen=True)
class Create:
    """A new object, for `owner`; success and failure become events on the owner."""

    resource: str
    owner: Unstructured
    obj: Unstructured
    suppress_event: bool = False
    """No event on success: where the controller announces in its own words."""


@dataclass(frozen=True)
class Delete:
    """An object goes away, for `owner`, who gets the event."""

    resource: str
    obj: Unstructured
    owner: Unstructured | None = None
    grace: int | None = None
    propagation: str = "Background"


@dataclass(frozen=True)
class Patch:
    """A merge patch; not sent where it would change nothing that the object shows."""

    resource: str
    obj: Unstructured
    merge: Unstructured
    subresource: str = ""


@dataclass(frozen=True)
class UpdateStatus:
    """The object's status, whole; not sent where it is the same already."""

    resource: str
    obj: Unstructured
    status: Unstructured


@dataclass(frozen=True)
class EmitEvent:
    """An Event about an object."""

    regarding: Unstructured
    reason: str
    message: str
    type: str = "Normal"


Action = Create | Delete | Patch | UpdateStatus | EmitEvent


@dataclass(frozen=True)
class ReconcileResult:
    actions: tuple[Action, ...] = ()
    requeue_at: float | None = None
    """The moment at which time alone may change something."""


@dataclass
class ReconcileResultBuilder:
    """An outcome in the making."""

    actions: list[Action] = field(default_factory=list)
    requeue_at: float | None = None

    def add(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def requeue(self, moment: float | None) -> None:
        if moment is not None:
            self.requeue_at = moment if self.requeue_at is None else min(self.requeue_at, moment)

    def build(self) -> ReconcileResult:
        return ReconcileResult(tuple(self.actions), self.requeue_at)
