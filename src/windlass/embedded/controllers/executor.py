"""Carries out what a controller decided, in order, through the in-process verbs.

`controllers.owners` hands outcomes in. Once making a child is refused, no further ones are tried; the rest is carried
out, and the refusal is raised at the end: the loop comes back later, and the controller decides anew.
"""

from __future__ import annotations

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter, EventRecorder
from windlass.embedded.controllers.objects import name_of, namespace_of, uid_of
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    UpdateStatus,
)
from windlass.model.unstructured import Unstructured

_NAMES = {"pods": "pod", "replicasets.apps": "replica set", "persistentvolumeclaims": "claim"}


class ActionExecutor:
    def __init__(self, client: Client, component: str, rate_limiter: EventRateLimiter | None = None) -> None:
        self.create_error: ApiError | None = None
        """Why the last outcome's children could not be made."""
        self._door = client
        self.events = EventRecorder(client, component, rate_limiter)

    def execute(self, result: ReconcileResult, now: float) -> None:
        refused = self.create_error = None
        for action in result.actions:
            match action:
                case Create():
                    refused = self.create_error = refused or self._create(action, now)
                case Delete():
                    self._delete(action, now)
                case Patch():
                    self._patch(action)
                case UpdateStatus():
                    self._write_status(action)
                case EmitEvent():
                    self.events.record(action.regarding, action.reason, action.message, now, type=action.type)
        if refused is not None:
            raise refused

    def _create(self, action: Create, now: float) -> ApiError | None:
        namespace = namespace_of(action.owner)
        what = _NAMES.get(action.resource, action.resource)
        try:
            made = self._door.create(action.resource, namespace, action.obj)
        except ApiError as error:
            if error.reason != "AlreadyExists" and "is being terminated" not in error.message:
                said = f"Error creating: {error.message}"
                self.events.record(action.owner, "FailedCreate", said, now, type="Warning")
            return error
        if not action.suppress_event:
            said = f"Created {what}: {name_of(made)}"
            self.events.record(action.owner, "SuccessfulCreate", said, now)
        return None

    def _delete(self, action: Delete, now: float) -> None:
        thing = action.obj
        try:
            self._door.delete(
                action.resource,
                namespace_of(thing),
                name_of(thing),
                grace=action.grace,
                propagation=action.propagation,
                uid=uid_of(thing),
            )
        except ApiError as error:
            if error.code in (404, 409):
                return  # gone, or another life under the same name: either way not ours to delete any more
            raise
        if action.owner is not None:
            what = _NAMES.get(action.resource, action.resource)
            said = f"Deleted {what}: {name_of(thing)}"
            self.events.record(action.owner, "SuccessfulDelete", said, now)

    def _patch(self, action: Patch) -> None:
        thing = action.obj
        if is_noop_patch(thing, action.merge):
            return
        try:
            self._door.patch(
                action.resource, namespace_of(thing), name_of(thing), action.merge, action.subresource
            )
        except ApiError as error:
            if error.code != 404:
                raise

    def _write_status(self, action: UpdateStatus) -> None:
        thing = action.obj
        status = without_none(action.status)
        if status == (thing.get("status") or {}):
            return
        try:
            # The same pass may have changed it already; nothing else runs in between, so the newest is meant.
            newest = self._door.get(action.resource, namespace_of(thing), name_of(thing))
            whole = {**newest, "status": status}
            self._door.update(action.resource, namespace_of(thing), name_of(thing), whole, "status")
        except ApiError as error:
            if error.code != 404:
                raise


def is_noop_patch(thing: object, merge: object) -> bool:
    """Whether a merge patch would leave the object as it is."""
    if isinstance(merge, dict):
        if not isinstance(thing, dict):
            return False
        return all(
            key not in thing if value is None else key in thing and is_noop_patch(thing[key], value)
            for key, value in merge.items()
        )
    return thing == merge


def without_none(status: Unstructured) -> Unstructured:
    """Kubernetes leaves out what is absent; a None stands for that."""
    return {key: value for key, value in status.items() if value is not None}
