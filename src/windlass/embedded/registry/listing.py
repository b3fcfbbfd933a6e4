"""Lists: of now, of an exact version, or page by page of one version, with selectors.

The HTTP server and the watches that begin with a list call it. A page's token carries the version of the first page, so
that all pages show one moment; when that moment is forgotten, the answer (410) carries a token that goes on from now.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import msgspec

from windlass.embedded.api.errors import ApiError, FieldError, forbidden_field, unsupported
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.selection import Selection
from windlass.embedded.store.resource_storage import Compacted, ResourceStorage
from windlass.embedded.store.stored_object import Key, StoredObject

EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
LATEST = -1
_TOKEN_VERSION = "meta.k8s.io/v1"
_TOO_OLD = "The resourceVersion for the provided list is too old."
_PAGE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of a list or a watch."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    """`sendInitialEvents`."""
    timeout: float | None = None

    def for_name(self, name: str) -> ListQuery:
        """The same of one object."""
        fields = f"{self.field_selector},metadata.name={name}".lstrip(",")
        return msgspec.structs.replace(self, field_selector=fields)

    def problems(self) -> list[FieldError]:
        """What is wrong with how these parameters go together."""
        if self.watch:
            return self._watch_problems()
        found = []
        if self.resource_version_match:
            if not self.resource_version:
                why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
                found.append(forbidden_field("resourceVersionMatch", why))
            if self.continue_token:
                why = "resourceVersionMatch is forbidden when continue is provided"
                found.append(forbidden_field("resourceVersionMatch", why))
            if self.resource_version_match not in (EXACT, NOT_OLDER_THAN):
                found.append(
                    unsupported(
                        "resourceVersionMatch", self.resource_version_match, (EXACT, NOT_OLDER_THAN, "")
                    )
                )
            if self.resource_version_match == EXACT and self.resource_version == "0":
                why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                found.append(forbidden_field("resourceVersionMatch", why))
        if self.send_initial_events is not None:
            found.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return found

    def _watch_problems(self) -> list[FieldError]:
        found = []
        if self.send_initial_events is not None and self.resource_version_match != NOT_OLDER_THAN:
            why = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
            found.append(forbidden_field("resourceVersionMatch", why))
        if self.resource_version_match:
            if self.send_initial_events is None:
                why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
                found.append(forbidden_field("resourceVersionMatch", why))
            if self.resource_version_match != NOT_OLDER_THAN:
                found.append(
                    unsupported("resourceVersionMatch", self.resource_version_match, (NOT_OLDER_THAN,))
                )
            if self.continue_token:
                why = "resourceVersionMatch is forbidden when continue is provided"
                found.append(forbidden_field("resourceVersionMatch", why))
        return found


class Page(msgspec.Struct, frozen=True):
    items: list[StoredObject]
    version: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


class Listing:
    def __init__(self, context: Context) -> None:
        self._context = context

    def page(self, kind: Kind, namespace: str, query: ListQuery, selection: Selection | None) -> Page:
        shelf = self._context.store.storage(kind.storage_resource)
        version, after = self._moment(query, kind)
        try:
            found = self._from(shelf, version, namespace, after)
        except Compacted:
            raise _expired(query, kind, after) from None
        at = self._context.store.version if version == LATEST else version
        if not query.limit:
            return Page([each for each in found if selection is None or selection.matches_stored(each)], at)
        return self._cut(kind, found, query.limit, at, selection)

    def _cut(
        self, kind: Kind, found: Iterator[StoredObject], limit: int, version: int, selection: Selection | None
    ) -> Page:
        items: list[StoredObject] = []
        for each in found:
            if selection is not None and not selection.matches_stored(each):
                continue
            if len(items) == limit:
                # Kubernetes counts what is left only where nothing is filtered
                remaining = 1 + sum(1 for _ in found) if selection is None else None
                return Page(items, version, _token(kind, version, items[-1].key), remaining)
            items.append(each)
        return Page(items, version)

    def _from(
        self, shelf: ResourceStorage, version: int, namespace: str, after: Key | None
    ) -> Iterator[StoredObject]:
        if version == LATEST:
            return shelf.list_current(namespace, after)
        return shelf.list_at(version, namespace, after)

    def _moment(self, query: ListQuery, kind: Kind) -> tuple[int, Key | None]:
        """Of which version the list is to be, and after which key it goes on."""
        if query.continue_token:
            if query.resource_version not in ("", "0"):
                raise ApiError.bad_request("specifying resource version is not allowed when using continue")
            token = _read_token(query.continue_token)
            return (token.rv if token.rv > 0 else LATEST), _key(kind, token.start)
        if not query.resource_version:
            return LATEST, None
        version = parse_version(query.resource_version)
        exact = query.resource_version_match == EXACT or (
            not query.resource_version_match and query.limit and version
        )
        self.check_not_in_future(version)
        return (version if exact else LATEST), None

    def check_not_in_future(self, version: int) -> None:
        """A version of the future is an error: somebody mixed up two clusters."""
        current = self._context.store.version
        if version > current:
            message = f"Timeout: Too large resource version: {version}, current: {current}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def parse_version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ApiError.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _token(kind: Kind, version: int, last: Key) -> str:
    start = f"{last[0]}/{last[1]}\0" if kind.namespaced else f"{last[1]}\0"
    raw = msgspec.json.encode(_Token(_TOKEN_VERSION, version, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(text: str) -> _Token:
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.MsgspecError, UnicodeError):
        why = "it is not one that this server gave out"
        raise ApiError.bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if token.v != _TOKEN_VERSION:
        why = "continue key is not valid: server does not recognize this encoded version"
        raise ApiError.bad_request(f"invalid continue token: {why} {token.v}")
    if token.rv == 0:
        why = "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        raise ApiError.bad_request(f"invalid continue token: {why}")
    if not token.start:
        why = "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"
        raise ApiError.bad_request(f"invalid continue token: {why}")
    return token


def _key(kind: Kind, start: str) -> Key:
    """The last key that was given out."""
    space, slash, name = start.rstrip("\0").rpartition("/")
    if bool(slash) != kind.namespaced or "/" in space:
        raise ApiError.bad_request(f"invalid continue token: continue key is not valid: {start}")
    return space, name


def _expired(query: ListQuery, kind: Kind, after: Key | None) -> ApiError:
    if not query.continue_token or after is None:
        return ApiError.expired(_TOO_OLD)
    refusal = ApiError.expired(_PAGE_TOO_OLD)
    refusal.metadata = {"continue": _token(kind, LATEST, after)}
    return refusal
