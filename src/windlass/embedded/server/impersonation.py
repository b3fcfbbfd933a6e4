"""Impersonation: the headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-…`, each with its own permission.

`server` replaces the user of a request by it, before anything is authorised. The permission is the verb `impersonate`
on users, groups, serviceaccounts, uids and userextras.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.rbac import Attributes
from windlass.embedded.server.authentication import AUTHENTICATED, User, service_account_groups
from windlass.embedded.server.authorization import Authorizer

_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATION = "authentication.k8s.io"


def impersonate(request: web.BaseRequest, user: User, authorizer: Authorizer) -> User:
    """The user that the request is to be done as."""
    headers = request.headers
    if not any(name.lower().startswith(_PREFIX) for name in headers):
        return user
    name = headers.get("Impersonate-User", "")
    if not name:
        raise ApiError.bad_request("requested impersonation without impersonating a user")
    for attributes in _needed(request, name):
        authorizer.check(user, attributes)
    groups = tuple(headers.getall("Impersonate-Group", ()))
    if name.startswith(_ACCOUNT) and not groups:
        groups = service_account_groups(name.split(":")[2])
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), headers.get("Impersonate-Uid", ""))


def _needed(request: web.BaseRequest, name: str) -> Iterator[Attributes]:
    headers, verb = request.headers, "impersonate"
    account = name.removeprefix(_ACCOUNT).split(":")
    if name.startswith(_ACCOUNT) and len(account) == 2:
        yield Attributes(verb=verb, resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield Attributes(verb=verb, resource="users", name=name)
    for group in headers.getall("Impersonate-Group", ()):
        yield Attributes(verb=verb, resource="groups", name=group)
    for uid in headers.getall("Impersonate-Uid", ()):
        yield Attributes(verb=verb, group=_AUTHENTICATION, resource="uids", name=uid)
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = header.lower().removeprefix(_EXTRA)
            yield Attributes(verb=verb, group=_AUTHENTICATION, resource="userextras", subresource=key, name=value)
