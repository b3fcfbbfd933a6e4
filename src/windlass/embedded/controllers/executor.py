"""Executes a controller's actions in order, through the in-process client.

Controllers pass their `ReconcileResult`. After a child's creation was refused, no further ones are tried; the other
actions are executed and the refusal is raised at the end, so that the loop retries later. Everybody waits while actions
are executed, so that a result of many is executed in parts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from windlass.embedded.api.errors import ApiError, ignore_api_errors
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter, EventRecorder
from windlass.embedded.controllers.objects import name_of, namespace_of, uid_of
from windlass.embedded.controllers.reconcile_result import (
    Action,
    Create,
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    UpdateStatus,
)

_DISPLAY_NAMES = {"pods": "pod", "replicasets.apps": "replica set", "persistentvolumeclaims": "claim"}


class ActionExecutor:
    def __init__(
        self,
        client: Client,
        component: str,
        rate_limiter: EventRateLimiter | None = None,
        check_create: Callable[[Create], None] | None = None,
    ) -> None:
        """`check_create` raises an `ApiError` if a child may not be created now."""
        self.create_error: ApiError | None = None
        """Why the last result's children could not be created."""
        self._client, self._check_create = client, check_create
        self.events = EventRecorder(client, component, rate_limiter)

    def execute(self, result: ReconcileResult, now: float, max_actions: int = sys.maxsize) -> Sequence[Action]:
        """Returns what is left after so many actions."""
        refused = self.create_error = None
        for number, action in enumerate(result.actions):
            if number >= max_actions and refused is None:
                return result.actions[number:]
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
        return ()

    def _create(self, action: Create, now: float) -> ApiError | None:
        namespace = namespace_of(action.owner)
        kind = _DISPLAY_NAMES.get(action.resource, action.resource)
        try:
            if self._check_create is not None:
                self._check_create(action)
            made = self._client.create(action.resource, namespace, action.obj)
        except ApiError as error:
            if error.reason != "AlreadyExists" and "is being terminated" not in error.message:
                message = f"Error creating: {error.message}"
                self.events.record(action.owner, "FailedCreate", message, now, type="Warning")
            return error
        if not action.suppress_event:
            message = f"Created {kind}: {name_of(made)}"
            self.events.record(action.owner, "SuccessfulCreate", message, now)
        return None

    def _delete(self, action: Delete, now: float) -> None:
        obj = action.obj
        try:
            self._client.delete(
                action.resource,
                namespace_of(obj),
                name_of(obj),
                grace=action.grace,
                propagation=action.propagation,
                uid=uid_of(obj),
            )
        except ApiError as error:
            if error.code in (404, 409):
                return  # deleted, or another object by the same name (UID precondition)
            raise
        if action.owner is not None:
            kind = _DISPLAY_NAMES.get(action.resource, action.resource)
            message = f"Deleted {kind}: {name_of(obj)}"
            self.events.record(action.owner, "SuccessfulDelete", message, now)

    def _patch(self, action: Patch) -> None:
        key = namespace_of(action.obj), name_of(action.obj)
        if not is_noop_patch(action.obj, action.merge):
            with ignore_api_errors(404):
                self._client.patch(action.resource, *key, action.merge, action.subresource)

    def _write_status(self, action: UpdateStatus) -> None:
        key = namespace_of(action.obj), name_of(action.obj)
        # None stands for an absent field.
        status = {name: value for name, value in action.status.items() if value is not None}
        if status == (action.obj.get("status") or {}):
            return
        with ignore_api_errors(404):
            # An earlier action of this result may have changed it; nothing else runs in between.
            newest = self._client.get(action.resource, *key)
            self._client.update(action.resource, *key, {**newest, "status": status}, "status")


def is_noop_patch(obj: object, merge: object) -> bool:
    """Whether a merge patch would change nothing."""
    if isinstance(merge, dict):
        if not isinstance(obj, dict):
            return False
        return all(
            key not in obj if value is None else key in obj and is_noop_patch(obj[key], value)
            for key, value in merge.items()
        )
    return obj == merge
