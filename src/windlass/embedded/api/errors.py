"""Errors of the API: `ApiError`, a Kubernetes Status, and `FieldError`, one cause of a 422.

Raised by `embedded.api` and `registry`; the server returns `ApiError.status()`. Reasons, codes and messages are
part of the Kubernetes API (Apache-2.0), since clients match on them.

    ApiError            code, reason, message, details
      created by        not_found, already_exists, conflict, invalid, forbidden, bad_request, expired, …
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.embedded.api.kinds import Kind
from windlass.model.unstructured import Unstructured

MAX_ERRORS = 200
"""Of one object, in an answer: thousands of wrong list items would make it larger than the request."""


class FieldError(msgspec.Struct, frozen=True):
    """An error of one field; `body` is the message without the field's name."""

    field: str
    reason: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def quoted(value: object) -> str:
    """A value as in Kubernetes' messages: strings in quotes, everything else as JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _with_detail(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", _with_detail("Required value", detail))


def invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", _with_detail(f"Invalid value: {quoted(value)}", detail))


def unsupported(field: str, value: object, supported: Iterable[str]) -> FieldError:
    known = ", ".join(quoted(choice) for choice in supported)
    return FieldError(
        field,
        "FieldValueNotSupported",
        _with_detail(f"Unsupported value: {quoted(value)}", known and f"supported values: {known}"),
    )


def duplicate(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", _with_detail("Forbidden", detail))


def not_found_field(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {quoted(value)}")


def too_long(field: str, max_length: int) -> FieldError:
    unit = "byte" if max_length == 1 else "bytes"
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {max_length} {unit}")


def too_many(field: str, count: int, max_items: int) -> FieldError:
    unit = "item" if max_items == 1 else "items"
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {max_items} {unit}")


class ApiError(Exception):
    """An error response, with everything that a Status has."""

    def __init__(self, code: int, reason: str, message: str, details: Unstructured | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: Unstructured = {}
        """Metadata of the Status: the continue token of an expired list."""

    def status(self) -> Unstructured:
        """The Status object that a client gets."""
        answer: Unstructured = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if not self.reason:
            del answer["reason"]
        if self.details is not None:
            answer["details"] = self.details
        answer["code"] = self.code
        return answer

    # ---- about one object of a kind

    @classmethod
    def not_found(cls, kind: Kind, name: str) -> ApiError:
        return cls(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))

    @classmethod
    def already_exists(cls, kind: Kind, name: str) -> ApiError:
        return cls(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _details(kind, name))

    @classmethod
    def conflict(cls, kind: Kind, name: str, reason: str = "") -> ApiError:
        reason = reason or (
            "the object has been modified; please apply your changes to the latest version and try again"
        )
        message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {reason}'
        return cls(409, "Conflict", message, _details(kind, name))

    @classmethod
    def forbidden(cls, kind: Kind, name: str, reason: str) -> ApiError:
        subject = f'{kind.resource} "{name}"' if name else kind.resource
        return cls(403, "Forbidden", f"{subject} is forbidden: {reason}", _details(kind, name))

    @classmethod
    def invalid(cls, kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiError:
        """422: every cause in `details`, all of them in the message."""
        errors = errors[:MAX_ERRORS]
        unique = list(dict.fromkeys(str(error) for error in errors))
        summary = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
        group_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        causes = [{"reason": error.reason, "message": error.body, "field": error.field} for error in errors]
        details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
        return cls(
            422,
            "Invalid",
            f'{group_kind} "{name}" is invalid: {summary}',
            {key: value for key, value in details.items() if value},
        )

    # ---- about the request

    @classmethod
    def bad_request(cls, message: str) -> ApiError:
        return cls(400, "BadRequest", message)

    @classmethod
    def unprocessable(cls, message: str) -> ApiError:
        """422 without causes: a patch that can't be applied."""
        return cls(422, "Invalid", message)

    @classmethod
    def no_such_path(cls) -> ApiError:
        """404 for an unknown group, version or resource."""
        message = "the server could not find the requested resource"
        return cls(404, "NotFound", message, {})

    @classmethod
    def unauthorized(cls) -> ApiError:
        return cls(401, "Unauthorized", "Unauthorized")

    @classmethod
    def not_acceptable(cls, accepted: Sequence[str]) -> ApiError:
        kinds = ", ".join(accepted)
        message = f"only the following media types are accepted: {kinds}"
        return cls(406, "NotAcceptable", message)

    @classmethod
    def unsupported_media_type(cls, accepted: Sequence[str]) -> ApiError:
        message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
            accepted
        )
        return cls(415, "UnsupportedMediaType", message)

    @classmethod
    def expired(cls, message: str) -> ApiError:
        """410: a version that has been compacted."""
        return cls(410, "Expired", message)

    @classmethod
    def too_many_requests(cls, message: str, causes: Sequence[Unstructured] = (), retry: int = 0) -> ApiError:
        """429: an eviction that a disruption budget does not allow."""
        details: Unstructured = {"causes": list(causes)} if causes else {}
        if retry:
            details["retryAfterSeconds"] = retry
        return cls(429, "TooManyRequests", message, details)

    @classmethod
    def too_large(cls, message: str) -> ApiError:
        return cls(413, "RequestEntityTooLarge", f"Request entity too large: {message}")

    @classmethod
    def internal(cls, message: str) -> ApiError:
        details = {"causes": [{"message": message}]}
        return cls(500, "InternalError", f"Internal error occurred: {message}", details)


@contextlib.contextmanager
def ignore_api_errors(*codes: int) -> Iterator[None]:
    """For writes that have nothing left to do: the object is gone (404), or is another one by the same name (409)."""
    try:
        yield
    except ApiError as error:
        if error.code not in codes:
            raise


def _details(kind: Kind, name: str) -> Unstructured:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}
