"""Access reviews and token requests. There are no authorisation rules: whoever has the token may do everything.

`subresources` calls it for `kubectl auth can-i`, `kubectl auth whoami` and `kubectl create token`.
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
    """The user of a request, or the impersonated one."""
    name = request.headers.get("Impersonate-User")
    if name:
        return User(name, (*request.headers.getall("Impersonate-Group", ()), "system:authenticated"))
    user: User = request.get(USER_KEY, ADMIN)
    return user


def service_account_user(namespace: str, name: str, uid: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def token_lifetime(token_request: Unstructured) -> int:
    """Seconds until a token expires; an hour by default."""
    spec = token_request.get("spec")
    wanted = spec.get("expirationSeconds") if isinstance(spec, dict) else None
    if wanted is None:
        return DEFAULT_TOKEN_SECONDS
    if not isinstance(wanted, int) or not MIN_TOKEN_SECONDS <= wanted < 1 << 32:
        error = invalid("spec.expirationSeconds", wanted, "may not specify a duration less than 10 minutes")
        raise ApiError.invalid(_TOKEN_REQUEST, "", [error])
    return wanted


def _access_review(review: Unstructured, user: User) -> Unstructured:
    spec = review.get("spec")
    attributes = spec if isinstance(spec, dict) else {}
    if bool(attributes.get("resourceAttributes")) == bool(attributes.get("nonResourceAttributes")):
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        error = invalid("spec.resourceAttributes", attributes.get("resourceAttributes"), reason)
        raise ApiError.invalid(_REVIEW, "", [error])
    status = {"allowed": True, "reason": "this cluster has no authorisation rules"}
    return {**_reviewed(review), "status": status}


def _rules_review(review: Unstructured, user: User) -> Unstructured:
    status = {"resourceRules": _EVERYTHING, "nonResourceRules": _EVERY_PATH, "incomplete": False}
    return {**_reviewed(review), "status": status}


def _self_review(review: Unstructured, user: User) -> Unstructured:
    return {**_reviewed(review), "status": {"userInfo": _user_info(user)}}


def _token_review(review: Unstructured, user: User) -> Unstructured:
    """Tokens are never confirmed to anyone."""
    return {**_reviewed(review), "status": {"authenticated": False, "error": "tokens can't be reviewed here"}}


REVIEW_HANDLERS: dict[str, Callable[[Unstructured, User], Unstructured]] = {
    "SelfSubjectAccessReview": _access_review,
    "SubjectAccessReview": _access_review,
    "LocalSubjectAccessReview": _access_review,
    "SelfSubjectRulesReview": _rules_review,
    "SelfSubjectReview": _self_review,
    "TokenReview": _token_review,
}


def _reviewed(review: Unstructured) -> Unstructured:
    metadata, spec = review.get("metadata"), review.get("spec")
    result: Unstructured = {"metadata": metadata if isinstance(metadata, dict) else {}}
    result["metadata"].setdefault("creationTimestamp", None)
    if isinstance(spec, dict):
        result["spec"] = spec
    return result


def _user_info(user: User) -> Unstructured:
    info: Unstructured = {"username": user.name, "groups": list(user.groups)}
    return {**info, "uid": user.uid} if user.uid else info
