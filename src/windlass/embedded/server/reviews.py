"""Questions about who is asking and what they may do. Whoever has the token may do everything, and is told so.

`kubectl auth can-i` and `kubectl auth whoami` ask. There are no authorisation rules in a cluster of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from windlass.embedded.server.doors import ADMIN, USER, User

Tree = dict[str, Any]

_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_EVERY_PATH = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def asking(request: web.BaseRequest) -> User:
    """Who asks, or as whom they ask."""
    name = request.headers.get("Impersonate-User")
    if name:
        return User(name, (*request.headers.getall("Impersonate-Group", ()), "system:authenticated"))
    user: User = request.get(USER, ADMIN)
    return user


def _access(review: Tree, user: User) -> Tree:
    status = {"allowed": True, "reason": "this cluster has no authorisation rules"}
    return {**_asked(review), "status": status}


def _rules(review: Tree, user: User) -> Tree:
    status = {"resourceRules": _EVERYTHING, "nonResourceRules": _EVERY_PATH, "incomplete": False}
    return {**_asked(review), "status": status}


def _self(review: Tree, user: User) -> Tree:
    return {**_asked(review), "status": {"userInfo": _shown(user)}}


def _token(review: Tree, user: User) -> Tree:
    """Tokens of others are not known here, and the one that asks is never given again."""
    return {**_asked(review), "status": {"authenticated": False, "error": "tokens can't be reviewed here"}}


ANSWERS: dict[str, Callable[[Tree, User], Tree]] = {
    "SelfSubjectAccessReview": _access,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}


def _asked(review: Tree) -> Tree:
    metadata, spec = review.get("metadata"), review.get("spec")
    shown: Tree = {"metadata": metadata if isinstance(metadata, dict) else {}}
    shown["metadata"].setdefault("creationTimestamp", None)
    if isinstance(spec, dict):
        shown["spec"] = spec
    return shown


def _shown(user: User) -> Tree:
    shown: Tree = {"username": user.name, "groups": list(user.groups)}
    return {**shown, "uid": user.uid} if user.uid else shown
