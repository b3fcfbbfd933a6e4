"""Failed requests to an API server, as a tree of exceptions.

    ClusterUnreachable
    ├── ServerUnavailable   no response: connection refused, reset, timed out
    │   └── MalformedAnswer a response that is not what was asked for: cut off, or from something in between
    ├── NotSent             no request was made
    │   ├── LeaseLost       this replica leads no more
    │   └── WritesFrozen    `windlass freeze`, or whether it was given can't be read
    └── ApiError            a response with an error status
        ├── Unauthorized    401
        ├── Forbidden       403
        ├── NotFound        404
        ├── Conflict        409
        ├── ResourceExpired 410: the resourceVersion is too old
        └── TooManyRequests 429

Raised by `kube.client`; the type says whether a retry can help. After `ServerUnavailable` it is unknown whether a write
happened.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from windlass.model.errors import ClusterUnreachable


class StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """The `Status` object that API servers answer with."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ServerUnavailable(ClusterUnreachable):
    """There was no response."""


class MalformedAnswer(ServerUnavailable):
    """The response can't be read; whether a write happened is as unknown as without one."""


class NotSent(ClusterUnreachable):
    """The request was not sent: this process must not write now."""


class LeaseLost(NotSent):
    """The lease was lost."""


class WritesFrozen(NotSent):
    """All writes of Windlass are frozen."""


class ApiError(ClusterUnreachable):
    def __init__(self, code: int, status: Status, where: str = "", retry_after: float = 0.0) -> None:
        message = status.message or status.reason or "no reason given"
        super().__init__(f"{where}: {code} {message}" if where else f"{code} {message}")
        self.code, self.status = code, status
        self.retry_after = retry_after or float(status.details.retry_after_seconds if status.details else 0)

    @property
    def is_permanent(self) -> bool:
        """Sending the same again would bring the same answer."""
        return 400 <= self.code < 500 and self.code not in (401, 408, 429)


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NotFound(ApiError): ...


class Conflict(ApiError): ...


class ResourceExpired(ApiError): ...


class TooManyRequests(ApiError): ...


_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceExpired,
    429: TooManyRequests,
}
_STATUS = msgspec.json.Decoder(Status)
T = TypeVar("T")


def decode_answer(body: bytes, kind: type[T], where: str) -> T:
    """The decoded body of a successful response."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedAnswer(f"{where}: the answer can't be read: {error}") from None


def api_error(code: int, body: bytes, where: str = "", retry_after: str = "") -> ApiError:
    """The exception for an answer; `retry_after` is the header of that name."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status(message=body[:200].decode("utf-8", "replace").strip())
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return _BY_CODE.get(code, ApiError)(code, status, where, seconds)
