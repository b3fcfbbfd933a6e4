"""What the API says no with: a Kubernetes Status, as an exception.

Raised by the verbs and whatever stands behind them; the HTTP server writes it out as the answer, and controllers catch
it. Reasons, codes and wording are those of the Kubernetes API (Apache-2.0), since people and programs look for them.

    ApiError            any refusal: code, reason, message, details
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tree = dict[str, Any]

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, METHOD_NOT_ALLOWED = 400, 401, 403, 404, 405
NOT_ACCEPTABLE, CONFLICT, GONE, TOO_LARGE, UNSUPPORTED, INVALID, TOO_MANY = 406, 409, 410, 413, 415, 422, 429
INTERNAL, TIMEOUT = 500, 504


class ApiError(Exception):
    """A refusal with everything that stands in a Status."""

    def __init__(self, code: int, reason: str, message: str, details: Tree | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    @property
    def retry_after(self) -> int:
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def status(self) -> Tree:
        """The Status object."""
        status: Tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @classmethod
    def bad_request(cls, message: str) -> ApiError:
        return cls(BAD_REQUEST, "BadRequest", message)

    @classmethod
    def unauthorized(cls) -> ApiError:
        return cls(UNAUTHORIZED, "Unauthorized", "Unauthorized")

    @classmethod
    def not_found(cls, resource: str, name: str) -> ApiError:
        message = f'{resource} "{name}" not found'
        return cls(NOT_FOUND, "NotFound", message, named(resource, name))

    @classmethod
    def no_such_path(cls) -> ApiError:
        message = "the server could not find the requested resource"
        return cls(NOT_FOUND, "NotFound", message, {})

    @classmethod
    def exists(cls, resource: str, name: str) -> ApiError:
        message = f'{resource} "{name}" already exists'
        return cls(CONFLICT, "AlreadyExists", message, named(resource, name))

    @classmethod
    def conflict(cls, resource: str, name: str, why: str = "") -> ApiError:
        why = why or (
            "the object has been modified; please apply your changes to the latest version and try again"
        )
        message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
        return cls(CONFLICT, "Conflict", message, named(resource, name))

    @classmethod
    def forbidden(cls, resource: str, name: str, why: str) -> ApiError:
        shown = f'{resource} "{name}" is forbidden: {why}' if name else f"{resource} is forbidden: {why}"
        return cls(FORBIDDEN, "Forbidden", shown, named(resource, name))

    @classmethod
    def invalid(cls, kind: str, group: str, name: str, causes: Sequence[Tree]) -> ApiError:
        """Causes as a Status has them: `{reason, message, field}`; the message repeats them, in brackets if many."""
        lines = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
        shown = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
        what = f"{kind}.{group}" if group else kind
        details = {**_nonempty(name=name, group=group, kind=kind), "causes": list(causes)}
        message = f'{what} "{name}" is invalid' + (f": {shown}" if lines else "")
        return cls(INVALID, "Invalid", message, details)

    @classmethod
    def expired(cls, message: str) -> ApiError:
        return cls(GONE, "Expired", message)

    @classmethod
    def method_not_allowed(cls, resource: str, verb: str) -> ApiError:
        plural, _, group = resource.partition(".")
        message = "the server does not allow this method on the requested resource"
        return cls(METHOD_NOT_ALLOWED, "MethodNotAllowed", message, _nonempty(group=group, kind=plural))

    @classmethod
    def unsupported_media_type(cls, message: str) -> ApiError:
        return cls(UNSUPPORTED, "UnsupportedMediaType", message)

    @classmethod
    def not_acceptable(cls, accepted: Sequence[str]) -> ApiError:
        message = f"only the following media types are accepted: {', '.join(accepted)}"
        return cls(NOT_ACCEPTABLE, "NotAcceptable", message)

    @classmethod
    def too_many(cls, message: str, causes: Sequence[Tree] = (), retry_after: int = 0) -> ApiError:
        details: Tree = {}
        if causes:
            details["causes"] = list(causes)
        if retry_after:
            details["retryAfterSeconds"] = retry_after
        return cls(TOO_MANY, "TooManyRequests", message, details or None)


def named(resource: str, name: str) -> Tree:
    """Details of a Status about one object. `kind` holds the resource's name there, as in Kubernetes."""
    plural, _, group = resource.partition(".")
    return _nonempty(name=name, group=group, kind=plural)


def success(resource: str, name: str, uid: str = "") -> Tree:
    """The Status that a deletion answers with."""
    details = {**named(resource, name), **_nonempty(uid=uid)}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _nonempty(**fields: str) -> Tree:
    return {name: value for name, value in fields.items() if value}
