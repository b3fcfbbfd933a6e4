"""Questions about who is asking and what they may do. Whoever has the token may do everything, and is told so.

`kubectl auth can-i` and `kubectl auth whoami` ask. There are no authorisation rules in a cluster of one process.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.kinds import Kind
from windlass.embedded.server.authentication import ADMIN, USER_KEY, User
from windlass.model.unstructured import Unstructured

DEFAULT_TOKEN_SECONDS, MIN_TOKEN_SECONDS = 3600, 600
_TOKEN_REQUEST = Kind("TokenRequest", "", "authentication.k8s.io", "v1")
_REVIEW = Kind("", "", "authorization.k8s.io", "v1")
_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_EVERY_PATH = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def requesting_user(request: web.BaseRequest) -> User:
    """Who asks, or as whom they ask."""
    name = request.headers.get("Impersonate-User")
    if name:
        return User(name, (*request.headers.getall("Impersonate-Group", ()), "system:authenticated"))
    user: User = request.get(USER_KEY, ADMIN)
    return user


def service_account_user(namespace: str, name: str, uid: str) -> User:
    """A service account, as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def token_lifetime(asked: Unstructured) -> int:
    """How long a token is to be good for; an hour where nobody says."""
    spec = asked.get("spec")
    wanted = spec.get("expirationSeconds") if isinstance(spec, dict) else None
    if wanted is None:
        return DEFAULT_TOKEN_SECONDS
    if not isinstance(wanted, int) or not MIN_TOKEN_SECONDS <= wanted < 1 << 32:
        wrong = invalid("spec.expirationSeconds", wanted, "may not specify a duration less than 10 minutes")
        raise ApiError.invalid(_TOKEN_REQUEST, "", [wrong])
    return wanted


def _access(review: Unstructured, user: User) -> Unstructured:
    spec = review.get("spec")
    given = spec if isinstance(spec, dict) else {}
    if bool(given.get("resourceAttributes")) == bool(given.get("nonResourceAttributes")):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong = invalid("spec.resourceAttributes", given.get("resourceAttributes"), why)
        raise ApiError.invalid(_REVIEW, "", [wrong])
    status = {"allowed": True, "reason": "this cluster has no authorisation rules"}
    return {**_asked(review), "status": status}


def _rules(review: Unstructured, user: User) -> Unstructured:
    status = {"resourceRules": _EVERYTHING, "nonResourceRules": _EVERY_PATH, "incomplete": False}
    return {**_asked(review), "status": status}


def _self(review: Unstructured, user: User) -> Unstructured:
    return {**_asked(review), "status": {"userInfo": _shown(user)}}


def _token(review: Unstructured, user: User) -> Unstructured:
    """Tokens of others are not known here, and the one that asks is never given again."""
    return {**_asked(review), "status": {"authenticated": False, "error": "tokens can't be reviewed here"}}


REVIEW_HANDLERS: dict[str, Callable[[Unstructured, User], Unstructured]] = {
    "SelfSubjectAccessReview": _access,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}


def _asked(review: Unstructured) -> Unstructured:
    metadata, spec = review.get("metadata"), review.get("spec")
    shown: Unstructured = {"metadata": metadata if isinstance(metadata, dict) else {}}
    shown["metadata"].setdefault("creationTimestamp", None)
    if isinstance(spec, dict):
        shown["spec"] = spec
    return shown


def _shown(user: User) -> Unstructured:
    shown: Unstructured = {"username": user.name, "groups": list(user.groups)}
    return {**shown, "uid": user.uid} if user.uid else shown
