"""Lists: current, at an exact version, or page by page of one version, with selectors.

Called by the HTTP server and by watches that begin with a list. A continue token has the version of the first page,
so that all pages show the same state; when that version is compacted, the 410 answer has a token that continues
with the current state.
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
from windlass.model.names.kubernetes import META_API_VERSION

EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
LATEST = -1
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
    timeout: float | None = None

    def for_name(self, name: str) -> ListQuery:
        """The same query for one object."""
        fields = f"{self.field_selector},metadata.name={name}".lstrip(",")
        return msgspec.structs.replace(self, field_selector=fields)

    def problems(self) -> Iterator[FieldError]:
        """Invalid combinations of parameters."""
        if self.watch:
            yield from self._watch_problems()
            return
        if self.resource_version_match:
            if not self.resource_version:
                yield _match_forbidden("unless resourceVersion is provided")
            if self.continue_token:
                yield _match_forbidden("when continue is provided")
            known = (EXACT, NOT_OLDER_THAN)
            if self.resource_version_match not in known:
                yield unsupported("resourceVersionMatch", self.resource_version_match, (*known, ""))
            if self.resource_version_match == EXACT and self.resource_version == "0":
                reason = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                yield forbidden_field("resourceVersionMatch", reason)
        if self.send_initial_events is not None:
            yield forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")

    def _watch_problems(self) -> Iterator[FieldError]:
        if self.send_initial_events is not None and self.resource_version_match != NOT_OLDER_THAN:
            reason = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
            yield forbidden_field("resourceVersionMatch", reason)
        if self.resource_version_match:
            if self.send_initial_events is None:
                yield _match_forbidden("for watch unless sendInitialEvents is provided")
            if self.resource_version_match != NOT_OLDER_THAN:
                yield unsupported("resourceVersionMatch", self.resource_version_match, (NOT_OLDER_THAN,))
            if self.continue_token:
                yield _match_forbidden("when continue is provided")


def _match_forbidden(when: str) -> FieldError:
    return forbidden_field("resourceVersionMatch", f"resourceVersionMatch is forbidden {when}")


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
        storage = self._context.store.storage(kind.storage_resource)
        version, after = self._version_and_start(query, kind)
        try:
            found = self._items_after(storage, version, namespace, after)
        except Compacted:
            raise _expired(query, kind, after) from None
        at = self._context.store.version if version == LATEST else version
        if not query.limit:
            return Page([item for item in found if selection is None or selection.matches_stored(item)], at)
        return self._limited_page(kind, found, query.limit, at, selection)

    def _limited_page(
        self, kind: Kind, found: Iterator[StoredObject], limit: int, version: int, selection: Selection | None
    ) -> Page:
        items: list[StoredObject] = []
        for stored in found:
            if selection is not None and not selection.matches_stored(stored):
                continue
            if len(items) == limit:
                # As in Kubernetes, remainingItemCount is only given without selectors.
                remaining = 1 + sum(1 for _ in found) if selection is None else None
                return Page(items, version, _token(kind, version, items[-1].key), remaining)
            items.append(stored)
        return Page(items, version)

    def _items_after(
        self, storage: ResourceStorage, version: int, namespace: str, after: Key | None
    ) -> Iterator[StoredObject]:
        if version == LATEST:
            return storage.list_current(namespace, after)
        return storage.list_at(version, namespace, after)

    def _version_and_start(self, query: ListQuery, kind: Kind) -> tuple[int, Key | None]:
        """The version to list, and the key after which the page starts."""
        if query.continue_token:
            if query.resource_version not in ("", "0"):
                raise ApiError.bad_request("specifying resource version is not allowed when using continue")
            token = _read_token(query.continue_token)
            return (token.rv if token.rv > 0 else LATEST), _key(kind, token.start)
        if not query.resource_version:
            return LATEST, None
        version = parse_version(query.resource_version)
        exact = query.resource_version_match == EXACT or (not query.resource_version_match and query.limit and version)
        self.check_not_in_future(version)
        return (version if exact else LATEST), None

    def check_not_in_future(self, version: int) -> None:
        """A version of the future is an error: the client mixed up two clusters."""
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
    raw = msgspec.json.encode(_Token(META_API_VERSION, version, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(text: str) -> _Token:
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.MsgspecError, UnicodeError):
        raise _bad_token("it is not one that this server gave out") from None
    if token.v != META_API_VERSION:
        raise _bad_token(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _bad_token("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise _bad_token("encoded start key empty (version meta.k8s.io/v1)")
    return token


def _bad_token(reason: str) -> ApiError:
    return ApiError.bad_request(f"invalid continue token: continue key is not valid: {reason}")


def _key(kind: Kind, start: str) -> Key:
    """The last key of the previous page."""
    namespace, slash, name = start.rstrip("\0").rpartition("/")
    if bool(slash) != kind.namespaced or "/" in namespace:
        raise _bad_token(start)
    return namespace, name


def _expired(query: ListQuery, kind: Kind, after: Key | None) -> ApiError:
    if not query.continue_token or after is None:
        return ApiError.expired(_TOO_OLD)
    refusal = ApiError.expired(_PAGE_TOO_OLD)
    refusal.metadata = {"continue": _token(kind, LATEST, after)}
    return refusal
